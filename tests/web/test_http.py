"""Heads and Retry-After."""

import pytest

from sterna.web.http import Response, read_head, retry_after_seconds


def test_head_keeps_order_repeats_and_folded_lines() -> None:
    head = b"HTTP/1.1 200 OK\r\nLink: a\r\nX-Long: one\r\n two\r\nlink: b\r\nbroken line\r\n\r\n"
    fields = read_head(head)
    assert fields == (("link", "a"), ("x-long", "one two"), ("link", "b"))
    response = Response(status=200, head=head, body=b"", headers=fields, seconds=0.1, wire_bytes=1)
    assert response.header("link") == "a, b"
    assert response.header("none") == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("Thu, 01 Jan 1970 00:16:45 GMT", 5.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-3", None),
        ("9" * 400, 999_999_999_999.0),
        ("Thu, 99 Jan 99999 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, expected: float | None) -> None:
    assert retry_after_seconds(value, now=1000.0) == expected
