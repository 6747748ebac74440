"""HTTP heads in a WARC file: faithful, and true for the body beside them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.archive.warc_records import response_head


def test_head_that_fits_its_body_is_left_as_received() -> None:
    head = b"HTTP/1.1 200 OK\r\nServer:  odd  \r\nX-B\xe4d: \xff\r\ncontent-length: 5\r\n\r\n"
    assert response_head(head, 200, body_bytes=5) == head


@pytest.mark.parametrize("name", [b"Transfer-Encoding", b"transfer-encoding", b"Transfer-Encoding "])
def test_transfer_encoding_is_kept_under_another_name(name: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + name + b": chunked\r\nContent-Encoding: gzip\r\n\r\n"
    assert response_head(head, 200, body_bytes=5) == (
        b"HTTP/1.1 200 OK\r\nX-Archive-Orig-" + name + b": chunked\r\nContent-Encoding: gzip\r\n\r\n"
    )


@pytest.mark.parametrize("stated", [b"7", b"+5", b"5, 5", b"", b"9" * 5_000, b"five"])
def test_wrong_length_is_corrected_and_kept(stated: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: " + stated + b"\r\nA: b\r\n\r\n"
    assert response_head(head, 200, body_bytes=5) == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"
        b"X-Archive-Orig-Content-Length: " + stated + b"\r\nA: b\r\n\r\n"
    )


def test_no_length_is_invented() -> None:
    head = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"
    assert response_head(head, 200, body_bytes=5) == head


def test_interim_responses_and_trailers_are_left_out() -> None:
    head = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\nTrailer: c\r\n\r\n"
    assert response_head(head, 200, body_bytes=0) == b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"


@pytest.mark.parametrize("head", [b"", b"\r\n", b"nonsense\r\n\r\n"])
def test_response_without_a_status_line_gets_one(head: bytes) -> None:
    assert response_head(head, 200, body_bytes=0) == b"HTTP/1.1 200 \r\n\r\n"


@given(st.binary() | st.from_regex(rb"HTTP/[12] \d{3}[\r\n:A-Za-z -]*"))
def test_no_head_runs_into_the_body(head: bytes) -> None:
    written = response_head(head, 200, body_bytes=3)
    blank_line = min(place for place in (written.find(b"\n\r\n"), written.find(b"\n\n")) if place >= 0)
    assert written.startswith(b"HTTP/")
    assert len(written) - blank_line in (2, 3)
