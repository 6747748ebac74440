"""Tests of a text, in time linear in its length: LIKE and case as DuckDB has them, RE2, whole words."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Literal

import re2

from sterna.errors import UsageError, one_line

Case = Literal["", "lower", "upper"]
TextTest = Callable[[str], bool]

MAX_PROGRAM = 5_000  # instructions of RE2: its possible work per byte of text


class Wild(Enum):
    """A wildcard of LIKE."""

    ONE = "_"
    MANY = "%"


LikeToken = str | Wild  # a string is one literal character

# Characters whose case is the same in every version of Unicode in use: Latin, Greek, Cyrillic, and scripts
# without case. The tests compare them with DuckDB, character by character.
_STABLE = (
    range(0x180), range(0x386, 0x3CF), range(0x400, 0x460), range(0x5D0, 0x5EB), range(0x600, 0x700),
    range(0x900, 0xE80), range(0x2010, 0x2050), range(0x3000, 0x3100), range(0x3400, 0xA000),
    range(0xAC00, 0xD7A4), range(0x1F300, 0x1F700),
)  # fmt: skip
# DuckDB maps these to one character, Python to two.
_ODD = {("\u0130", "lower"): "i", ("ß", "upper"): "\u1e9e"}
# Characters that map to a letter although that letter does not map back to them.
_ALSO_LOWER = {"i": "\u0130", "ß": "\u1e9e", "k": "\u212a", "å": "\u212b", "θ": "\u03f4", "ω": "\u2126"}
_ALSO_UPPER = {
    "I": "ı", "S": "ſ", "Β": "ϐ", "Ε": "ϵ", "Θ": "ϑ", "Ι": "\u0345\u1fbe", "Κ": "ϰ", "Μ": "µ", "Π": "ϖ",
    "Ρ": "ϱ", "Σ": "ς", "Φ": "ϕ", "В": "\u1c80", "Д": "\u1c81", "О": "\u1c82", "С": "\u1c83",
    "Т": "\u1c84\u1c85", "Ъ": "\u1c86",
}  # fmt: skip


def is_stable(text: str) -> bool:
    """True if every character of the text has the same case in Python as in DuckDB."""
    return all(any(ord(char) in block for block in _STABLE) for char in text)


def lowered(text: str) -> str:
    """The text in lower case as DuckDB does it: character by character, without context."""
    return "".join(_simple(char, "lower") for char in text)


def _simple(char: str, case: Case) -> str:
    changed = _ODD.get((char, case)) or (char.lower() if case == "lower" else char.upper())
    return changed if len(changed) == 1 else char


def _sources(char: str, case: Case) -> str:
    """The characters whose lower or upper case is this one."""
    if not case:
        return char
    also = _ALSO_LOWER if case == "lower" else _ALSO_UPPER
    near = dict.fromkeys((char, char.lower(), char.upper(), char.title(), *also.get(char, "")))
    return "".join(each for each in near if len(each) == 1 and _simple(each, case) == char)


def read_like(pattern: str, escape: str = "") -> list[LikeToken]:
    """The tokens of a LIKE pattern; UsageError if it ends within an escape."""
    tokens: list[LikeToken] = []
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            escaped = next(chars, None)
            if escaped is None:
                raise UsageError(f"the LIKE pattern {pattern!r} ends with its escape {escape!r}: double it")
            tokens.append(escaped)
        else:
            tokens.append(Wild(char) if char in "%_" else char)
    return tokens


def affixed(op: str, text: str) -> list[LikeToken]:
    """The tokens for texts that contain this one, begin or end with it, or (any other operator) are equal."""
    before = [Wild.MANY] if op in ("contains", "ends_with") else []
    after = [Wild.MANY] if op in ("contains", "starts_with") else []
    return [*before, *text, *after]


def like_test(tokens: Sequence[LikeToken], case: Case = "") -> TextTest:
    """A test for texts that match the tokens after conversion to this case."""
    if case or Wild.ONE in tokens:
        return _by_expression(tokens, case)
    pieces = [""]
    for token in tokens:
        if isinstance(token, Wild):
            pieces.append("")
        else:
            pieces[-1] += token
    return _by_pieces(pieces)


def _by_pieces(pieces: Sequence[str]) -> TextTest:
    first, *middle, last = pieces if len(pieces) > 1 else (pieces[0], pieces[0])
    middle = [piece for piece in middle if piece]
    if len(pieces) == 1:
        return lambda text: text == first
    if not first and not last and len(middle) == 1:
        return lambda text: middle[0] in text

    def test(text: str) -> bool:
        at, end = len(first), len(text) - len(last)
        if end < at or not text.startswith(first) or not text.endswith(last):
            return False
        for piece in middle:
            found = text.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True

    return test


def _by_expression(tokens: Sequence[LikeToken], case: Case) -> TextTest:
    parts = []
    for token in tokens:
        if isinstance(token, Wild):
            parts.append("." if token is Wild.ONE else ".*")
        else:
            codes = "".join(rf"\x{{{ord(char):x}}}" for char in _sources(token, case))
            # An empty class: no character converts to this one.
            parts.append(f"[{codes}]" if codes else r"[^\x{0}-\x{10ffff}]")
    start = "" if tokens and tokens[0] is Wild.MANY else r"\A"
    end = "" if tokens and tokens[-1] is Wild.MANY else r"\z"
    inner = "".join(parts[not start : len(parts) - (not end and len(parts) > (not start))])
    return search_test(f"(?s){start}{inner}{end}")


def search_test(expression: str, options: str = "", *, is_full: bool = False) -> TextTest:
    """A test for texts in which RE2 finds the expression; `options` are i and s, as in DuckDB."""
    found = compiled(expression, options)
    find = found.fullmatch if is_full else found.search
    return lambda text: find(utf8(text)) is not None


def compiled(expression: str, options: str = "", *, most: int = MAX_PROGRAM) -> Any:
    """The expression, compiled to search UTF-8; UsageError if it is invalid or too large."""
    wanted = re2.Options()  # google-re2 has no types
    wanted.log_errors = False  # it would write to stderr
    wanted.never_capture = True
    wanted.case_sensitive = "i" not in options
    wanted.dot_nl = "s" in options
    try:
        found = re2.compile(expression.encode(), wanted)
    except re2.error as error:
        said = error.args[0] if error.args else error
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise UsageError(one_line(f"{expression!r} is not a valid RE2 expression: {said}")) from error
    except UnicodeEncodeError as error:
        raise UsageError(f"{expression!r} contains half a surrogate pair, which no page contains") from error
    if found.programsize > most:
        raise UsageError(f"the expression {expression[:60]!r} is too large: shorten it or its repetitions")
    return found


def utf8(text: str) -> bytes:
    """The text as RE2 reads it and as the archive stores it: an unpaired surrogate is replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


