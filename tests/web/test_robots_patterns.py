"""Patterns of robots.txt: Google's examples, hostile files, and any rules at all."""

import re
import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.web.robots_files import FORBID_ALL, may, only

from sterna.web.robots import (
    MAX_DELAY_SECONDS,
    MAX_STARS,
    Rules,
)

# Patterns: Google's table of examples, each against a site that is closed otherwise

MATCHES = [
    ("/", ["/", "/fish"], []),
    ("/*", ["/", "/fish"], []),
    ("/$", ["/"], ["/fish", "/?a"]),
    (
        "/fish",
        ["/fish", "/fish.html", "/fish/salmon.html", "/fishheads", "/fishheads/y.html", "/fish.php?id=x"],
        ["/Fish.asp", "/catfish", "/?id=fish", "/desert/fish"],
    ),
    (
        "/fish*",
        ["/fish", "/fish.html", "/fish/salmon.html", "/fishheads", "/fishheads/y.html", "/fish.php?id=x"],
        ["/Fish.asp", "/catfish", "/?id=fish", "/desert/fish"],
    ),
    (
        "/fish/",
        ["/fish/", "/fish/?id=anything", "/fish/salmon.htm"],
        ["/fish", "/fish.html", "/animals/fish/", "/Fish/Salmon.asp"],
    ),
    (
        "/*.php",
        [
            "/index.php",
            "/filename.php",
            "/folder/filename.php?parameters",
            "/folder/any.php.file.html",
            "/a.php/",
        ],
        ["/", "/windows.PHP", "/php/"],
    ),
    (
        "/*.php$",
        ["/filename.php", "/folder/filename.php"],
        ["/filename.php?parameters", "/filename.php/", "/filename.php5", "/windows.PHP"],
    ),
    ("/fish*.php", ["/fish.php", "/fishheads/catfish.php?parameters"], ["/Fish.PHP"]),
]


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [(pattern, path, True) for pattern, yes, _ in MATCHES for path in yes]
    + [(pattern, path, False) for pattern, _, no in MATCHES for path in no],
)
def test_pattern_matches_as_in_googles_table(pattern: str, path: str, expected: bool) -> None:
    assert may(only(pattern), path) is expected


@pytest.mark.parametrize(
    ("allow", "disallow", "path", "expected"),
    [
        ("/p", "/", "/page", True),
        ("/folder", "/folder", "/folder/page", True),
        ("/page", "/*.htm", "/page.htm", False),
        ("/page", "/*.ph", "/page.php5", True),
        ("/$", "/", "/", True),
        ("/$", "/", "/page.htm", False),
        ("", "", "/page", True),
        ("/x/", "/x/page.html", "/x/page.html", False),
    ],
)
def test_longest_match_wins_and_allow_wins_a_tie(
    allow: str, disallow: str, path: str, expected: bool
) -> None:
    rules = [f"Allow: {allow}", f"Disallow: {disallow}"]
    for lines in (rules, rules[::-1]):
        assert may("\n".join(["User-agent: *", *lines]), path) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz", True),
        ("/foo/bar?baz=http://foo.bar", "/foo/bar?baz=http://foo.bar", True),
        ("/foo/bar/\u30c4", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%E3%83%84", "/foo/bar/%e3%83%84", True),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz", True),
        ("/a%3cd.html", "/a%3Cd.html", True),
        ("/a%2fb", "/a/b", False),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", True),
        ("/path/file-with-a-%2A.html", "/path/file-with-a-x.html", False),
        ("/path/foo-%24", "/path/foo-$", True),
        ("/a b", "/a%20b", True),
    ],
)
def test_percent_encoding_is_compared_normalised(pattern: str, path: str, expected: bool) -> None:
    assert may(only(pattern), path) is expected


def test_path_in_another_code_page_is_compared_as_it_was_sent() -> None:
    body = b"User-agent: *\nDisallow: /caf\xe9/\nDisallow: /this-is-a-long-line-of-ascii\n"
    assert not may(body, "/caf%E9/menu")


def test_robots_txt_itself_is_always_allowed() -> None:
    assert may(FORBID_ALL, "/robots.txt")
    assert not may(FORBID_ALL, "/robots.txt/more")
    assert not may(FORBID_ALL, "/a?b=/robots.txt")


def test_what_is_no_url_is_not_allowed_where_there_are_rules() -> None:
    assert not Rules.parse(b"User-agent: *\nDisallow: /a\n", "Sterna").may_fetch("http://[")


# Hostile files


def seconds_to_ask(body: str, path: str) -> float:
    started = time.perf_counter()
    may(body, path)
    return time.perf_counter() - started


