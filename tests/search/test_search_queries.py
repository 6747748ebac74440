"""What somebody types: every text is understood somehow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.search.queries import MAX_CHARS, MAX_TERMS, ParsedQuery, Term, host_named, parse


@pytest.mark.parametrize(
    ("words", "terms"),
    [
        ("", ()),
        ("  \t\n ", ()),
        ("two words", (Term("two"), Term("words"))),
        ("same same", (Term("same"),)),
        ('"a phrase" word', (Term("a phrase", is_phrase=True), Term("word"))),
        ('"without end', (Term("without end", is_phrase=True),)),
        ('one"two three"four', (Term("one"), Term("two three", is_phrase=True), Term("four"))),
        ("-not this", (Term("not", is_excluded=True), Term("this"))),
        ('-"not this"', (Term("not this", is_phrase=True, is_excluded=True),)),
        ("title:word TITLE:Other", (Term("word", "title"), Term("Other", "title"))),
        ('-title:"a b"', (Term("a b", "title", is_phrase=True, is_excluded=True),)),
        ("url:doc", (Term("doc", "url"),)),
        ("well-known", (Term("well-known"),)),
        ("other:word", (Term("other:word"),)),
        ("title: word", (Term("title:"), Term("word"))),
        ('""', ()),
        ("---", (Term("--", is_excluded=True),)),
        ("((a AND b) OR *", (Term("((a"), Term("AND"), Term("b)"), Term("OR"), Term("*"))),
        ("/re[gex]+/", (Term("/re[gex]+/"),)),
        ("cafe\u0301", (Term("café"),)),
    ],
)
def test_words_are_read(words: str, terms: tuple[Term, ...]) -> None:
    assert parse(words).terms == terms


def test_sites_are_wanted_or_not() -> None:
    asked = parse("word site:Example.org -site:old.example.org site:https://www.example.org:8443/path?x")
    assert asked == ParsedQuery(
        terms=(Term("word"),),
        sites=("example.org", "https://www.example.org:8443"),
        excluded_sites=("old.example.org",),
    )


@pytest.mark.parametrize(
    ("said", "host"),
    [
        ("example.org.", "example.org"),
        ("example.org/doc/", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("[::1]:80", "[::1]:80"),
        ("/", ""),
        ("\u2028", ""),
    ],
)
def test_a_site_is_named_by_its_host(said: str, host: str) -> None:
    assert host_named(said) == host


def test_too_much_is_cut_and_said() -> None:
    long = parse("x" * 100_000)
    assert [len(term.text) for term in long.terms] == [MAX_CHARS]
    assert long.notes == (f"only the first {MAX_CHARS:,} characters were read",)
    many = parse(" ".join(f"w{number}" for number in range(100)))
    assert len(many.terms) == MAX_TERMS
    assert many.notes == (f"only the first {MAX_TERMS} words were searched",)


@given(st.text(st.characters(), max_size=300))
def test_any_text_is_read(words: str) -> None:
    asked = parse(words)
    assert len(asked.terms) <= MAX_TERMS
    for term in asked.terms:
        assert term.text.strip()
        term.text.encode()  # no lone surrogate is left
