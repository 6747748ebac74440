"""Keywords: the telling words of a page, and none of its small words and menus."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers.nginx import real_site

from sterna.web.document import Fetched, Manner, read_document
from sterna.web.keywords import MAX_KEYWORDS, keywords_of, stop_words, stopwords_of

TEXT = """The Arctic tern is a bird. This bird has a migration from its breeding grounds in the Arctic to the
Antarctic and back. No other animal has a migration like it. The bird nests on the ground."""


def words(text: str, language: str = "en", **others: str) -> tuple[str, ...]:
    headings = tuple(filter(None, [others.get("heading", "")]))
    return keywords_of(others.get("title", ""), headings, others.get("description", ""), text, language)


def of_page(markup: str | bytes) -> tuple[str, ...]:
    body = markup.encode() if isinstance(markup, str) else markup
    manner = Manner(wants=("keywords",)).encoded()
    url = "http://www.example.org/"
    return read_document(
        Fetched(url=url, status=200, content_type="text/html", body=body, manner=manner)
    ).keywords


def test_words_that_are_said_often_come_first() -> None:
    assert words(TEXT)[:4] == ("bird", "arctic", "ground", "migration")


def test_title_and_headings_weigh_more_than_the_text() -> None:
    assert words(TEXT, title="Breeding of terns")[:2] == ("breeding", "terns")
    assert words(TEXT, heading="Antarctic animals")[:2] == ("animals", "antarctic")
    assert words(TEXT, heading="Antarctic", title="Nests")[:2] == ("nests", "antarctic")
    assert words("bird " * 3 + "fish " * 3, description="fish")[0] == "fish"


def test_the_title_of_a_long_page_weighs_as_much_as_that_of_a_short_one() -> None:
    text = "one of the birds sings " * 5_000 + "a tern flies "
    assert words(text, title="The tern")[0] == "tern"


def test_words_of_one_weight_are_in_the_order_of_the_alphabet() -> None:
    assert words("owl gull tern auk skua") == ("auk", "gull", "owl", "skua", "tern")


def test_there_are_no_more_than_the_bound() -> None:
    assert len(words(" ".join(f"word{n} " * 2 for n in range(100)))) == MAX_KEYWORDS


@pytest.mark.parametrize(
    "word", ["a", "x", "2026", "3_000", "__", "0", "٣٤", "d41d8cd98f00b204e9800998ecf8427e00"]
)
def test_numbers_single_letters_and_digests_are_no_words(word: str) -> None:
    assert words(f"{word} tern {word} {word}", "") == ("tern",)


@pytest.mark.parametrize("word", ["utf8", "3d", "sqlite3_open", "naïve", "größe", "čaj"])
def test_words_may_hold_digits_underscores_and_any_letters(word: str) -> None:
    assert words(f"{word}, ({word.capitalize()})! tern «{word}» — {word}…", "") == (word, "tern")


def test_a_page_full_of_numbers_still_has_its_words() -> None:
    assert words("tern gull tern gull " + " ".join(f"{n} {n} {n}" for n in range(40))) == ("gull", "tern")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("terns tern terns", ("terns",)),
        ("tern terns tern", ("tern",)),
        ("tern terns", ("tern",)),
        ("query queries", ("query",)),
        ("index indexes", ("index",)),
        ("database databases", ("database",)),
        ("class classes", ("class",)),
        ("plan planes", ("plan", "planes")),
        ("gas ga", ("ga", "gas")),
        ("bus buss busss", ("bus", "busss")),
    ],
)
def test_an_english_plural_counts_with_its_word(text: str, expected: tuple[str, ...]) -> None:
    assert words(text) == expected


SENTENCES = {
    "en": ("The clinic is open and the doctors are there for you", "clinic doctors open"),
    "de": ("Die Klinik ist nicht weit, und die Ärzte sind für uns da", "klinik weit ärzte"),
    "fr": ("La clinique est ouverte et les médecins sont là pour vous", "clinique médecins ouverte"),
    "es": ("La clínica está abierta y los médicos están para todos", "abierta clínica médicos"),
    "it": ("La clinica è aperta e i medici sono qui per tutti", "aperta clinica medici"),
    "pt": ("A clínica não está aberta para os médicos e para você", "aberta clínica médicos"),
    "nl": ("De kliniek is niet open en de artsen zijn er voor ons", "artsen kliniek open"),
    "sv": ("Kliniken är öppen och läkarna finns där för alla", "kliniken läkarna öppen"),
    "da": ("Klinikken er ikke åben, og lægerne er der for os", "klinikken lægerne åben"),
    "nb": ("Klinikken er ikke åpen, og legene er der for oss", "klinikken legene åpen"),
    "fi": ("Klinikka on auki ja lääkärit ovat siellä, mutta ei aina", "auki klinikka lääkärit"),
    "pl": ("Klinika jest otwarta i lekarze są tam dla nas", "klinika lekarze otwarta"),
    "cs": ("Klinika je otevřená a lékaři jsou tam pro nás", "klinika lékaři otevřená"),
    "ru": ("Клиника не открыта, и врачи есть там для нас", "врачи клиника открыта"),
    "tr": ("Bu klinik açık ve doktorlar bizim için orada", "açık doktorlar klinik"),
}


@pytest.mark.parametrize("language", SENTENCES)
def test_small_words_are_left_out_in_the_language_of_the_page(language: str) -> None:
    text, expected = SENTENCES[language]
    assert sorted(words(text, language)) == sorted(expected.split())


@pytest.mark.parametrize("language", SENTENCES)
def test_a_language_that_is_not_told_is_known_by_its_small_words(language: str) -> None:
    text, expected = SENTENCES[language]
    assert sorted(words(text, "")) == sorted(expected.split())


def test_a_language_that_is_told_wrongly_does_not_matter() -> None:
    text = """Wer in die Klinik kommt, der wird von den Ärzten nicht nach dem Namen gefragt, sondern nach
    seinem Befinden, und wenn er es nicht sagen kann, so wird er untersucht. Das ist bei uns so, weil wir es
    immer so gemacht haben und weil es sich bewährt hat; nur manchmal, wenn sehr viele da sind, kann es auch
    anders sein, aber das kommt nicht oft vor, denn die meisten wissen es. Die Klinik ist nicht weit."""
    assert "klinik" in words(text, "en")
    assert not stop_words().of_language["de"].intersection(words(text, "en"))


def test_lists_of_small_words_are_in_lower_case_and_long_enough() -> None:
    for language, small in stop_words().of_language.items():
        assert len(small) >= 80, language
        assert all(word == word.lower() and len(word.split()) == 1 for word in small)
    assert stopwords_of("nb") is stopwords_of("no") is stopwords_of("nn-no") is stop_words().of_language["no"]
    assert stopwords_of("xx") is None


def test_chinese_is_told_by_two_characters_at_a_time() -> None:
    assert words("我们的医院。医院在北京，医院有医生。", "zh", title="医院")[:2] == ("医院", "北京")


def test_korean_words_are_whole_even_beside_chinese_ones() -> None:
    assert set(words("데이터베이스 서버, 데이터베이스 漢字", "ko")) == {"데이터베이스", "서버", "漢字"}


def test_japanese_is_told_by_its_runs_of_characters() -> None:
    text = "バックアップを取ることは管理者の責任です。管理者はサーバのバックアップを復元する。"
    assert set(words(text, "ja")) >= {"バックアップ", "管理者", "責任", "サーバ", "復元"}
    assert words(text, "ja", title="復元")[0] == "復元"


MENU = "<a href=/{0}>Products</a>{1}<a href=/b>Imprint</a>{1}<a href=/c>Sitemap</a>"
STORY = "<h1>The tern</h1><p>The tern is a bird. It <a href=/m>migrates</a> far and migrates often.</p>"


@pytest.mark.parametrize(
    "frame",
    [
        f"<nav>{MENU.format('a', ' ')} menu text here and here</nav>",
        f"<header>{MENU.format('a', '')} menu text</header>",
        "<footer><h2>Products</h2> Imprint Sitemap</footer>",
        "<aside><p>Products Imprint Sitemap</p></aside>",
        "<form>Products <label>Imprint</label> <button>Sitemap</button></form>",
        "<select><option>Products<option>Imprint<option>Sitemap</select>",
        "<ul><li><a href=/a>Products</a></li><li><a href=/b>Imprint</a></li><li><a href=#c>Sitemap</a></ul>",
        f"<div>{MENU.format('a', ' | ')}</div>",
        f"<div>{MENU.format('a', ' &raquo; ')}</div>",
        f"<div>{MENU.format('a', '')}</div>",
        "<table><tr><td><a href=/a>Products</a><td><a href=/b>Imprint</a><td><a href=/c>Sitemap</a></table>",
        "<noscript>Products Imprint</noscript><svg><text>Sitemap</text></svg>",
    ],
)
def test_menus_and_frames_do_not_count(frame: str) -> None:
    found = of_page(f"<html lang=en><body>{frame}{STORY}{STORY}{frame}")
    assert found[0] == "tern"
    assert {"bird", "migrates"} <= set(found)
    assert not {"products", "imprint", "sitemap"} & set(found)


def test_a_heading_in_the_header_counts() -> None:
    found = of_page(f"<header><p>Imprint</p><h1>Terns and gulls</h1></header>{STORY}{STORY}")
    assert "gulls" in found
    assert "imprint" not in found


def test_a_form_around_the_whole_page_is_no_frame() -> None:
    assert of_page(f"<html lang=en><form>{STORY}</form>") == of_page(f"<html lang=en>{STORY}")


def test_links_in_sentences_and_named_places_count() -> None:
    assert "colonies" in of_page("<p>They live in <a href=/x>colonies</a>, by the sea.</p>")
    assert "colonies" in of_page("<p><a name=x>colonies</a></p>")


@pytest.mark.servers
@pytest.mark.parametrize(
    ("site", "page", "telling", "menu"),
    [
        (
            "sqlite3-doc",
            "wal.html",
            "wal checkpoint write logging database",
            "download purchase license menu",
        ),
        (
            "sqlite3-doc",
            "lang_createindex.html",
            "index create unique column",
            "download purchase support menu",
        ),
        (
            "sqlite3-doc",
            "json1.html",
            "json functions operators json_extract",
            "download purchase support menu",
        ),
        ("apache2-doc", "en/ssl/ssl_howto.html", "ssl certificate encryption cipher", "glossary sitemap faq"),
        (
            "apache2-doc",
            "de/bind.html",
            "adressen ports binden ipv6 listen",
            "glossar seitenindex direktiven faq",
        ),
        ("apache2-doc", "fr/howto/cgi.html", "cgi contenu dynamique serveur", "glossaire signaler plan faq"),
        ("apache2-doc", "tr/logs.html", "günlük dosyaları apache erişim", "terimler haritası yönergeler sss"),
        (
            "debian-handbook",
            "en-US/sect.apt-get.html",
            "apt packages aptitude upgrade",
            "prev download ebook",
        ),
        (
            "debian-handbook",
            "ja-JP/sect.backup.html",
            "バックアップ rsync サーバ 復元",
            "download ebook 戻 次",
        ),
        (
            "debian-handbook",
            "ru-RU/sect.backup.html",
            "резервное копирование rsync",
            "download ebook пред след",
        ),
    ],
)
def test_real_pages_are_known_by_their_keywords(site: str, page: str, telling: str, menu: str) -> None:
    found = of_page((real_site(site) / page).read_bytes())
    assert set(telling.split()) <= set(found)
    assert not set(menu.split()) & set(found)


@given(
    st.text(), st.lists(st.text(), max_size=3), st.text(), st.text(), st.sampled_from(["", "en", "de", "xx"])
)
def test_any_text_has_keywords(
    title: str, headings: list[str], description: str, text: str, language: str
) -> None:
    found = keywords_of(title, headings, description, text, language)
    assert len(found) == len(set(found)) <= MAX_KEYWORDS
    assert all(1 < len(word) <= 32 and word.strip("0123456789_") and word.split() == [word] for word in found)


def test_keywords_are_the_same_in_every_process() -> None:
    script = (
        "from sterna.web.keywords import stop_words, stopwords_of, keywords_of\n"
        "text = ' '.join(f'w{n % 61} bus buss busss la le les de der y e' for n in range(300))\n"
        "print(keywords_of('gull owl auk', ['terns tern'], 'auks gulls', text, ''))"
    )
    source = Path(sys.modules["sterna"].__path__[0]).parent
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(source)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1
