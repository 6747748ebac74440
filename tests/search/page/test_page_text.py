"""Text from the web is shown in one bounded line, readable, and without hidden turns."""

import unicodedata

import pytest
from tests.search.page.hostile_hits import LINKS, NO_LINKS, TEXTS

from sterna.search.page.text import cut, cut_pieces, host_of, is_web, language_name, path_shown, plain, tag_of
from sterna.search.results import Piece

_TURNS = set(
    "\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\u00ad"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("  two\n\tlines \r\n here ", "two lines here"),
        ("no\u00a0break", "no break"),
        ("a\x00b\x1b[31mc", "a b [31mc"),
        ("\u202egpj.exe", "gpj.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("soft\u00adhyphen", "softhyphen"),
        ("half \ud800 letter", "half \ufffd letter"),
        ("private \ue000 and unassigned \U0010ffff", "private \ufffd and unassigned \ufffd"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("x" + "\u200d" * 9 + "y", "x\u200dy"),
        ("\u200d\u200dy", "y"),
        ("Zürich", "Zürich"),
        ("हिन्दी ไทย עִבְרִית 日本語", "हिन्दी ไทย עִבְרִית 日本語"),
        ("", ""),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_marks_are_not_stacked_over_the_lines_above() -> None:
    shown = plain("a" + "\u0336" * 50 + "b")
    assert shown == "a" + "\u0336" * 4 + "b"


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_nothing_hidden_is_left(number: int) -> None:
    shown = plain(TEXTS[number])
    assert not _TURNS & set(shown)
    assert "\n" not in shown
    assert shown.encode().decode() == shown


def test_a_megabyte_is_not_looked_at() -> None:
    assert len(plain("é" * 1_000_000)) == 20_000


def test_cut_says_that_there_is_more() -> None:
    assert cut("short", 5) == "short"
    assert cut("longer", 5) == "long…"
    assert cut("two words", 5) == "two…"


def test_pieces_are_cut_together_and_keep_their_spaces_and_marks() -> None:
    pieces = (Piece("the "), Piece("arctic", is_marked=True), Piece(" tern\nflies"), Piece(" far"))
    assert [piece.text for piece in cut_pieces(pieces, 100)] == ["the ", "arctic", " tern flies", " far"]
    kept = cut_pieces(pieces, 13)
    assert "".join(piece.text for piece in kept) == "the arctic t…"
    assert [piece.is_marked for piece in kept] == [False, True, False]


@pytest.mark.parametrize("url", NO_LINKS)
def test_only_pages_of_the_web_become_links(url: str) -> None:
    assert not is_web(url)


@pytest.mark.parametrize("number", range(len(LINKS)))
def test_pages_of_the_web_do(number: int) -> None:
    assert is_web(LINKS[number])


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("https://www.example.org/a/b.html?c=1", "www.example.org", "/a/b.html?c=1"),
        ("http://127.0.0.1:8737", "127.0.0.1:8737", ""),
        ("http://[::1]:80/x", "[::1]:80", "/x"),
        ("http://user:secret@site.test/", "site.test", "/"),
        ("https://xn--mnchen-3ya.test/M%C3%BCnchen", "xn--mnchen-3ya.test", "/München"),
        ("http://site.test/%E2%80%AEgpj.exe", "site.test", "/%E2%80%AEgpj.exe"),
        ("http://site.test/%FF%20%3Cb%3E", "site.test", "/%FF%20%3Cb%3E"),
    ],
)
def test_addresses_can_be_read_and_do_not_lie(url: str, host: str, path: str) -> None:
    assert (host_of(url), path_shown(url)) == (host, path)


@pytest.mark.parametrize(
    ("language", "tag", "name"),
    [
        ("en", "en", "English"),
        ("de-AT", "de-AT", "German"),
        ("tlh", "tlh", "tlh"),
        ("", "", ""),
        ('en" onclick="x', "", ""),
        ("english", "", ""),
    ],
)
def test_languages(language: str, tag: str, name: str) -> None:
    assert (tag_of(language), language_name(language)) == (tag, name)


def test_shortcut_for_simple_text_changes_nothing() -> None:
    slow = "\u0430\u0301"  # takes the long way
    for code in (*range(0x20, 0x3100), *range(0x9F00, 0xA100)):
        char = chr(code)
        if unicodedata.category(char) not in ("Mn", "Me", "Mc"):
            short = unicodedata.normalize("NFC", plain(f"a{char}b"))
            assert plain(f"a{char}b {slow}") == f"{short} {slow}", hex(code)
