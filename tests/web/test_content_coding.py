"""Content codings: everything that was coded comes back, and no more than may."""

import gzip
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.errors import ReadError
from sterna.web.content_coding import Decoded, decode, decode_body

MAX_BYTES = 1_000_000


def deflate_raw(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


def brotli_fast(data: bytes) -> bytes:
    coded: bytes = brotli.compress(data, quality=3)
    return coded


def zstd_of_unknown_size(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(data) + compressor.flush()


Coder = Callable[[bytes], bytes]
CODERS: list[tuple[str, Coder]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", deflate_raw),
    ("br", brotli_fast),
    ("zstd", zstandard.compress),
    ("zstd", zstd_of_unknown_size),
]
each_coder = pytest.mark.parametrize(("name", "code"), CODERS)


def refusal(body: bytes, content_encoding: str, *, max_bytes: int = MAX_BYTES) -> str:
    with pytest.raises(ReadError) as caught:
        decode_body(body, content_encoding, max_bytes=max_bytes)
    return caught.value.kind


@each_coder
@given(
    data=st.one_of(
        st.binary(max_size=2_000), st.binary(min_size=1, max_size=9).map(lambda data: data * 30_000)
    )
)
@settings(max_examples=30)
def test_what_was_coded_comes_back(name: str, code: Coder, data: bytes) -> None:
    assert decode_body(code(data), name, max_bytes=MAX_BYTES) == data


@each_coder
def test_a_body_may_end_anywhere_in_the_buffer(name: str, code: Coder) -> None:
    for size in range(2**16 - 2, 2**16 + 300):
        assert len(decode_body(code(b"x" * size), name, max_bytes=MAX_BYTES)) == size


@each_coder
def test_a_body_may_be_as_long_as_the_bound_and_no_longer(name: str, code: Coder) -> None:
    assert len(decode_body(code(b"x" * 70_000), name, max_bytes=70_000)) == 70_000
    assert refusal(code(b"x" * 70_001), name, max_bytes=70_000) == "bomb"


@each_coder
def test_a_bomb_is_refused_before_it_fills_the_memory(name: str, code: Coder) -> None:
    bomb = code(bytes(40_000_000))
    tracemalloc.start()
    start = time.perf_counter()
    assert refusal(bomb, name) == "bomb"
    assert time.perf_counter() - start < 2
    assert tracemalloc.get_traced_memory()[1] < MAX_BYTES + 20_000_000
    tracemalloc.stop()


@each_coder
def test_a_body_that_is_cut_off_is_read_as_far_as_it_came_and_marked(name: str, code: Coder) -> None:
    whole = random.Random(1).randbytes(300_000)
    body = code(whole)
    for cut in (1, len(body) // 2):
        try:
            decoded = decode(body[:-cut], name, max_bytes=MAX_BYTES)
        except ReadError as error:
            assert (name, error.kind) == ("zstd", "encoding")  # which gives whole blocks only
        else:
            assert decoded.note == "cut"
            assert 0 < len(decoded.body) <= len(whole) and whole.startswith(decoded.body)
    assert refusal(body[:1], name) == "encoding"


@pytest.mark.parametrize("tail", [b"\0" * 8, b"\xff" * 5_000])
def test_a_body_with_a_bad_end_is_read_up_to_it_and_marked(tail: bytes) -> None:
    whole = random.Random(1).randbytes(100_000)
    decoded = decode(gzip.compress(whole)[: -len(tail)] + tail, "gzip", max_bytes=MAX_BYTES)
    assert decoded.note == "damaged"
    assert whole.startswith(decoded.body[:90_000])
    assert len(decoded.body) >= len(whole) - 2 * len(tail)


@each_coder
def test_html_that_was_never_coded_is_taken_and_anything_else_refused(name: str, code: Coder) -> None:
    assert code(b"x") != b"x"
    page = b"<!DOCTYPE html><title>Plain</title>"
    assert decode(page, name, max_bytes=MAX_BYTES) == Decoded(page)
    assert refusal(b"\x89PNG\r\n", name) == "encoding"


@pytest.mark.parametrize("coding", ["", "identity", " Identity ", ","])
def test_without_a_coding_the_body_stays(coding: str) -> None:
    assert decode_body(b"plain", coding, max_bytes=5) == b"plain"
    assert refusal(b"plain", coding, max_bytes=4) == "bomb"


def test_codings_are_undone_from_the_last_to_the_first() -> None:
    body = zstandard.compress(brotli.compress(gzip.compress(b"page")))
    assert decode_body(body, "gzip, BR ,zstd", max_bytes=MAX_BYTES) == b"page"
    assert refusal(body, "zstd, br, gzip") == "encoding"


def test_each_layer_is_bounded() -> None:
    assert refusal(gzip.compress(gzip.compress(bytes(9_000_000))), "gzip, gzip") == "bomb"


def test_more_codings_than_anyone_needs_are_refused() -> None:
    assert refusal(b"", "gzip, gzip, gzip, gzip") == "encoding"


def test_an_unknown_coding_is_none_as_in_browsers() -> None:
    assert decode_body(b"abc", "utf-8", max_bytes=10) == b"abc"


def test_nothing_under_a_coding_is_nothing() -> None:
    assert decode_body(b"", "gzip", max_bytes=MAX_BYTES) == b""


def test_gzip_members_are_joined_and_padding_ignored() -> None:
    body = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two") + bytes(100)
    assert decode_body(body, "gzip", max_bytes=MAX_BYTES) == b"one two"


def test_zstd_frames_are_joined() -> None:
    body = zstandard.compress(b"one ") + zstandard.compress(b"two")
    assert decode_body(body, "zstd", max_bytes=MAX_BYTES) == b"one two"


def test_endless_empty_gzip_members_are_refused_in_good_time() -> None:
    start = time.perf_counter()
    assert refusal(gzip.compress(b"") * 200_000, "gzip") == "encoding"
    assert time.perf_counter() - start < 5


def test_a_zstd_window_that_would_fill_the_memory_is_refused() -> None:
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=28)
    compressor = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    assert refusal(compressor.compress(b"page") + compressor.flush(), "zstd") == "encoding"


@given(st.binary(max_size=300), st.sampled_from(["gzip", "deflate", "br", "zstd", "gzip, br"]))
def test_any_bytes_are_read_or_refused(body: bytes, coding: str) -> None:
    try:
        assert len(decode_body(body, coding, max_bytes=10_000)) <= 10_000
    except ReadError as error:
        assert error.kind in ("encoding", "bomb")