# --- whole words

SEAM = "\0"  # separates texts that are searched together: no phrase matches across it
_FEW = 4  # words are searched one by one
MAX_WORDS = 500  # in one search: RE2 holds them all in its states
_MAX_WORDS_PROGRAM = 50_000  # alternatives cost little at run time, unlike repetitions

# Any character not listed is part of a word. RE2's own classes are more exact and forty times as large: with
# them a search for a few dozen words exceeds RE2's memory and takes a thousand times as long.
_BREAKS = (
    r"\x01-/:-@\[-\^`{-\x{a9}\x{ab}-\x{b4}\x{b6}-\x{b9}\x{bb}-\x{bf}\x{d7}\x{f7}\x{37e}\x{387}\x{589}\x{5be}"
    r"\x{60c}\x{61b}\x{61f}\x{6d4}\x{964}\x{965}\x{1361}-\x{1368}\x{2000}-\x{206f}\x{20a0}-\x{20cf}"
    r"\x{2190}-\x{2bff}\x{2e00}-\x{2e7f}\x{3000}-\x{3003}\x{3008}-\x{3020}\x{30fb}\x{fe10}-\x{fe1f}"
    r"\x{fe30}-\x{fe6f}\x{feff}\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff20}\x{1f000}-\x{1faff}"
)
_GAP = f"[{_BREAKS}]+"
_EDGE = rf"[\x00{_BREAKS}]"

# Scripts without spaces between words: word boundaries cannot be seen.
_UNSPACED = (
    range(0x0E00, 0x0F00), range(0x1000, 0x10A0), range(0x1780, 0x1800), range(0x3040, 0x3100),
    range(0x3400, 0xA000), range(0xF900, 0xFB00), range(0x20000, 0x32000),
)  # fmt: skip


def check_words(words: Sequence[str]) -> None:
    """Raises UsageError if a word is blank or there are too many."""
    for word in words:
        if not word.strip() or SEAM in word or not _is_encodable(word):
            raise UsageError(f"{word!r} is not a word: use letters or digits")
    if len(words) > MAX_WORDS:
        raise UsageError(f"{len(words)} words are too many for one search: use at most {MAX_WORDS}")


def _is_encodable(word: str) -> bool:
    """False for half a surrogate pair, which no page contains and RE2 does not take."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def any_test(words: Sequence[str]) -> TextTest:
    """A test for texts with at least one of the words; a phrase is several words separated by spaces."""
    search = _compiled_words(words).search
    if len(words) > _FEW or not all(word.isascii() and word.isalnum() for word in words):
        return lambda text: search(utf8(text)) is not None
    plain = [word.lower() for word in words]

    def test(text: str) -> bool:
        # Most texts contain none of them: for ASCII a substring search finds that out five times as fast.
        if text.isascii():
            small = text.lower()
            if not any(word in small for word in plain):
                return False
        return search(utf8(text)) is not None

    return test


def finder(words: Sequence[str]) -> Callable[[str], Sequence[int]]:
    """A search that returns the indexes of the words that a text contains."""
    has_any = _compiled_words(words).search
    each = [_compiled_words([word]) for word in words]
    options = re2.Options()
    options.log_errors = False
    whole = re2.Set.SearchSet(options)
    for word in words:
        whole.Add(_any_expression([word]))
    whole.Compile()

    def find(text: str) -> Sequence[int]:
        data = utf8(text)
        if not has_any(data):
            return ()
        # A set that runs out of memory reports no match.
        return whole.Match(data) or [place for place, one in enumerate(each) if one.search(data)]

    return find


def _compiled_words(words: Sequence[str]) -> Any:
    return compiled(_any_expression(words), most=_MAX_WORDS_PROGRAM)


def _any_expression(words: Sequence[str]) -> str:
    """An expression for any of the words, grouped by the boundaries that they need."""
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
