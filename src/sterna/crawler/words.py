"""Whole words in a text, whatever their case; all of them in one pass."""

from collections.abc import Callable, Sequence
from typing import Any

import re2

from sterna.crawler.like import TextTest, compiled, utf8
from sterna.errors import UsageError

SEAM = "\0"  # between two texts that are searched together: no phrase reaches across it
_FEW = 4  # words that are looked for one after the other
MAX_WORDS = 500  # in one search: RE2 has to hold them all in its states
_MAX_PROGRAM = 50_000  # words side by side are no work, as repetitions are

# Whatever is not listed is a part of words. RE2's own classes would say it better, at forty times the size: a
# search for a few dozen words would no longer fit into its memory, and would take a thousand times as long.
_BREAKS = (
    r"\x01-/:-@\[-\^`{-\x{a9}\x{ab}-\x{b4}\x{b6}-\x{b9}\x{bb}-\x{bf}\x{d7}\x{f7}\x{37e}\x{387}\x{589}\x{5be}"
    r"\x{60c}\x{61b}\x{61f}\x{6d4}\x{964}\x{965}\x{1361}-\x{1368}\x{2000}-\x{206f}\x{20a0}-\x{20cf}"
    r"\x{2190}-\x{2bff}\x{2e00}-\x{2e7f}\x{3000}-\x{3003}\x{3008}-\x{3020}\x{30fb}\x{fe10}-\x{fe1f}"
    r"\x{fe30}-\x{fe6f}\x{feff}\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff20}\x{1f000}-\x{1faff}"
)
_GAP = f"[{_BREAKS}]+"
_EDGE = rf"[\x00{_BREAKS}]"

# Scripts that write words without spaces: nothing shows where a word of theirs begins or ends.
_UNSPACED = (
    range(0x0E00, 0x0F00),
    range(0x1000, 0x10A0),
    range(0x1780, 0x1800),
    range(0x3040, 0x3100),
    range(0x3400, 0xA000),
    range(0xF900, 0xFB00),
    range(0x20000, 0x32000),
)


def check_words(words: Sequence[str]) -> None:
    """UsageError unless there is something to look for, and not too much."""
    for word in words:
        if not word.strip() or SEAM in word:
            raise UsageError(f"{word!r} is not a word to look for: write one with letters or digits")
    if len(words) > MAX_WORDS:
        raise UsageError(f"{len(words)} words are too many to look for at once: take {MAX_WORDS} at most")


def any_test(words: Sequence[str]) -> TextTest:
    """True for texts that hold at least one of the words; a phrase is words with spaces between them."""
    search = _compiled(words).search
    if len(words) > _FEW or not all(word.isascii() and word.isalnum() for word in words):
        return lambda text: search(utf8(text)) is not None
    plain = [word.lower() for word in words]

    def test(text: str) -> bool:
        # Most texts hold none of them: in ASCII a look for the mere letters tells, five times as fast.
        if text.isascii():
            lowered = text.lower()
            if not any(word in lowered for word in plain):
                return False
        return search(utf8(text)) is not None

    return test


def finder(words: Sequence[str]) -> Callable[[str], Sequence[int]]:
    """Gives the places, in the list of words, of those that a text holds."""
    has_any = _compiled(words).search
    each = [_compiled([word]) for word in words]
    find_all = _set_of(words).Match

    def find(text: str) -> Sequence[int]:
        data = utf8(text)
        if not has_any(data):
            return ()
        # A set that runs out of memory says that it found nothing.
        return find_all(data) or [place for place, one in enumerate(each) if one.search(data)]

    return find


def _compiled(words: Sequence[str]) -> Any:
    return compiled(_any_expression(words), most=_MAX_PROGRAM)


def _set_of(words: Sequence[str]) -> re2.Set:
    options = re2.Options()
    options.log_errors = False
    found = re2.Set.SearchSet(options)
    for word in words:
        found.Add(_any_expression([word]))
    found.Compile()
    return found


def _any_expression(words: Sequence[str]) -> str:
    """The words, those with the same needs at their edges together."""
    by_edges: dict[tuple[str, str], list[str]] = {}
    for word in words:
        parts = word.split()
        start = rf"(?:\A|{_EDGE})" if _has_edge(parts[0][0]) else ""
        end = rf"(?:\z|{_EDGE})" if _has_edge(parts[-1][-1]) else ""
        by_edges.setdefault((start, end), []).append(_GAP.join(map(re2.escape, parts)))
    return "(?i)" + "|".join(
        f"{start}(?:{'|'.join(written)}){end}" for (start, end), written in by_edges.items()
    )


def _has_edge(char: str) -> bool:
    is_letter = char.isalnum() or char == "_"
    return is_letter and not any(ord(char) in block for block in _UNSPACED)
