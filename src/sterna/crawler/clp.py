"""A scanner for CLIPS source, which runs nothing: nested forms with their lines, tokenised as in CLIPS."""

import re
from collections.abc import Iterator

from sterna.errors import RulesError
from sterna.model import Record, Source

MAX_SOURCE_BYTES = 1024 * 1024  # of all files together
MAX_TOKEN_CHARS = 64 * 1024
MAX_DEPTH = 100  # the parser of CLIPS recurses for every parenthesis

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f]+|;[^\r\n]*)
      | (?P<string>"(?:[^"\\]|\\.)*+")
      | (?P<open>\() | (?P<close>\))
      | (?P<symbol>[&|~]|<?[^ \t\r\n\f"();&|~<\x00-\x1f\x7f]+|<)
      | (?P<wrong>.)""",
    re.VERBOSE | re.DOTALL,
)
_UNREADABLE = re.compile("[\0\ud800-\udfff]")


class Token(Record, frozen=True):
    """A symbol, number, variable or operator, or a string with its quotes."""

    text: str
    line: int


class Form(Record, frozen=True):
    """A form in parentheses, and its position in the file."""

    parts: tuple["Token | Form", ...]
    line: int
    start: int
    end: int

    @property
    def head(self) -> str:
        """Its first word; empty if it has none."""
        return self.word(0)

    def word(self, place: int) -> str:
        """The text of the token in this place; empty if there is none."""
        part = self.parts[place] if place < len(self.parts) else None
        return part.text if isinstance(part, Token) else ""


class Construct(Record, frozen=True):
    """A top-level form: `(defrule name ...)`."""

    file: str
    kind: str
    name: str
    text: str
    form: Form

    def error(self, message: str, line: int = 0) -> RulesError:
        what = f"{self.kind} {self.name}".rstrip()
        return RulesError(f"{self.file}:{line or self.form.line}: {what}: {message}")


def read_constructs(sources: tuple[Source, ...]) -> list[Construct]:
    """The constructs of all files in order; RulesError names file and line of a syntax error."""
    size = sum(len(source.text.encode(errors="surrogatepass")) for source in sources)
    if size > MAX_SOURCE_BYTES:
        raise RulesError(f"the rules are too large: {size:,} bytes, the limit is {MAX_SOURCE_BYTES:,}")
    return [
        Construct(source.name, form.head, form.word(1), source.text[form.start : form.end], form)
        for source in sources
        for form in _forms(source)
    ]


def tokens(form: Form) -> Iterator[Token]:
    """All tokens of a form, including those of inner forms."""
    return (part for part in _walk(form) if isinstance(part, Token))


def forms(form: Form) -> Iterator[Form]:
    """The form and all forms inside it."""
    return (part for part in _walk(form) if isinstance(part, Form))


def _walk(form: Form) -> Iterator[Token | Form]:
    waiting: list[Token | Form] = [form]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, Form):
            waiting.extend(reversed(part.parts))


def _forms(source: Source) -> Iterator[Form]:
    if wrong := _UNREADABLE.search(source.text):
        line = source.text.count("\n", 0, wrong.start()) + 1
        raise _error(source, line, f"invalid character {wrong[0]!a}")
    waiting: list[tuple[list[Token | Form], int, int]] = []  # the open forms: parts, line and start of each
    line = 1
    for match in _TOKEN.finditer(source.text):
        kind, text = match.lastgroup, match[0]
        if kind == "open":
            waiting.append(([], line, match.start()))
            if len(waiting) > MAX_DEPTH:
                raise _error(source, line, f"parentheses nest more than {MAX_DEPTH} deep")
        elif kind == "close":
            if not waiting:
                raise _error(source, line, "')' without '('")
            parts, begun, start = waiting.pop()
            form = Form(tuple(parts), begun, start, match.end())
            if waiting:
                waiting[-1][0].append(form)
            else:
                yield form
        elif kind != "space":
            _check_token(source, line, kind, text, is_inside=bool(waiting))
            waiting[-1][0].append(Token(text, line))
        line += text.count("\n")
    if waiting:
        raise _error(source, waiting[0][1], "'(' without ')'")


def _check_token(source: Source, line: int, kind: str | None, text: str, *, is_inside: bool) -> None:
    if kind == "wrong":
        what = "unterminated string" if text == '"' else f"invalid character {text!a}"
        raise _error(source, line, what)
    if len(text) > MAX_TOKEN_CHARS:
        raise _error(source, line, f"a word or string is longer than {MAX_TOKEN_CHARS:,} characters")
    if not is_inside:
        raise _error(source, line, f"{text[:40]!r} is outside all constructs, such as (defrule ...)")


def _error(source: Source, line: int, message: str) -> RulesError:
    return RulesError(f"{source.name}:{line}: {message}")
