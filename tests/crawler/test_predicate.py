"""Predicates that only a spec makes, and those of strangers: judged, refused, in words, and in time."""

import time

import msgspec
import pytest
from tests import making

from sterna.crawler.grammar import COLUMNS, MAX_DEPTH, PageRow, check, describe
from sterna.crawler.predicate import Judge, row_of
from sterna.errors import UsageError
from sterna.model import Predicate

# --- what only a spec makes

CLINIC = PageRow(
    title="The Clinic",
    description="Health-care for all",
    headings=("Opening hours",),
    text="Nurses and doctors. Ärzte.",
)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Predicate("words_any", values=("clinic",)), True),
        (Predicate("words_any", values=("CLINIC", "nothing")), True),
        (Predicate("words_any", values=("clin", "inic", "nurse")), False),
        (Predicate("words_any", values=("ärzte",)), True),
        (Predicate("words_any", "title", ("nurses",)), False),
        (Predicate("words_any", "headings", ("hours",)), True),
        (Predicate("words_all", values=("clinic", "nurses", "hours", "clinic")), True),
        (Predicate("words_all", values=("clinic", "patients")), False),
        (Predicate("phrase", values=("health care",)), True),
        (Predicate("phrase", values=("nurses and",)), True),
        (
            Predicate("phrase", values=("clinic health",)),
            False,
        ),  # one is in the title, one in the description
        (Predicate("score", values=(2.5, "clinic", 1.5, "doctors", 1.0)), True),
        (Predicate("score", values=(2.5, "clinic", 1.5, "patients", 1.0)), False),
        (Predicate("score", values=(1, "clinic", 1.5, "nurses", -1.0)), False),
        (Predicate("regexp", values=("^Opening",)), True),
        (Predicate("regexp", values=("^hours",)), False),
    ],
)
def test_words_are_whole_and_of_any_case(predicate: Predicate, expected: bool) -> None:
    assert Judge(predicate).judge(CLINIC) is expected
    assert Judge(predicate).judge(PageRow()) is False


@pytest.mark.parametrize(
    ("word", "text", "expected"),
    [
        ("诊所", "这是一个诊所网站", True),  # written without spaces
        ("клиника", "Наша Клиника, Москва", True),
        ("cafe", "cafe\u0301", False),  # the accent belongs to the word
        ("c++", "Learn C++ now", True),
        ("c", "C++", True),
        ("it", "item", False),
        ("it", "“It”—", True),
        ("snake", "snake_case", False),
        ("a.b", "axb", False),
    ],
)
def test_words_end_where_their_script_lets_them(word: str, text: str, expected: bool) -> None:
    assert Judge(Predicate("words_any", values=(word,))).judge(PageRow(text=text)) is expected


@pytest.mark.parametrize(
    ("predicate", "row", "expected"),
    [
        (Predicate("language_in", "language", ("en",)), PageRow(language="en-GB"), True),
        (Predicate("language_in", "language", ("EN",)), PageRow(language="en"), True),
        (Predicate("language_in", "language", ("en-gb",)), PageRow(language="en"), False),
        (Predicate("language_in", "language", ("e",)), PageRow(language="en"), False),
        (Predicate("language_in", "language", ("en",)), PageRow(), None),
        (Predicate("type_in", "content_type", ("text/*",)), PageRow(content_type="text/html"), True),
        (Predicate("type_in", "content_type", ("text/html",)), PageRow(content_type="text/plain"), False),
        (
            Predicate("type_in", "content_type", ("image/*", "text/html")),
            PageRow(content_type="text/html"),
            True,
        ),
        (Predicate("type_in", "content_type", ("text/*",)), PageRow(), None),
    ],
)
def test_languages_and_types_have_their_own_order(
    predicate: Predicate, row: PageRow, expected: bool | None
) -> None:
    assert Judge(predicate).judge(row) is expected


def test_empty_is_null_as_in_the_archive() -> None:
    page = making.page("https://a.org/", status=0)
    row = row_of(page, "https://a.org")
    for name, kind in COLUMNS.items():
        expected = name not in ("url", "site", "depth", "size")
        assert Judge(Predicate("is_null", name)).judge(row) is expected, (name, kind)


def test_row_of_a_page_has_its_digest_in_letters() -> None:
    page = making.page("https://a.org/", digest=b"\x0a\xff")
    row = row_of(page, "https://a.org")
    assert Judge(Predicate("=", "digest", ("0aff",))).judge(row) is True
    assert Judge(Predicate("=", "status", (200,))).judge(row) is True


