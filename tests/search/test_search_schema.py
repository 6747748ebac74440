"""How texts become words: by their language, and sign by sign where there are no spaces."""

import pytest

from sterna.search.schema import ANALYSES, PLAIN, SIGNS, choose_analysis, make_analyzer, normalized


@pytest.mark.parametrize(
    ("language", "analysis"),
    [
        ("en", "en"),
        ("en-GB", "en"),
        ("DE_at", "de"),
        ("nb-NO", "no"),
        ("nn", "no"),
        ("", PLAIN),
        ("cs", PLAIN),
        ("klingon", PLAIN),
        ("-", PLAIN),
        ("x" * 10_000, PLAIN),
        ("plain", PLAIN),
        ("signs", PLAIN),
    ],
)
def test_the_tag_decides_for_words(language: str, analysis: str) -> None:
    assert choose_analysis(language, "some words of a text") == analysis


@pytest.mark.parametrize(
    ("language", "text", "analysis"),
    [
        ("", "東京都の天気", SIGNS),
        ("en", "東京都の天気", SIGNS),
        ("ko", "한국어 문서", SIGNS),
        ("th", "ภาษาไทย", SIGNS),
        ("ja", "not translated yet", PLAIN),
        ("en", "a page in English that mentions 日本語 once, among many other words of it", "en"),
    ],
)
def test_the_text_decides_for_signs(language: str, text: str, analysis: str) -> None:
    assert choose_analysis(language, text) == analysis


def test_every_analysis_can_be_made() -> None:
    for name in ANALYSES:
        assert make_analyzer(name).analyze("Word") == ["word"] or name in ("fi", "hu", "tr", "ro")


def test_words_of_a_language_share_their_stem() -> None:
    english, german = make_analyzer("en"), make_analyzer("de")
    assert english.analyze("Crawlers crawling") == english.analyze("crawler crawled") or english.analyze(
        "crawling"
    ) == english.analyze("crawled")
    assert german.analyze("Häuser") == german.analyze("hauser") == german.analyze("HAUS")
    assert make_analyzer(PLAIN).analyze("Crawling") == ["crawling"]


def test_accents_need_not_be_typed() -> None:
    french = make_analyzer("fr")
    assert french.analyze("École") == french.analyze("ecole")
    assert make_analyzer(PLAIN).analyze(normalized("e\u0301cole")) == ["ecole"]


def test_signs_are_taken_one_by_one_and_words_whole() -> None:
    assert make_analyzer(SIGNS).analyze("東京Tokyo 2026年、한국") == [
        "東",
        "京",
        "tokyo",
        "2026",
        "年",
        "한",
        "국",
    ]


def test_a_word_that_nobody_types_is_left_out() -> None:
    assert make_analyzer("en").analyze("a " + "x" * 1_000_000 + " b") == ["a", "b"]
