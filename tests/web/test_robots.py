import codecs
import re
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.model import Robots, RobotsState
from sterna.web.robots import (
    KEEP_SECONDS,
    MAX_BYTES,
    MAX_DELAY_SECONDS,
    MAX_FAILURES,
    MAX_SITEMAPS,
    MAX_WILDCARDS,
    NEVER,
    RETRY_HOURS,
    RobotsAnswer,
    Rules,
    is_due,
    is_try_again,
    judge,
)

SITE = "http://example.com"
NOW = 1_700_000_000.0
FORBID_ALL = b"User-agent: *\nDisallow: /\n"


def may(body: str | bytes, path: str, *, agent: str = "Sterna") -> bool:
    raw = body.encode() if isinstance(body, str) else body
    return Rules.parse(raw, agent).may_fetch(SITE + path)


def only(pattern: str) -> str:
    """A robots.txt that allows `pattern` and nothing else."""
    return f"User-agent: *\nDisallow: /\nAllow: {pattern}\n"


# Groups: RFC 9309, 2.2.1 and 5.1

RFC_SIMPLE = """\
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("agent", "path", "expected"),
    [
        ("Sterna", "/publications/", True),
        ("Sterna", "/example/page.html", False),
        ("Sterna", "/picture.gif", False),
        ("Sterna", "/picture.gif?full", True),
        ("foobot", "/example/page.html", True),
        ("foobot", "/example/allowed.gif", True),
        ("foobot", "/publications/", False),
        ("FooBot/2.1", "/publications/", False),
        ("barbot", "/example/page.html", False),
        ("bazbot", "/example/page.html", False),
        ("bazbot", "/picture.gif", True),
        ("quxbot", "/example/page.html", True),
    ],
)
def test_simple_example_of_the_rfc_holds(agent: str, path: str, expected: bool) -> None:
    assert may(RFC_SIMPLE, path, agent=agent) is expected


def test_longest_match_example_of_the_rfc_holds() -> None:
    body = "User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n"
    assert may(body, "/example/page/", agent="foobot")
    assert not may(body, "/example/page/disallowed.gif", agent="foobot")


def test_groups_for_the_same_agent_are_merged() -> None:
    body = (
        "User-agent: Sterna\nDisallow: /a\n\n"
        "User-agent: *\nDisallow: /c\n\n"
        "user-agent: STERNA\nDisallow: /b\n"
    )
    assert not may(body, "/a")
    assert not may(body, "/b")
    assert may(body, "/c")


def test_agents_without_rules_between_them_share_a_group() -> None:
    between = "\nSitemap: http://example.com/s.xml\nNoindex: /x\n"
    body = f"User-agent: Sterna\n{between}User-agent: other\nDisallow: /\n"
    assert not may(body, "/a")
    assert not may(body, "/a", agent="other")


def test_rules_before_any_agent_are_ignored() -> None:
    assert may("Disallow: /\nUser-agent: *\nDisallow: /b\n", "/a")


def test_agent_whose_name_only_begins_alike_is_somebody_else() -> None:
    body = "User-agent: Sterna-Images\nDisallow: /\n\nUser-agent: Ster\nDisallow: /\n"
    assert may(body, "/a")


@pytest.mark.parametrize("name", ["Sterna/1.0", "Sterna 2", "Sterna*", "sterna (+http://a.b/)", "STERNA\t"])
def test_agent_line_is_cut_to_its_product_name(name: str) -> None:
    assert not may(f"User-agent: {name}\nDisallow: /\n\nUser-agent: *\nAllow: /\n", "/a")


def test_star_with_words_after_it_means_everyone() -> None:
    assert not may("User-agent: * all robots\nDisallow: /\n", "/a")


def test_agent_line_without_a_name_opens_a_group_of_nobody() -> None:
    body = "User-agent: *\nDisallow: /a\nUser-agent:\nDisallow: /b\n"
    assert may(body, "/b")
    assert may(body, "/b", agent="")


# Lines

BOTH_SPELLINGS = [
    ("User-agent: *", "Disallow: /"),
    ("USER-AGENT:*", "DISALLOW:/"),
    ("  user-agent : * ", "\tdisallow :\t/ # comment"),
    ("useragent: *", "dissallow: /"),
    ("user agent: *", "dissalow: /"),
    ("User-agents: *", "disalow: /"),
    ("User-agent *", "Disallow /"),
    ("User-agent: *", "diasllow: /"),
    ("User-agent: *", "disallaw: /"),
    ("User-agent: *", "Disallowed: /"),
]


@pytest.mark.parametrize(("agent", "rule"), BOTH_SPELLINGS)
def test_common_misspellings_are_understood(agent: str, rule: str) -> None:
    assert not may(f"{agent}\n{rule}\n", "/a")


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r", "\n\r\n"])
def test_any_line_end_ends_a_line(line_end: str) -> None:
    body = line_end.join(["User-agent: *", "Disallow: /a", "Allow: /a/b"])
    assert not may(body, "/a")
    assert may(body, "/a/b")


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1e", "\x85", "\u2028", "\u2029"])
def test_no_other_character_ends_a_line(character: str) -> None:
    assert not may(f"User-agent: *\nDisallow: /\nDisallow: /b{character}Allow: /a\n", "/a")


@pytest.mark.parametrize(
    "line", ["disallow /a b", "disallow all /", "disallow", ": /", "dis: /", "x disallow: /"]
)
def test_line_that_is_no_rule_is_dropped(line: str) -> None:
    assert may(f"User-agent: *\n{line}\n", "/a%20b")


def test_byte_order_mark_is_skipped() -> None:
    assert not may(codecs.BOM_UTF8 + FORBID_ALL, "/a")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read_if_its_mark_says_so(encoding: str) -> None:
    mark = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}.get(encoding, b"")
    assert not may(mark + FORBID_ALL.decode().encode(encoding), "/a")


def test_nul_bytes_are_dropped() -> None:
    assert not may(b"User-agent: *\0\nDisallow: /pri\0vate\n", "/private")


def test_comments_in_another_code_page_leave_the_rules_alone() -> None:
    comment = "# Карта сайта и правила для роботов, не трогать\n".encode("cp1251")
    assert not may(comment * 20 + FORBID_ALL, "/a")


def test_rule_beyond_the_limit_is_not_read() -> None:
    body = b"User-agent: *\nDisallow: /a\n" + b"#" * MAX_BYTES + b"\nDisallow: /b\n"
    assert not may(body, "/a")
    assert may(body, "/b")


def test_line_cut_by_the_limit_does_not_count() -> None:
    start = b"User-agent: *\nDisallow: /a\n"
    whole = start + b"#" * (MAX_BYTES - len(start) - 12) + b"\nDisallow: /b"
    assert len(whole) > MAX_BYTES
    assert not may(whole, "/a")
    assert may(whole, "/x")
    assert may(whole, "/b")


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


# Other fields


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("10", 10.0),
        ("0.5 # half", 0.5),
        ("0", 0.0),
        (str(MAX_DELAY_SECONDS), MAX_DELAY_SECONDS),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1e300", 86_400.0),
        ("ten", None),
        ("", None),
    ],
)
def test_crawl_delay_is_a_sensible_number_or_nothing(value: str, expected: float | None) -> None:
    body = f"User-agent: *\nCrawl-delay: {value}\n".encode()
    assert Rules.parse(body, "Sterna").crawl_delay == expected


def test_crawl_delay_is_that_of_the_own_group() -> None:
    groups = [("*", 9), ("sterna", 2), ("x", 3)]
    body = "".join(f"User-agent: {name}\nCrawl-delay: {delay}\n\n" for name, delay in groups).encode()
    assert Rules.parse(body, "Sterna").crawl_delay == 2.0


def test_sitemaps_are_found_anywhere_once_and_in_order() -> None:
    body = (
        b"Sitemap: http://a.b/1.xml\nUser-agent: x\nDisallow: /\nsite-map:http://a.b/2.xml # second\n"
        b"Sitemap http://a.b/3.xml\nsitemap: http://a.b/1.xml\nSitemap:\n"
    )
    expected = ("http://a.b/1.xml", "http://a.b/2.xml", "http://a.b/3.xml")
    assert Rules.parse(body, "Sterna").sitemaps == expected


def test_sitemaps_are_bounded() -> None:
    body = "".join(f"Sitemap: http://a.b/{i}\n" for i in range(MAX_SITEMAPS + 1)).encode()
    assert len(Rules.parse(body, "Sterna").sitemaps) == MAX_SITEMAPS


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


def test_more_wildcards_than_can_be_tried_forbid_more_and_never_less() -> None:
    filler = [f"Disallow: /f*{i}" for i in range(MAX_WILDCARDS)]
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


@given(st.binary(), st.integers(0, 599), st.booleans(), st.integers(0, MAX_FAILURES))
def test_any_answer_leads_to_a_state_that_can_be_kept(
    body: bytes, status: int, is_truncated: bool, failures: int
) -> None:
    before = Robots(RobotsState.DISQUALIFIED, failures=failures)
    after = judge(RobotsAnswer(status, body, is_truncated), before, now=NOW)
    assert after.state is not RobotsState.UNKNOWN
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(after), type=Robots) == after


# The states: Agarwal 3.4


def test_new_site_is_due_and_not_qualified() -> None:
    assert is_due(Robots(), NOW)


@pytest.mark.parametrize("status", [400, 404, 410])
def test_site_without_robots_txt_is_qualified_without_rules(status: int) -> None:
    before = Robots(RobotsState.DISQUALIFIED, failures=3, retry_at=NOW, rules=b"")
    after = judge(RobotsAnswer(status, FORBID_ALL), before, now=NOW)
    assert after == Robots(
        RobotsState.QUALIFIED, tried_at=NOW, failures=0, rules=b"", reason=f"HTTP {status}: no rules"
    )


@pytest.mark.parametrize("status", [200, 203, 204, 206, 299])
def test_site_with_rules_is_qualified_with_them(status: int) -> None:
    after = judge(RobotsAnswer(status, FORBID_ALL), Robots(failures=2), now=NOW)
    assert after == Robots(RobotsState.QUALIFIED, tried_at=NOW, rules=FORBID_ALL)


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE html><title>Home</title>\nUser-agent: *\nDisallow: /\n",
        b"\xef\xbb\xbf\r\n <html><pre>\nUser-agent: *\nDisallow: /\n",
        b'<?xml version="1.0"?>\n<!DOCTYPE html>\nUser-agent: *\nDisallow: /\n',
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4 + FORBID_ALL,
        bytes(range(128, 192)) * 4 + b"\n" + FORBID_ALL,
        FORBID_ALL.decode().encode("utf-16-le"),
        FORBID_ALL.decode().encode("utf-32"),
    ],
    ids=["html", "html after a mark", "xhtml", "binary", "not utf-8", "utf-16 without mark", "utf-32"],
)
def test_site_that_sends_something_else_is_qualified_without_rules(body: bytes) -> None:
    after = judge(RobotsAnswer(200, body), Robots(), now=NOW)
    assert after.state is RobotsState.QUALIFIED
    assert after.rules == b""
    assert "no rules" in after.reason
    assert Rules.parse(body, "Sterna").may_fetch(SITE + "/a")


def test_rules_announced_as_html_are_rules() -> None:
    after = judge(RobotsAnswer(200, FORBID_ALL), Robots(), now=NOW)
    assert after.rules == FORBID_ALL


def test_long_file_is_kept_up_to_its_last_whole_line() -> None:
    body = FORBID_ALL + b"Allow: /ab\n" * MAX_BYTES
    after = judge(RobotsAnswer(200, body), Robots(), now=NOW)
    assert after.state is RobotsState.QUALIFIED
    assert MAX_BYTES - 11 < len(after.rules) <= MAX_BYTES
    assert after.rules.endswith(b"Allow: /ab\n")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RobotsAnswer(200, FORBID_ALL, is_truncated=True), "truncated"),
        (RobotsAnswer(0), "no answer from any address"),
        (RobotsAnswer(301), "HTTP 301 left after at most 5 redirects"),
        (RobotsAnswer(304), "HTTP 304 left after at most 5 redirects"),
        (RobotsAnswer(401), "HTTP 401"),
        (RobotsAnswer(403), "HTTP 403"),
        (RobotsAnswer(451), "HTTP 451"),
        (RobotsAnswer(429), "HTTP 429 on every address"),
        (RobotsAnswer(500), "HTTP 500 on every address"),
        (RobotsAnswer(503), "HTTP 503 on every address"),
        (RobotsAnswer(999), "HTTP 999 on every address"),
    ],
)
def test_site_whose_rules_are_not_to_be_had_is_disqualified(answer: RobotsAnswer, reason: str) -> None:
    before = Robots(RobotsState.QUALIFIED, tried_at=NOW - KEEP_SECONDS, rules=b"User-agent: *\n")
    after = judge(answer, before, now=NOW)
    assert after == Robots(
        RobotsState.DISQUALIFIED, tried_at=NOW, failures=1, retry_at=NOW + 3600, rules=b"", reason=reason
    )


def test_reason_of_the_caller_goes_before_ours() -> None:
    assert judge(RobotsAnswer(0), Robots(), now=NOW, reason="no address found").reason == "no address found"


def test_retries_come_ever_later_and_end() -> None:
    robots = Robots()
    waits = []
    while robots.retry_at < NEVER:
        robots = judge(RobotsAnswer(503), robots, now=NOW)
        waits.append((robots.retry_at - NOW) / 3600)
    assert waits[:-1] == [*RETRY_HOURS, 24, 24, 24]
    assert robots.failures == MAX_FAILURES
    assert "given up" in robots.reason
    assert not is_due(robots, NOW + 100 * 365 * 24 * 3600)


def test_success_forgets_the_failures() -> None:
    failing = judge(RobotsAnswer(503), Robots(failures=5), now=NOW)
    working = judge(RobotsAnswer(404), failing, now=NOW)
    assert working.failures == 0
    assert judge(RobotsAnswer(503), working, now=NOW).retry_at == NOW + 3600


def test_qualified_site_is_due_after_a_day() -> None:
    robots = judge(RobotsAnswer(404), Robots(), now=NOW)
    assert not is_due(robots, NOW + KEEP_SECONDS - 1)
    assert is_due(robots, NOW + KEEP_SECONDS)


def test_qualified_site_is_due_if_the_clock_was_set_back() -> None:
    assert is_due(judge(RobotsAnswer(404), Robots(), now=NOW), NOW - 3600)


def test_disqualified_site_is_due_when_its_retry_is_reached() -> None:
    robots = judge(RobotsAnswer(500), Robots(), now=NOW)
    assert not is_due(robots, robots.retry_at - 1)
    assert is_due(robots, robots.retry_at)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(0, True), (429, True), (500, True), (503, True), (599, True), (200, False), (301, False), (404, False)],
)
def test_status_of_a_bad_connection_sends_to_the_next_address(status: int, expected: bool) -> None:
    assert is_try_again(status) is expected
