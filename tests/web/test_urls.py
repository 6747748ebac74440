"""URLs: one spelling each, and what can be told from one."""

import time

import can_ada
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.web.urls import (
    MAX_URL_LENGTH,
    Canonical,
    fingerprint,
    hostname_of,
    is_private,
    is_trap,
    path_of,
    site_of,
)

BASE = "http://www.example.org/docs/index.html?page=1"

canonical = Canonical()

# Text that is likely to come near the rules: pieces of URLs in any order, and anything at all.
PIECES = st.sampled_from([
    "http://", "https:", "//", "/", "..", ".", "%2e", "%2E%2e", "%", "%4", "%41", "%zz", "?", "&", "&&", "=",
    "#", ";", ";jsessionid=1", "utm_source=x", "utm%5Fid=1", "@", "u:p@", "example.org", "EXAMPLE", ":80",
    ":8080", "[::1]", "bücher", "a b", "\\", "\t", "é", "javascript:", "mailto:", "127.1", "0x7f", "~",
    "%7e", "%3B",
])  # fmt: skip
HREFS = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=60))


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("a.html", "http://www.example.org/docs/a.html"),
        ("../a/./b/../c", "http://www.example.org/a/c"),
        ("//other.example/x", "http://other.example/x"),
        ("?page=2", "http://www.example.org/docs/index.html?page=2"),
        ("#part", "http://www.example.org/docs/index.html?page=1"),
        ("", "http://www.example.org/docs/index.html?page=1"),
        (" \n a.html\t ", "http://www.example.org/docs/a.html"),
        ("HTTP://EXAMPLE.org:80", "http://example.org/"),
        ("https://example.org:443/", "https://example.org/"),
        ("https://example.org:8443/", "https://example.org:8443/"),
        ("http:\\\\example.org\\a", "http://example.org/a"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://user:secret@example.org/@x", "http://example.org/@x"),
    ],
)
def test_hrefs_are_joined_as_browsers_join_them(href: str, url: str) -> None:
    assert canonical(href, BASE) == url


@pytest.mark.parametrize(
    "href",
    [
        "mailto:a@example.org",
        "javascript:void(0)",
        "data:text/html,x",
        "ftp://example.org/",
        "http://",
        "http://[::1",
        "http://a b/",
        "http://example.org:99999/",
        "\ud800",
    ],
)
def test_what_is_no_page_of_the_web_has_no_url(href: str) -> None:
    assert canonical(href, BASE) is None


def test_without_a_base_only_absolute_urls_count() -> None:
    assert canonical("/a") is None
    assert canonical("http://example.org/a") == "http://example.org/a"


def test_a_base_that_is_no_url_gives_none() -> None:
    assert canonical("a.html", "nonsense") is None


def test_the_base_may_change_from_call_to_call() -> None:
    assert canonical("x", "http://a.example/") == "http://a.example/x"
    assert canonical("x", "http://b.example/") == "http://b.example/x"
    assert canonical("x", "http://a.example/") == "http://a.example/x"


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("/%7euser/%41%2d", "http://www.example.org/~user/A-"),
        ("/a%2fb%c3%a9", "http://www.example.org/a%2Fb%C3%A9"),
        ("/?q=%7e%2f", "http://www.example.org/?q=~%2F"),
        ("/100%/%3a", "http://www.example.org/100%/%3A"),
        ("/%%34%31/%4%31/%41%42", "http://www.example.org/%%341/%4%31/AB"),
        ("/%2541", "http://www.example.org/%2541"),
    ],
)
def test_percent_encoding_has_one_form(href: str, url: str) -> None:
    assert canonical(href, BASE) == url


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("/a?utm_source=x&id=3&UTM_Medium=y", "http://www.example.org/a?id=3"),
        ("/a?fbclid=1", "http://www.example.org/a"),
        ("/a?", "http://www.example.org/a"),
        ("/a?b=2&a=1", "http://www.example.org/a?b=2&a=1"),
        ("/a?utm%5Fsource=x&b", "http://www.example.org/a?b"),
        ("/a?sid=3&session_id=4&v=utm_source", "http://www.example.org/a?sid=3&session_id=4&v=utm_source"),
        ("/a;jsessionid=0A1B/b;v=1?x=1", "http://www.example.org/a/b;v=1?x=1"),
        ("/a/..;jsessionid=1", "http://www.example.org/"),
    ],
)
def test_tracking_and_session_parameters_are_dropped_and_others_kept_in_order(href: str, url: str) -> None:
    assert canonical(href, BASE) == url


