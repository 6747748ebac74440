"""Reads test cases out of the source of a test in C++ or Java: its strings, its variables, its assertions."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|(?P<text>\"(?:\\.|[^\"\\\n])*\")|(?P<other>[A-Za-z_][\w:]*|\d+L?|[^\s\w\"])",
    re.DOTALL,
)
Call = Callable[[list[object]], object]


class Source:
    """The tokens of a source file, and a place among them; a value that cannot be told is None."""

    def __init__(self, text: str, *, calls: Mapping[str, Call], constants: Mapping[str, object]) -> None:
        found = _TOKEN.finditer(text)
        self.tokens = [each["text"] or each["other"] for each in found if each.lastgroup]
        self.at = 0
        self._calls = calls
        self._constants = constants
        self.values: dict[str, object] = dict(constants)

    def forget(self) -> None:
        """Forgets the variables: another test begins."""
        self.values = dict(self._constants)

    def __iter__(self) -> Iterator[str]:
        """The tokens one by one; whoever reads on moves the place."""
        while self.at < len(self.tokens):
            self.at += 1
            yield self.tokens[self.at - 1]

    def next_is(self, *words: str) -> bool:
        """Whether these tokens follow; if so, passes over them."""
        if tuple(self.tokens[self.at : self.at + len(words)]) != words:
            return False
        self.at += len(words)
        return True

    def note(self, name: str) -> None:
        """Notes the value of an assignment, of which `=` was read."""
        self.values[name] = self.value()

    def arguments(self) -> list[object]:
        """The values between the parenthesis that was read and its end."""
        found: list[object] = []
        while not self.next_is(")"):
            found.append(self.value())
            if not self.next_is(",") and self.tokens[self.at] != ")":
                raise ValueError(f"a call that nobody understands, near {self.tokens[self.at]!r}")
        return found

    def value(self) -> object:
        """The value of the expression up to the next comma, semicolon or closing bracket."""
        parts: list[object] = []
        is_known = True
        while self.at < len(self.tokens) and self.tokens[self.at] not in {",", ";", ")", "}", "]"}:
            token = self.tokens[self.at]
            self.at += 1
            if token.startswith('"'):
                parts.append(ast.literal_eval(token))
            elif token in {"+", "final", "new", "&"}:
                continue
            elif token == ".":  # a method, such as getBytes(): the text stays
                self.at += 1
                if self.next_is("("):
                    self.arguments()
            elif token in {"(", "{", "["}:
                self._skip()
                is_known = False
            elif self.next_is("("):
                arguments = self.arguments()
                call = self._calls.get(token)
                parts.append(call(arguments) if call else None)
            elif token.rstrip("L").isdigit():
                parts.append(int(token.rstrip("L")))
            else:
                parts.append(self.values.get(token))
        if not is_known or not parts or any(part is None for part in parts):
            return None
        if len(parts) == 1:
            return parts[0]
        return "".join(parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]

    def _skip(self) -> None:
        depth = 1
        while depth and self.at < len(self.tokens):
            depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(self.tokens[self.at], 0)
            self.at += 1


def joined(arguments: list[object]) -> object:
    """What StrCat gives."""
    texts = [each for each in arguments if isinstance(each, str)]
    return "".join(texts) if len(texts) == len(arguments) else None


def first(arguments: list[object]) -> object:
    return arguments[0] if arguments else None
