"""robots.txt: the cases of Google (robots_test.cc) and crawler-commons (SimpleRobotRulesParserTest.java)."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.sources import Source, first, joined
from tests.conformance.suites import Case, first_of

from sterna.web.robots import Rules
from sterna.web.urls import site_of


def may(body: str | bytes, agent: str, url: str) -> bool:
    raw = body if isinstance(body, bytes) else body.encode()
    return Rules.parse(raw, agent, site=site_of(url)).may_fetch(url)


_AGENT_LINE = re.compile(rb"(?im)^[ \t]*user?g?-?[ ]?agent[^\r\n]*")
_LETTERS = bytes.maketrans(b"0123456789", b"zyxwvutsrq")


def without_digits(body: str | bytes, agent: str) -> tuple[bytes, str]:
    """The same with letters for digits in names of agents: RFC 9309 ends names at digits."""
    raw = body if isinstance(body, bytes) else body.encode()
    spelt = _AGENT_LINE.sub(lambda line: line[0].translate(_LETTERS), raw)
    return spelt, agent.encode().translate(_LETTERS).decode()


def google(folder: Path) -> Iterator[Case]:
    """Every IsUserAgentAllowed(); lines that a loop makes too long are made here."""
    text = first_of(folder / "robotstxt" / "robots_test.cc").read_text()
    source = Source(text, calls={"absl::StrCat": joined, "std::string": first}, constants={})
    test, number = "", 0
    for token in source:
        if token == "TEST" and source.next_is("("):
            source.at += 2
            test, number = source.tokens[source.at], 0
            source.forget()
        elif token == "while" and source.next_is("("):
            number = _make_long(source, number)
        elif token == "absl::StrAppend" and source.next_is("(", "&"):
            _append(source)
        elif re.fullmatch(r"[a-zA-Z_]\w*", token) and source.next_is("="):
            source.note(token)
        elif token in {"EXPECT_TRUE", "EXPECT_FALSE"} and source.next_is("(", "IsUserAgentAllowed", "("):
            number += 1
            body, agent, url = source.arguments()
            if isinstance(body, str) and isinstance(agent, str) and isinstance(url, str):
                yield Case(f"{test} {number}", may(body, agent, url), token == "EXPECT_TRUE")


def _make_long(source: Source, number: int) -> int:
    """A loop that makes lines longer than Google reads (2083 * 8 bytes)."""
    names = []
    while not source.next_is("}"):
        token = source.tokens[source.at]
        source.at += 1
        if token == "absl::StrAppend" and source.next_is("(", "&"):
            name = source.tokens[source.at]
            source.at += 2
            names.append((name, source.value()))
    for name, piece in names:
        begun = source.values.get(name)
        if isinstance(begun, str) and isinstance(piece, str):
            rule = "disallow: " if name == "longline" else "allow: "
            source.values[name] = begun + piece * (2083 * 8 - len(begun) - len(rule) + 1 - len(begun))
    return number


def _append(source: Source) -> None:
    name = source.tokens[source.at]
    source.at += 2  # the name and its comma
    begun, rest = source.values.get(name), joined(source.arguments())
    source.values[name] = begun + rest if isinstance(begun, str) and isinstance(rest, str) else None


_CONSTANTS = {"CRLF": "\r\n", "CR": "\r", "LF": "\n", "true": True, "false": False}
_ROWS = re.compile(r"(true|false)\s*,\s*'?(https?:[^']*?)'?\s*", re.IGNORECASE)


def crawler_commons(folder: Path) -> Iterator[Case]:
    """Every isAllowed() and getCrawlDelay() of rules for one agent."""
    tests = first_of(folder / "crawler-commons" / "src" / "test")
    text = (tests / "java/crawlercommons/robots/SimpleRobotRulesParserTest.java").read_text()

    def read(arguments: list[object]) -> object:
        path = tests / "resources" / str(arguments[0]).lstrip("/")
        return path.read_bytes() if path.is_file() else None

    def rules(arguments: list[object]) -> object:
        agent, body, *more = (*arguments, None, None)
        is_one = isinstance(agent, str) and isinstance(body, str | bytes) and more[0] in {None, True}
        return (agent, body) if is_one else None

    source = Source(text, calls={"readFile": read, "createRobotRules": rules}, constants=_CONSTANTS)
    test, number = "", 0
    table: list[tuple[bool, str]] = []
    for token in source:
        if token == "@" and source.next_is("CsvSource", "(", "{"):
            table = list(_rows(source))
        elif token == "void":
            test, number = source.tokens[source.at], 0
            if source.tokens[source.at + 2] == ")":  # no parameters: the table is another test's
                table = []
            source.forget()
        elif re.fullmatch(r"[a-zA-Z_]\w*", token) and source.next_is("="):
            source.note(token)
        elif token in {"assertTrue", "assertFalse", "assertEquals"} and source.next_is("("):
            found = list(_asserted(source, token, table))
            for at, (got, wanted) in enumerate(found, number + 1):
                yield Case(f"{test} {at}", got, wanted)
            number += len(found)


def _rows(source: Source) -> Iterator[tuple[bool, str]]:
    """The rows of a table of answers and URLs; those of other tables are left out."""
    for row in iter(source.value, None):
        found = _ROWS.fullmatch(str(row))
        if found:
            yield found[1].lower() == "true", found[2]
        if not source.next_is(","):
            break


def _asserted(source: Source, kind: str, table: list[tuple[bool, str]]) -> Iterator[tuple[object, object]]:
    """What we say and what is wanted, if the assertion is about rules for one agent."""
    wanted = source.tokens[source.at]
    if kind == "assertEquals":
        if not source.next_is("BaseRobotRules", ".", "UNSET_CRAWL_DELAY"):
            source.value()
        source.next_is(",")
    name, method = source.tokens[source.at], source.tokens[source.at + 2]
    about = source.values.get(name)
    if not isinstance(about, tuple) or method not in {"isAllowed", "getCrawlDelay"}:
        return
    source.at += 4
    body, agent = without_digits(about[1], about[0])
    if method == "getCrawlDelay":
        milliseconds = wanted.rstrip("L")
        delay = int(milliseconds) / 1000 if milliseconds.isdigit() else None
        yield Rules.parse(body, agent).crawl_delay, delay
        return
    for is_allowed, url in _asked(source, table):
        yield may(body, agent, url), is_allowed if kind == "assertEquals" else kind == "assertTrue"


def _asked(source: Source, table: list[tuple[bool, str]]) -> list[tuple[bool, str]]:
    """The URL that is asked for, or those of the table where it is the test's parameter."""
    url = source.value()
    return [(True, url)] if isinstance(url, str) else table