def test_the_dropped_parameters_can_be_chosen() -> None:
    url = "http://example.org/?utm_source=x&lang_a=1&b=2"
    assert Canonical(("lang_*",))(url) == "http://example.org/?utm_source=x&b=2"
    assert Canonical(())(url) == url


def test_a_url_is_as_long_as_allowed_and_no_longer() -> None:
    longest = "http://example.org/".ljust(MAX_URL_LENGTH, "x")
    assert canonical(longest) == longest
    assert canonical(longest + "x") is None
    assert canonical(longest + "#" + "y" * 100) == longest


def test_long_hrefs_are_dropped_without_work() -> None:
    href = "http://example.org/" + "é%41" * 2_000_000
    start = time.perf_counter()
    assert all(canonical(href, BASE) is None for _ in range(1_000))
    assert time.perf_counter() - start < 0.5


@given(HREFS, st.sampled_from([None, BASE, "https://[2001:db8::1]:8443/a/b/"]))
def test_a_canonical_url_is_stable_and_parses_back(href: str, base: str | None) -> None:
    url = canonical(href, base)
    if url is None:
        return
    assert canonical(url) == url
    assert canonical("", url) == url
    parsed = can_ada.parse(url)
    assert parsed.href == url
    assert parsed.protocol in ("http:", "https:")
    assert not (parsed.username or parsed.password or parsed.hash)
    assert url.isascii()


@given(HREFS, st.sampled_from([None, BASE]))
def test_the_parts_agree_with_the_parser(href: str, base: str | None) -> None:
    url = canonical(href, base)
    if url is None:
        return
    parsed = can_ada.parse(url)
    assert site_of(url) == parsed.origin
    assert hostname_of(url) == parsed.hostname.strip("[]")
    assert path_of(url) == parsed.pathname + parsed.search
    assert site_of(url) + path_of(url) == url


def test_hostnames_come_without_port_and_brackets() -> None:
    assert hostname_of("https://www.example.org:8443/a:b") == "www.example.org"
    assert hostname_of("http://[2001:db8::1]:80/") == "2001:db8::1"


def test_fingerprints_are_signed_64_bit_and_the_same_everywhere() -> None:
    assert fingerprint("http://example.org/") == 4654873767771525413
    numbers = [fingerprint(f"http://example.org/{number}") for number in range(100)]
    assert len(set(numbers)) == 100
    assert min(numbers) < 0 < max(numbers)
    assert all(-(2**63) <= number < 2**63 for number in numbers)


@pytest.mark.parametrize(
    "path",
    [
        "/a/a/a/a",
        "/x/a/a/a/a/b",
        "/a/b/a/b/a/b/a/b/",
        "/" + "/".join(str(number) for number in range(30)),
    ],
)
def test_repeating_and_endless_paths_are_traps(path: str) -> None:
    assert is_trap("http://example.org" + path)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a/a/a",
        "/a/b/a/b/a/b",
        "/2024/01/01/a/01/b",
        "/a/a1/a2/a3/a4",
        "/ab/abab/ababab",
        "/?q=/a/a/a/a/a/a",
        "/" + "/".join(str(number) for number in range(20)),
    ],
)
def test_ordinary_paths_are_no_traps(path: str) -> None:
    assert not is_trap("http://example.org" + path)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "255.255.255.255", "224.0.0.1", "198.18.0.1", "192.0.2.1",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1", "3fff::1",
        "100::1",
        "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1",
        "64:ff9b:1::1", "2002:7f00:1::", "2002:c0a8:101::1",
        "", "localhost", "127.1",
    ],
)  # fmt: skip
def test_addresses_of_inner_networks_are_private(address: str) -> None:
    assert is_private(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"],
)
def test_addresses_of_the_internet_are_not_private(address: str) -> None:
    assert not is_private(address)


PLAIN_PATHS = st.lists(st.sampled_from(["..", "a", "b.html", "x-y_z~", "A.", "1"]), min_size=1).map("/".join)


@given(
    PLAIN_PATHS,
    st.sampled_from(
        [BASE, "http://h.test/", "https://h.test:8443/a/b/?q=x/y", "http://u:p@h.test/a//b/c;v=1/d"]
    ),
)
def test_a_plain_path_is_joined_as_the_parser_joins_it(path: str, base: str) -> None:
    assert canonical(path, base) == canonical(f"./{path}", base)  # which is not plain
