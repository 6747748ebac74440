"""Tests of a text as DuckDB has them, in time linear in it: LIKE, equality in another case, RE2."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Literal

import re2

from sterna.errors import UsageError

Case = Literal["", "lower", "upper"]
TextTest = Callable[[str], bool]

MAX_PROGRAM = 5_000  # instructions of RE2: what it may have to do for a byte of the text


class Wild(Enum):
    """What in a pattern stands for other characters."""

    ONE = "_"
    MANY = "%"


Token = str | Wild  # a string is one character that stands for itself

# Characters whose case is the same in every version of Unicode that anybody still has: those of Latin, Greek
# and Cyrillic, and scripts without case. The tests hold this against DuckDB, character by character.
_STABLE = (
    range(0x180),
    range(0x386, 0x3CF),
    range(0x400, 0x460),
    range(0x5D0, 0x5EB),
    range(0x600, 0x700),
    range(0x900, 0xE80),
    range(0x2010, 0x2050),
    range(0x3000, 0x3100),
    range(0x3400, 0xA000),
    range(0xAC00, 0xD7A4),
    range(0x1F300, 0x1F700),
)
# Where DuckDB has one character for one, and Python two.
_ODD = {("\u0130", "lower"): "i", ("ß", "upper"): "\u1e9e"}
# What becomes another letter's small or capital form without being its capital or small one.
_ALSO_LOWER = {"i": "\u0130", "ß": "\u1e9e", "k": "\u212a", "å": "\u212b", "θ": "\u03f4", "ω": "\u2126"}
_ALSO_UPPER = {
    "I": "ı",
    "S": "ſ",
    "Β": "ϐ",
    "Ε": "ϵ",
    "Θ": "ϑ",
    "Ι": "\u0345\u1fbe",
    "Κ": "ϰ",
    "Μ": "µ",
    "Π": "ϖ",
    "Ρ": "ϱ",
    "Σ": "ς",
    "Φ": "ϕ",
    "В": "\u1c80",
    "Д": "\u1c81",
    "О": "\u1c82",
    "С": "\u1c83",
    "Т": "\u1c84\u1c85",
    "Ъ": "\u1c86",
}


def is_stable(text: str) -> bool:
    """True if every character of the text has the same case here as in DuckDB."""
    return all(any(ord(char) in block for block in _STABLE) for char in text)


def lowered(text: str) -> str:
    """The text in small letters as DuckDB has it: one character for one, whatever stands beside it."""
    return "".join(_simple(char, "lower") for char in text)


def _simple(char: str, case: Case) -> str:
    changed = _ODD.get((char, case)) or (char.lower() if case == "lower" else char.upper())
    return changed if len(changed) == 1 else char


def _sources(char: str, case: Case) -> str:
    """The characters that this one is the small or capital form of."""
    if not case:
        return char
    also = _ALSO_LOWER if case == "lower" else _ALSO_UPPER
    near = dict.fromkeys((char, char.lower(), char.upper(), char.title(), *also.get(char, "")))
    return "".join(each for each in near if len(each) == 1 and _simple(each, case) == char)


def read_like(pattern: str, escape: str = "") -> list[Token]:
    """The pattern of a LIKE, read; UsageError if it ends within an escape."""
    tokens: list[Token] = []
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


def like_test(tokens: Sequence[Token], case: Case = "") -> TextTest:
    """True for texts that, put into this case, are as the tokens say."""
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


def _by_expression(tokens: Sequence[Token], case: Case) -> TextTest:
    parts = [_expression_of(token, case) for token in tokens]
    start = "" if tokens and tokens[0] is Wild.MANY else r"\A"
    end = "" if tokens and tokens[-1] is Wild.MANY else r"\z"
    inner = "".join(parts[not start : len(parts) - (not end and len(parts) > (not start))])
    return search_test(f"(?s){start}{inner}{end}")


def _expression_of(token: Token, case: Case) -> str:
    if isinstance(token, Wild):
        return "." if token is Wild.ONE else ".*"
    sources = _sources(token, case)
    # A class that nothing is in: no text becomes one that holds this character.
    return f"[{''.join(map(_code, sources))}]" if sources else r"[^\x{0}-\x{10ffff}]"


def _code(char: str) -> str:
    return rf"\x{{{ord(char):x}}}"


def search_test(expression: str, options: str = "", *, is_full: bool = False) -> TextTest:
    """True for texts in which RE2 finds the expression; `options` may be i and s, as in DuckDB."""
    found = compiled(expression, options)
    find = found.fullmatch if is_full else found.search
    return lambda text: find(utf8(text)) is not None


def compiled(expression: str, options: str = "", *, most: int = MAX_PROGRAM) -> Any:
    """The expression, to be searched for in UTF-8; UsageError if it is none, or too large."""
    wanted = re2.Options()  # google-re2 has no types
    wanted.log_errors = False  # it would write to stderr
    wanted.never_capture = True
    wanted.case_sensitive = "i" not in options
    wanted.dot_nl = "s" in options
    try:
        found = re2.compile(expression.encode(), wanted)
    except re2.error as error:
        raise UsageError(f"{expression!r} is not a regular expression of RE2: {_told(error)}") from error
    except UnicodeEncodeError as error:
        raise UsageError(f"{expression!r} holds half a character, which no page can hold") from error
    if found.programsize > most:
        raise UsageError(f"the expression {expression[:60]!r} is too large: shorten it or its repetitions")
    return found


def utf8(text: str) -> bytes:
    """The text as RE2 reads it, and as it would be stored: half a character becomes a replacement."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _told(error: Exception) -> str:
    said = error.args[0] if error.args else error
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
