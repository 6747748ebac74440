"""Text and addresses from the web, made fit to be shown: one line, bounded, without hidden turns."""

import re
from collections.abc import Iterable, Iterator, Sequence
from unicodedata import category, normalize
from urllib.parse import quote

from sterna.search.results import Piece
from sterna.web.urls import path_of, site_of

# Needed to write Persian, Hindi and many emoji; one at a time.
_JOINERS = "\u200c\u200d"
_MARKS = ("Mn", "Me")
_MAX_MARKS = 4  # on one letter; more of them climb over the lines above
_GONE = ("Cf",)  # turns, overrides and what has no width
_UNKNOWN = ("Cs", "Co", "Cn")
_MAX_READ = 20_000  # letters of a text that are looked at
# What no mark can stand in: the alphabets of Europe as they are composed, punctuation, Chinese and Japanese.
_UNMARKED = re.compile(
    r"[\x20-\u02ff\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2100-\u2bff\u3001-\u3020\u30a0-\u9fff]*"
)
# Letters of other alphabets; what is ASCII stays escaped, for there it means something.
_ESCAPED = re.compile(r"(?:%[89A-Fa-f][0-9A-Fa-f])+")
_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_WEB = ("http://", "https://")
ELLIPSIS = "…"


def plain(text: str) -> str:
    """The text in one line, without what would turn, hide, stack or break it."""
    text = text[:_MAX_READ]
    if _UNMARKED.fullmatch(text) and text.isprintable():
        return " ".join(text.split())
    return " ".join("".join(_shown(normalize("NFC", text))).split())


def _shown(text: str) -> Iterator[str]:
    marks, before = 0, ""
    for char in text:
        kind = category(char)
        marks = marks + 1 if kind in _MARKS else 0
        if char in _JOINERS:
            if before not in _JOINERS:  # an empty string is in every string: none at the beginning
                yield char
                before = char
        elif kind in ("Cc", "Zl", "Zp", "Zs"):
            yield " "
            before = " "
        elif kind not in _GONE and marks <= _MAX_MARKS:
            before = "\ufffd" if kind in _UNKNOWN else char
            yield before


def cut(text: str, most: int) -> str:
    """The text with so many letters at most, the last of which tells that it goes on."""
    return text if len(text) <= most else text[: most - 1].rstrip() + ELLIPSIS


def cut_pieces(pieces: Iterable[Piece], most: int) -> Sequence[Piece]:
    """The pieces, plain, with so many letters together at most; spaces between them stay."""
    kept: list[Piece] = []
    left = most
    for piece in pieces:
        if left <= 0:
            break
        text = _spaced(piece.text)
        kept.append(Piece(cut(text, left), piece.is_marked))
        left -= len(text)
    return kept


def _spaced(text: str) -> str:
    """Plain, with a space at an end where there was one."""
    shown = plain(text)
    if not shown:
        return " " if text[:1].isspace() else ""
    return f"{' ' if text[:1].isspace() else ''}{shown}{' ' if text[-1:].isspace() else ''}"


def is_web(url: str) -> bool:
    """Whether a link may lead there."""
    return url.startswith(_WEB) and len(url) > len(_WEB[1])


def href_of(url: str) -> str:
    """The address as a link has it: whatever is not ASCII is escaped, and can turn or hide nothing."""
    return quote(url, safe=_ASCII, errors="replace")


def host_of(url: str) -> str:
    """Host and port as they are shown; internationalised names stay as they are looked up."""
    return plain(site_of(url).partition("://")[2].rpartition("@")[2])


def path_shown(url: str) -> str:
    """Path and query to be read by people: letters of other alphabets are written as such."""
    return plain(_ESCAPED.sub(_unescaped, path_of(url)))


def _unescaped(match: re.Match[str]) -> str:
    try:
        text = bytes.fromhex(match[0].replace("%", "")).decode()
    except UnicodeDecodeError:
        return match[0]
    return text if text.isprintable() else match[0]
