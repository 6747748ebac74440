"""Compression: one stream whose pieces can be read one by one, and that no bomb gets through."""

import os
import tracemalloc

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.errors import WireError
from sterna.wire.compression import WINDOW_LOG, Squeezer, Unsqueezer, _chosen, squeezing_bytes

ROOM = 2**30


@settings(deadline=None, max_examples=50)  # the tables of a high level take a while to be made
@given(st.lists(st.binary(max_size=5000), max_size=8), st.sampled_from([1, 3, 9, 12]))
def test_each_piece_can_be_read_as_it_comes(pieces: list[bytes], level: int) -> None:
    squeezer, unsqueezer = Squeezer(level), Unsqueezer(ROOM)
    assert [unsqueezer.add(squeezer.add(piece), max_bytes=ROOM) for piece in pieces] == pieces


def test_stream_is_read_byte_by_byte() -> None:
    squeezer, unsqueezer = Squeezer(3), Unsqueezer(ROOM)
    sent = squeezer.add(b"a page " * 500) + squeezer.add(b"another page " * 500)
    came = b"".join(unsqueezer.add(sent[at : at + 1], max_bytes=ROOM) for at in range(len(sent)))
    assert came == b"a page " * 500 + b"another page " * 500


def test_all_of_a_piece_comes_at_once_however_well_it_is_compressed() -> None:
    squeezer, unsqueezer = Squeezer(9), Unsqueezer(ROOM)
    for size in (300_000, 0, 131_072, 131_073, 5_000_000, 1):
        assert len(unsqueezer.add(squeezer.add(b"x" * size), max_bytes=ROOM)) == size


def test_what_came_long_before_is_remembered() -> None:
    squeezer = Squeezer(3)
    page = os.urandom(200_000)
    first = squeezer.add(page)
    for _ in range(20):
        squeezer.add(os.urandom(1_000_000))
    assert len(squeezer.add(page)) < len(first) / 100


@pytest.mark.parametrize("level", [-5, 0, 22, 1000])
def test_level_out_of_range_is_brought_into_it(level: int) -> None:
    assert Unsqueezer(ROOM).add(Squeezer(level).add(b"data"), max_bytes=ROOM) == b"data"


def test_piece_that_holds_too_much_is_refused_before_it_is_there() -> None:
    bomb = zstandard.ZstdCompressor(level=3).compress(bytes(512 * 1024 * 1024))
    assert len(bomb) < 100_000
    tracemalloc.start()
    with pytest.raises(WireError, match="too-large"):
        Unsqueezer(ROOM).add(bomb, max_bytes=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_stream_that_holds_too_much_in_all_is_refused() -> None:
    squeezer, unsqueezer = Squeezer(3), Unsqueezer(1_000_000)
    for _ in range(10):
        unsqueezer.add(squeezer.add(bytes(100_000)), max_bytes=100_000)
    with pytest.raises(WireError, match="too-large"):
        unsqueezer.add(squeezer.add(b"!"), max_bytes=100_000)


def test_room_is_that_of_each_call() -> None:
    squeezer, unsqueezer = Squeezer(3), Unsqueezer(ROOM)
    assert unsqueezer.add(squeezer.add(b"12345"), max_bytes=5) == b"12345"
    assert unsqueezer.add(squeezer.add(b"12345"), max_bytes=5) == b"12345"
    with pytest.raises(WireError, match="too-large"):
        unsqueezer.add(squeezer.add(b"12345"), max_bytes=4)


def test_stream_that_asks_for_a_larger_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=WINDOW_LOG + 1)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    sent = stream.compress(b"data") + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    with pytest.raises(WireError, match="malformed"):
        Unsqueezer(ROOM).add(sent, max_bytes=ROOM)


@given(st.binary(min_size=8, max_size=200))
def test_what_is_no_zstd_is_refused_or_gives_little(garbage: bytes) -> None:
    try:
        assert len(Unsqueezer(1000).add(garbage, max_bytes=1000)) <= 1000
    except WireError as error:
        assert error.problem in ("malformed", "too-large")


def test_stream_that_goes_on_after_its_end_is_refused() -> None:
    whole = zstandard.ZstdCompressor().compress(b"data")
    assert Unsqueezer(ROOM).add(whole, max_bytes=ROOM) == b"data"
    with pytest.raises(WireError, match="malformed"):
        Unsqueezer(ROOM).add(whole + b"!", max_bytes=ROOM)
    unsqueezer = Unsqueezer(ROOM)
    unsqueezer.add(whole, max_bytes=ROOM)
    with pytest.raises(WireError, match="malformed"):
        unsqueezer.add(b"!", max_bytes=ROOM)


def test_garbage_after_a_good_beginning_is_refused() -> None:
    unsqueezer = Unsqueezer(ROOM)
    unsqueezer.add(Squeezer(3).add(b"data"), max_bytes=ROOM)
    with pytest.raises(WireError, match="malformed"):
        unsqueezer.add(b"\xff" * 100, max_bytes=ROOM)


@pytest.mark.parametrize("level", [1, 3, 9, 19])
@pytest.mark.parametrize("most", [0, 400 << 20, 200 << 20, 60 << 20, 20 << 20, 4 << 20, 1])
def test_stream_within_little_memory_is_read_like_any_other(level: int, most: int) -> None:
    squeezer, unsqueezer = Squeezer(level, memory_bytes=most), Unsqueezer(ROOM)
    for piece in (b"a page " * 5000, os.urandom(300_000), b"a page " * 5000):
        assert unsqueezer.add(squeezer.add(piece), max_bytes=ROOM) == piece


@pytest.mark.parametrize(("level", "least"), [(1, 2 << 20), (3, 3 << 20), (9, 3 << 20)])
def test_less_memory_makes_a_smaller_window_and_then_a_lower_level(level: int, least: int) -> None:
    sizes = [squeezing_bytes(level, memory_bytes=most << 20) for most in (400, 100, 50, 25, 12, 6, 3)]
    assert squeezing_bytes(level) == sizes[0]
    assert sizes == sorted(sizes, reverse=True)
    assert all(size <= most << 20 for size, most in zip(sizes, (400, 100, 50, 25, 12, 6, 3), strict=True))
    assert squeezing_bytes(level, memory_bytes=1) <= least


def test_what_a_stream_takes_is_known() -> None:
    """Held against zstandard's own count, for each choice."""
    for level in (1, 3, 6, 9):
        for most in (0, 100 << 20, 20 << 20, 5 << 20):
            parameters, size = _chosen(level, most)
            compressor = zstandard.ZstdCompressor(compression_params=parameters)
            compressor.compressobj().compress(b"x")
            assert compressor.memory_size() * 0.9 < size < compressor.memory_size() * 1.6