@pytest.mark.parametrize(
    "body",
    [
        "User-agent: *\nDisallow: /*a*a*a*a*a*a*a*a*b\n",
        "User-agent: *\nDisallow: /" + "*a" * 250_000 + "b\n",
        "User-agent: *\n" + "".join(f"Disallow: /*a*a*a{i}\n" for i in range(25_000)),
        "".join(f"User-agent: a{i}\n" for i in range(25_000)) + "Disallow: /\n" * 5_000,
        "User-agent: Sterna\n" * 10_000 + "Disallow: /a\n" * 10_000,
    ],
    ids=["stars", "many stars", "many patterns", "many agents", "one agent again and again"],
)
def test_hostile_file_costs_no_more_than_a_long_one(body: str) -> None:
    # A pattern turned into a regular expression takes hours here, agents times rules some minutes.
    assert seconds_to_ask(body, "/" + "a" * 10_000) < 5


def seconds_a_url(patterns: Iterable[str]) -> float:
    body = "User-agent: *\n" + "".join(f"Disallow: {pattern}\n" for pattern in patterns)
    rules, times = Rules.parse(body.encode(), "sterna"), []
    for _ in range(5):
        began = time.process_time()
        assert rules.may_fetch("http://a.example/" + "ab/" * 600)
        times.append(time.process_time() - began)
    return min(times)


def test_url_costs_no_more_with_many_stars_in_a_pattern_or_with_more_patterns_than_the_limit() -> None:
    simple = seconds_a_url(f"/*x{i}" for i in range(MAX_STARS))
    many = [f"/*a*b*a*b*a*b*a*{i}x" for i in range(MAX_STARS // 8)]
    assert seconds_a_url([*many, *(f"/z{i}*a*b" for i in range(20_000))]) < 5 * simple


def test_more_wildcards_than_can_be_tried_forbid_more_and_never_less() -> None:
    filler = [f"Disallow: /f*{i}" for i in range(MAX_STARS)]
    rules = ["User-agent: *", *filler, "Disallow: /a*b", "Allow: /a*c", "Allow: /ad", "Disallow: /ad*x"]
    body = "\n".join(rules)
    assert not may(body, "/a-b")
    assert not may(body, "/a-c")
    assert not may(body, "/ad-x")
    assert may(body, "/b")


# Properties

PATHS = st.text("ab/", max_size=6).map(lambda path: f"/{path}")
PATTERNS = st.builds("/{}{}".format, st.text("ab/*", max_size=6), st.sampled_from(["", "$"]))
RULES = st.lists(st.tuples(st.booleans(), PATTERNS), max_size=6)
UNKNOWN_LINES = st.sampled_from(
    ["Noindex: /", "Host: example.com", "Request-rate: 1/5", "hello", "# Disallow: /", "", "Disallow:", ": /"]
)


def write(rules: list[tuple[bool, str]]) -> list[str]:
    return [f"{'Allow' if is_allowed else 'Disallow'}: {pattern}" for is_allowed, pattern in rules]


def expect(rules: list[tuple[bool, str]], path: str) -> bool:
    """RFC 9309 2.2.2, word for word."""
    found = [(0, True)]
    for is_allowed, pattern in rules:
        body, end = (pattern[:-1], "$") if pattern.endswith("$") else (pattern, "")
        if re.match(re.escape(body).replace(r"\*", ".*") + end, path):
            found.append((len(pattern), is_allowed))
    return max(found)[1]


@given(RULES, PATHS)
def test_any_rules_decide_as_the_rfc_says(rules: list[tuple[bool, str]], path: str) -> None:
    assert may("\n".join(["User-agent: *", *write(rules)]), path) is expect(rules, path)


@given(RULES, PATHS, st.lists(st.tuples(st.integers(0, 6), UNKNOWN_LINES), max_size=4))
def test_unknown_lines_change_nothing(
    rules: list[tuple[bool, str]], path: str, extra: list[tuple[int, str]]
) -> None:
    lines = ["User-agent: *", *write(rules)]
    longer = list(lines)
    for place, line in extra:
        longer.insert(place, line)
    assert may("\n".join(longer), path) is may("\n".join(lines), path)


@given(st.text(st.characters(exclude_characters="#")))
def test_site_that_forbids_everything_allows_nothing(path: str) -> None:
    assert not may(FORBID_ALL, f"/{path}") or path == "robots.txt"


@given(st.binary(), st.text(), st.text())
def test_nothing_in_a_file_an_agent_or_a_url_raises(body: bytes, agent: str, url: str) -> None:
    for raw in (body, FORBID_ALL + body, b"User-agent: *\nDisallow: " + body):
        rules = Rules.parse(raw, agent)
        assert rules.may_fetch(url) in {True, False}
        assert rules.crawl_delay is None or 0 <= rules.crawl_delay <= MAX_DELAY_SECONDS
