"""The stream of a visit's parcels from a host to home, whole, in pieces, and spoilt."""

import tracemalloc
from collections.abc import Iterable
from math import nan

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.parties import HOST, STRANGER

from sterna.errors import WireError
from sterna.model import Ended, Usage
from sterna.wire import stream
from sterna.wire.compression import Squeezer
from sterna.wire.frames import FrameWriter, Kind
from sterna.wire.parcels import MAX_PARCEL_BYTES
from sterna.wire.stream import (
    MAX_LINE_BYTES,
    AliveCame,
    Came,
    Ending,
    LineCame,
    ParcelCame,
    ProblemCame,
    StreamReader,
    StreamWriter,
)

KEY = bytes(range(32))
MAX_BYTES = 100_000_000
ENDING = Ending(
    visit="v1",
    parcels=2,
    pages=7,
    usage=Usage(requests=9, errors={"http_404": 2, "robots": 1}, cpu_seconds=0.25),
    ended=Ended.FINISHED,
    root=bytes(32),
).signed(HOST)


def read(pieces: Iterable[bytes], max_bytes: int = MAX_BYTES) -> list[Came]:
    reader = StreamReader(KEY, max_bytes=max_bytes)
    came = [each for piece in pieces for each in reader.feed(piece)]
    reader.finish()
    return came


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3000), max_size=5), st.integers(1, 200), st.sampled_from([1, 3, 6]))
def test_parcels_come_as_they_were_sent_in_pieces_of_any_size(
    parcels: list[bytes], size: int, level: int
) -> None:
    writer = StreamWriter(KEY, level=level)
    sent = b"".join([writer.begin(), *map(writer.parcel, parcels), writer.end(ENDING)])
    came = read(sent[at : at + size] for at in range(0, len(sent), size))
    assert came == [*map(ParcelCame, parcels), ENDING]


def test_everything_comes_in_its_order() -> None:
    writer = StreamWriter(KEY, level=3)
    sent = [
        writer.begin(),
        writer.alive(),
        writer.parcel(b"one"),
        writer.line("a line\x1b[31m\nof\0log"),
        writer.parcel(b"two"),
        writer.problem(b'{"status": 500}'),
        writer.end(ENDING),
    ]
    assert read(sent) == [
        AliveCame(),
        ParcelCame(b"one"),
        LineCame("a line [31m of log"),
        ParcelCame(b"two"),
        ProblemCame(b'{"status": 500}'),
        ENDING,
    ]


def test_parcel_can_be_read_before_the_next_is_made() -> None:
    writer, reader = StreamWriter(KEY, level=9), StreamReader(KEY, max_bytes=MAX_BYTES)
    assert list(reader.feed(writer.begin())) == []
    for parcel in (b"one", b"", b"x" * 300_000):
        assert list(reader.feed(writer.parcel(parcel))) == [ParcelCame(parcel)]


def test_long_line_is_cut() -> None:
    writer = StreamWriter(KEY, level=3)
    came = read([writer.begin(), writer.line("ü" * 5000), writer.end(ENDING)])[0]
    assert isinstance(came, LineCame)
    assert came.text.startswith("üüü")
    assert len(came.text) <= MAX_LINE_BYTES


def test_stream_without_its_end_is_cut_off() -> None:
    writer = StreamWriter(KEY, level=3)
    with pytest.raises(WireError, match="cut off"):
        read([writer.begin(), writer.parcel(b"one"), writer.problem(b"{}")])


def framed(*pieces: bytes) -> bytes:
    """What only a host that lies makes of its frames."""
    writer = FrameWriter(KEY)
    return writer.header + b"".join(writer.frames(Kind.PARCELS, piece) for piece in pieces)


def test_parcel_that_is_said_to_be_too_large_is_refused_before_it_comes() -> None:
    length = (MAX_PARCEL_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(WireError, match="too-large"):
        read([framed(Squeezer(3).add(length))])


def test_home_never_holds_more_than_one_parcel_besides_what_it_was_fed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    largest = MAX_PARCEL_BYTES // 4
    monkeypatch.setattr(stream, "MAX_PARCEL_BYTES", largest)
    sent = framed(Squeezer(3).add((largest.to_bytes(4, "big") + bytes(largest)) * 4))
    assert len(sent) < 100_000
    tracemalloc.start()
    with pytest.raises(WireError, match="too-large"):
        read([sent], max_bytes=2**40)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * largest


def test_stream_of_more_than_was_agreed_is_refused() -> None:
    writer = StreamWriter(KEY, level=3)
    sent = [writer.begin(), *(writer.parcel(bytes(1000)) for _ in range(10)), writer.end(ENDING)]
    assert len(read(sent, max_bytes=10_040)) == 11
    with pytest.raises(WireError, match="too-large"):
        read(sent, max_bytes=10_039)


def test_end_within_a_parcel_is_refused() -> None:
    writer = FrameWriter(KEY)
    part = Squeezer(3).add((100).to_bytes(4, "big") + b"less")
    end = writer.frame(Kind.PARCELS, part) + writer.frame(Kind.END, msgspec.msgpack.encode(ENDING))
    with pytest.raises(WireError, match="within a parcel"):
        read([writer.header + end])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x97",
        b"\x98" + msgspec.msgpack.encode(ENDING)[1:] + b"\x91" * 60_000 + b"\0",
        msgspec.msgpack.encode(msgspec.structs.replace(ENDING, root=b"short")),
        msgspec.msgpack.encode(msgspec.structs.replace(ENDING, parcels=-1)),
        msgspec.msgpack.encode(msgspec.structs.replace(ENDING, pages=-1)),
        msgspec.msgpack.encode(msgspec.structs.replace(ENDING, usage=Usage(cpu_seconds=nan))),
        msgspec.msgpack.encode(msgspec.structs.replace(ENDING, usage=Usage(requests=-1))),
        msgspec.msgpack.encode(ENDING).replace(b"finished", b"vanished"),
    ],
)
def test_end_that_cannot_be_is_refused(payload: bytes) -> None:
    writer = FrameWriter(KEY)
    with pytest.raises(WireError, match="malformed"):
        read([writer.header + writer.frame(Kind.END, payload)])


def test_sign_of_life_that_says_something_is_refused() -> None:
    writer = FrameWriter(KEY)
    with pytest.raises(WireError, match="malformed"):
        read([writer.header + writer.frame(Kind.ALIVE, b"!")])


# The signature


def test_ending_is_signed_by_its_host_alone() -> None:
    ENDING.check(HOST.public)
    with pytest.raises(WireError, match="bad-signature"):
        ENDING.check(STRANGER.public)


def test_ending_that_crossed_the_network_is_still_signed() -> None:
    writer = StreamWriter(KEY, level=3)
    came = read([writer.begin(), writer.end(ENDING)])[0]
    assert isinstance(came, Ending)
    came.check(HOST.public)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("visit", "v2"),
        ("parcels", 3),
        ("pages", 8),
        ("usage", Usage(requests=10)),
        ("ended", Ended.BUDGET),
        ("root", bytes(31) + b"\1"),
        ("signature", bytes(64)),
        ("signature", b""),
    ],
)
def test_every_field_of_an_ending_is_signed(field: str, value: object) -> None:
    with pytest.raises(WireError, match="bad-signature"):
        msgspec.structs.replace(ENDING, **{field: value}).check(HOST.public)
