"""Files called robots.txt as they are read: groups, lines, and the other fields."""

import codecs

import pytest
from tests.web.robots_files import FORBID_ALL, SITE, may

from sterna.web.robots import (
    MAX_BYTES,
    MAX_DELAY_SECONDS,
    MAX_SITEMAPS,
    Rules,
)

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


def test_crawl_delay_and_unknown_lines_do_not_end_the_agents_of_a_group() -> None:
    """RFC 9309 2.2.4: parsing other records must not interfere with agents and rules."""
    for between in ("Crawl-delay: 5", "Host: example.com", "Clean-param: ref /a", "hello"):
        body = f"User-agent: Sterna\n{between}\nUser-agent: other\nDisallow: /a\n"
        assert not may(body, "/a"), between
        assert not may(body, "/a", agent="other"), between


@pytest.mark.parametrize(
    ("agent", "expected"), [("one", 10.0), ("two", 20.0), ("three", None), ("four", 40.0), ("*", 40.0)]
)
def test_crawl_delay_is_for_the_agents_that_were_named_above_it(agent: str, expected: float | None) -> None:
    body = (
        b"User-agent: one\nCrawl-delay: 10\nUser-agent: two\nCrawl-delay: 20\n"
        b"User-agent: three\nDisallow: /a\nUser-agent: four\nUser-agent: *\nDisallow: /b\nCrawl-delay: 40\n"
    )
    assert Rules.parse(body, agent).crawl_delay == expected


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
    ("User-agent: *", "Desallow: /"),
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


# Rules inside an HTML page

HTML_PAGES = {
    "pre": "<html><head><title>robots</title></head><pre>User-agent: *\nDisallow: /a\n</pre></html>",
    "doctype": "<!DOCTYPE html><title>Home</title>\nUser-agent: *\nDisallow: /a\n",
    "br": "<html>User-agent: *<br>Disallow: /a<br/>Disallow: /x",
    "paragraphs": "<body><p>User-agent: *</p><p>Disallow: /a</p>",
    "bare pre": '<pre style="word-wrap: break-word">User-agent: *\nDisallow: /a</pre>',
    "xhtml": '<?xml version="1.0"?>\n<!DOCTYPE html>\nUser-agent: *\nDisallow: /a\n',
    "comment first": "<!-- saved from https://example.com/robots.txt -->\nUser-agent: *\nDisallow: /a\n",
}


@pytest.mark.parametrize("page", HTML_PAGES.values(), ids=HTML_PAGES)
def test_rules_inside_an_html_page_are_obeyed(page: str) -> None:
    assert not may(page, "/a")
    assert may(page, "/b")


def test_entities_of_an_html_page_stand_for_their_characters() -> None:
    assert not may("<html><pre>User-agent: *\nDisallow: /a?b=1&amp;c=2\n</pre>", "/a?b=1&c=2")


def test_rule_with_angle_brackets_in_a_text_file_stays_as_it_is() -> None:
    assert not may("User-agent: *\nDisallow: /a<b>c\n", "/a%3Cb%3Ec")
    assert may("User-agent: *\nDisallow: /a<b>c\n", "/a")


# Rules that are whole URLs


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ("http://example.com/a/", "/a/b", False),
        ("http://example.com/a/", "/b", True),
        ("HTTP://Example.COM/a*.gif$", "/a/b.gif", False),
        ("https://example.com/a", "/a", False),
        ("http://example.com:80/a", "/a", False),
        ("http://example.com", "/a", False),
        ("http://example.com?b", "/?b=1", False),
        ("http://www.example.com/a", "/a", True),
        ("http://other.example/", "/a", True),
        ("http:///a", "/a", True),
    ],
)
def test_rule_may_be_a_url_of_this_site(value: str, path: str, expected: bool) -> None:
    rules = Rules.parse(f"User-agent: *\nDisallow: {value}\n".encode(), "Sterna", site=SITE)
    assert rules.may_fetch(SITE + path) is expected


def test_rule_for_another_site_forbids_nothing_and_allows_nothing() -> None:
    body = b"User-agent: *\nDisallow: /\nAllow: http://other.example/a\n"
    assert not Rules.parse(body, "Sterna", site=SITE).may_fetch(f"{SITE}/a")


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
