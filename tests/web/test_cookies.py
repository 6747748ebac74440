"""Cookies: what a jar sends back, what it refuses, and the file that a user gives."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import UsageError
from sterna.web.cookies import MAX_COOKIE_BYTES, MAX_COOKIES, Cookie, CookieJar, read_cookie_file

NOW = 1_700_000_000.0
URL = "https://www.example.org/a/b"


def sent(*fields: str, to: str = URL, now: float = NOW) -> str:
    jar = CookieJar()
    jar.note(URL, fields, now=NOW)
    return jar.header(to, now=now)


@pytest.mark.parametrize(
    ("field", "header"),
    [
        ("tern=1", "tern=1"),
        ("  tern = 1 ; Path=/", "tern=1"),
        ("tern=a=b", "tern=a=b"),
        ('tern="1 2"', 'tern="1 2"'),
        ("tern", "tern"),
        ("tern=", "tern="),
        ("=", ""),
        ("tern=a\x00b", ""),
        ("tern=" + "x" * MAX_COOKIE_BYTES, ""),
        ("tern=1; Domain=example.org", "tern=1"),
        ("tern=1; Domain=.www.example.org", "tern=1"),
        ("tern=1; Domain=example.com", ""),
        ("tern=1; Path=/a", "tern=1"),
        ("tern=1; Path=/a/bc", ""),
        ("tern=1; Max-Age=0", ""),
        ("tern=1; Max-Age=9; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "tern=1"),
        ("tern=1; expires=Thu, 01-Jan-1970 00:00:00 GMT", ""),
        ("tern=1; expires=soon", "tern=1"),
        ("tern=1; Secure", "tern=1"),
        ("tern=1; Max-Age=--5", "tern=1"),
        ("tern=1; Max-Age=-5", ""),
        ("tern=1; Max-Age=²", "tern=1"),
    ],
)
def test_a_cookie_goes_back_where_it_belongs(field: str, header: str) -> None:
    assert sent(field) == header


def test_a_secure_cookie_is_not_sent_in_the_clear() -> None:
    jar = CookieJar()
    jar.note(URL, ["tern=1; Secure; Path=/", "gull=2; Path=/"], now=NOW)
    assert jar.header("http://www.example.org/", now=NOW) == "gull=2"
    jar.note("http://www.example.org/", ["crow=3; Secure; Path=/"], now=NOW)
    assert "crow" not in jar.header(URL, now=NOW)


def test_a_cookie_ends_with_its_time_and_is_replaced_and_removed_by_name() -> None:
    assert sent("tern=1; Max-Age=10", now=NOW + 9) == "tern=1"
    assert sent("tern=1; Max-Age=10", now=NOW + 10) == ""
    assert sent("tern=1", "gull=2", "tern=3") == "tern=3; gull=2"
    assert sent("tern=1", "tern=; Max-Age=0") == ""


def test_a_cookie_goes_to_no_other_hostname() -> None:
    assert sent("tern=1; Path=/; Domain=example.org", to="https://other.example.org/") == ""
    assert sent("tern=1; Path=/", to="https://www.example.org.evil.test/") == ""


def test_a_jar_is_bounded() -> None:
    header = sent(*(f"c{number}=1" for number in range(10 * MAX_COOKIES)))
    assert header.count(";") + 1 == MAX_COOKIES


def test_only_what_alters_the_jar_counts_as_a_change() -> None:
    jar = CookieJar()
    jar.note(URL, ["tern=1"], now=NOW)
    jar.note(URL, ["tern=1", "bad\x00=2"], now=NOW)
    assert jar.changes == 1


@given(st.text(), st.text())
def test_whatever_a_server_sets_nothing_ends_the_head(field: str, path: str) -> None:
    header = sent(field, f"a=b; Path={path}", f"{field}; Max-Age={path}; Expires={path}")
    assert not set(header) & {"\r", "\n", "\0"}


@given(
    st.text(alphabet="-+.0123456789e²", max_size=20), st.text(alphabet="-: 0123456789JanGMThu,", max_size=40)
)
def test_whatever_time_a_server_sets_is_one_or_none(age: str, expires: str) -> None:
    sent("a=b", f"c=d; Max-Age={age}; Expires={expires}", f"e=f; Expires={expires}")


def test_a_file_of_cookies_is_read_as_browsers_write_it(tmp_path: Path) -> None:
    path = tmp_path / "cookies.txt"
    path.write_text(
        "# Netscape HTTP Cookie File\n\n"
        "www.example.org\tFALSE\t/\tTRUE\t0\tsession\tsecret\n"
        "#HttpOnly_.example.org\tTRUE\t/a\tFALSE\t1800000000\ttoken\tx=y\n"
    )
    jar = CookieJar(read_cookie_file(path))
    assert jar.header(URL, now=NOW) == "token=x=y; session=secret"
    assert jar.header("http://www.example.org/", now=NOW) == ""
    assert jar.header("https://other.example.org/a", now=NOW) == "token=x=y"
    assert jar.header("https://example.com/", now=NOW) == ""


def test_a_malformed_file_is_refused_without_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "cookies.txt"
    path.write_text("session=secret")
    with pytest.raises(UsageError, match=r":1: not in Netscape's format") as refused:
        read_cookie_file(path)
    assert "secret" not in str(refused.value)
    path.write_text("www.example.org\tFALSE\t/\tTRUE\t--1\tsession\tsecret\n")
    with pytest.raises(UsageError, match=r":1: not in Netscape's format"):
        read_cookie_file(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_cookie_file(tmp_path / "none.txt")


def test_cookies_are_frozen() -> None:
    assert Cookie(name="a", value="b", domain="c").goes_to("http://c/x")