# --- what comes from strangers


def nested(levels: int) -> Predicate:
    part = Predicate("true")
    for _ in range(levels):
        part = Predicate("not", parts=(part,))
    return part


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        (Predicate("explode"), "unknown operator 'explode'"),
        (Predicate("=", "colour", ("red",)), "no column 'colour'"),
        (Predicate("=", "status", ("200",)), "'200', which is not a 64-bit whole number"),
        (Predicate("=", "status", (True,)), "True, which is not a 64-bit whole number"),
        (Predicate("=", "status", (2**63,)), "is not a 64-bit whole number"),
        (Predicate("=", "title", (5,)), "5, which is not a text"),
        (Predicate("<", "lower(title)", ("a",)), "< does not apply to lower(title)"),
        (Predicate("like", "status", ("2%",)), "like does not apply to status"),
        (Predicate("like", "title", ("a!", "!")), "ends with its escape"),
        (Predicate("like", "title", ("a", "!!")), "not a single character"),
        (Predicate("like", "title", (None,)), "None, which is not a text"),
        (Predicate("regexp", "title", ("(",)), "not a valid RE2 expression: missing )"),
        (Predicate("regexp", "title", ("(a{900}){900}",)), "invalid repetition size"),
        (Predicate("regexp", "title", (".{900}",)), "too large"),
        (Predicate("regexp", "title", ("a", "x")), "only i and s exist"),
        (Predicate("like", "title", ("a" * 3000,)), "longer than 2000 characters"),
        (Predicate("in", "status"), "in takes 1 to 10000 values, not 0"),
        (Predicate("and"), "and takes 1 to 1000 conditions, not 0"),
        (Predicate("=", "title", ("a",), (Predicate("true"),)), "= takes 0 conditions, not 1"),
        (Predicate("true", "title"), "true takes no column"),
        (Predicate("words_any", values=(" ",)), "is not a word"),
        (Predicate("words_any", values=("\ud800",)), "is not a word"),
        (Predicate("words_any", values=tuple(map(str, range(501)))), "501 words are too many"),
        (Predicate("score", values=(1.0, "a", "b")), "numbers for its weights, not 'b'"),
        (Predicate("score", values=(1.0, "a", float("nan"))), "not nan"),
        (Predicate("score", values=(1.0, "a", 1.0, "b")), "a weight after each"),
        (nested(MAX_DEPTH), "levels deep"),
        (nested(20_000), "levels deep"),
        (Predicate("and", parts=(Predicate("true"),) * 1_000), "too large"),
        (Predicate("in", "title", ("a" * 30,) * 9_000), "too large"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(predicate: Predicate, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(predicate)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_predicate_travels() -> None:
    predicate = Predicate(
        "and", parts=(Predicate("=", "status", (200,)), Predicate("score", values=(1.5, "a", 2)))
    )
    there = msgspec.msgpack.decode(msgspec.msgpack.encode(predicate), type=Predicate)
    assert there == predicate
    check(there)


@pytest.mark.parametrize(
    "predicate",
    [
        Predicate("like", "text", ("%a" * 500 + "%b",)),
        Predicate("like", "text", ("%" + "a_" * 100 + "b",)),
        Predicate("like", "lower(text)", ("%" + "a%" * 300 + "b",)),
        Predicate("regexp", "text", ("(a+)+$b",)),
        Predicate("regexp", "text", ("(a|aa)+b",)),
        Predicate("words_any", values=("a" * 50, "b")),
        Predicate("words_all", values=tuple("a" * length for length in range(1, 100))),
    ],
)
def test_no_pattern_takes_long(predicate: Predicate) -> None:
    judge = Judge(predicate)
    row = PageRow(text="a" * 26_000)
    began = time.process_time()
    judge.judge(row)
    assert time.process_time() - began < 2.0


def test_words_for_a_predicate_are_plain() -> None:
    parts = (
        Predicate("=", "status", (200,)),
        Predicate(
            "or", parts=(Predicate("contains", "text", ("clinic",)), Predicate("<", "length(title)", (9,)))
        ),
        Predicate("score", values=(2.0, "care", 1.5)),
    )
    assert describe(Predicate("and", parts=parts)) == (
        'its status is 200 and (its text contains "clinic" or the length of its title is less than 9)'
        ' and the page scores at least 2 by its words "care" (1.5)'
    )
