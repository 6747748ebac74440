"""Frames: whatever is cut, swapped, repeated, dropped or added is seen."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings as sodium

from sterna.errors import WireError
from sterna.wire.frames import (
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    SEAL_BYTES,
    Frame,
    FrameReader,
    FrameWriter,
    Kind,
)

KEY = bytes(range(32))
FRAMES = [
    Frame(Kind.PARCELS, b"first"),
    Frame(Kind.LOG, b"a line"),
    Frame(Kind.ALIVE),
    Frame(Kind.PARCELS, b"second"),
    Frame(Kind.END, b"the end"),
]


def sealed(frames: list[Frame] = FRAMES) -> tuple[bytes, list[bytes]]:
    """The header of a stream, and each of its frames."""
    writer = FrameWriter(KEY)
    return writer.header, [writer.frame(frame.kind, frame.payload) for frame in frames]


def read(data: bytes, key: bytes = KEY) -> list[Frame]:
    reader = FrameReader(key)
    frames = reader.feed(data)
    reader.finish()
    return frames


def forged(plain: bytes, tag: int) -> bytes:
    """A stream of one frame that only who has the key can make, but no FrameWriter makes."""
    state = sodium.crypto_secretstream_xchacha20poly1305_state()
    header = sodium.crypto_secretstream_xchacha20poly1305_init_push(state, KEY)
    frame = sodium.crypto_secretstream_xchacha20poly1305_push(state, plain, None, tag)
    return header + len(frame).to_bytes(4, "big") + frame


@given(
    st.lists(
        st.builds(Frame, st.sampled_from([kind for kind in Kind if kind is not Kind.END]), st.binary()),
        max_size=6,
    ),
    st.integers(1, 100),
)
def test_frames_come_as_they_were_sealed_in_pieces_of_any_size(frames: list[Frame], size: int) -> None:
    frames = [*frames, Frame(Kind.END, b"end")]
    header, parts = sealed(frames)
    data, reader = header + b"".join(parts), FrameReader(KEY)
    came = [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]
    reader.finish()
    assert came == frames


def test_frame_is_given_as_soon_as_it_is_whole() -> None:
    header, parts = sealed()
    reader = FrameReader(KEY)
    assert reader.feed(header) == []
    assert reader.feed(parts[0][:-1]) == []
    assert reader.feed(parts[0][-1:]) == FRAMES[:1]
    assert [reader.feed(part) for part in parts[1:]] == [[frame] for frame in FRAMES[1:]]
    assert reader.is_ended


def test_stream_that_is_cut_at_any_byte_is_seen_as_cut() -> None:
    header, parts = sealed()
    data = header + b"".join(parts)
    for at in range(len(data)):
        reader = FrameReader(KEY)
        came = reader.feed(data[:at])
        assert came == FRAMES[: len(came)]
        assert len(came) < len(FRAMES)
        with pytest.raises(WireError, match="cut off"):
            reader.finish()


def test_frames_in_another_order_are_refused() -> None:
    header, parts = sealed()
    for order in permutations(range(len(parts))):
        if order != tuple(range(len(parts))):
            with pytest.raises(WireError):
                read(header + b"".join(parts[place] for place in order))


@pytest.mark.parametrize("place", range(len(FRAMES)))
def test_frame_that_is_dropped_or_repeated_is_seen(place: int) -> None:
    header, parts = sealed()
    with pytest.raises(WireError):
        read(header + b"".join(parts[:place] + parts[place + 1 :]))
    with pytest.raises(WireError):
        read(header + b"".join(parts[: place + 1] + parts[place:]))


def test_frame_of_another_stream_is_refused() -> None:
    header, parts = sealed()
    for place in range(len(FRAMES)):
        other = sealed()[1][place]
        with pytest.raises(WireError, match="malformed"):
            read(header + b"".join([*parts[:place], other, *parts[place + 1 :]]))


def test_any_bit_that_is_turned_is_seen() -> None:
    header, parts = sealed(FRAMES[3:])
    data = header + b"".join(parts)
    for place in range(len(data) * 8):
        turned = bytearray(data)
        turned[place // 8] ^= 1 << place % 8
        with pytest.raises(WireError):
            read(bytes(turned))


def test_another_key_opens_nothing() -> None:
    header, parts = sealed()
    with pytest.raises(WireError, match="malformed"):
        read(header + b"".join(parts), key=bytes(32))


@pytest.mark.parametrize("is_at_once", [True, False])
def test_whatever_follows_the_end_is_refused(is_at_once: bool) -> None:
    header, parts = sealed()
    whole = header + b"".join(parts)
    reader = FrameReader(KEY)
    with pytest.raises(WireError, match="after its end"):
        if is_at_once:
            reader.feed(whole + b"\0")
        else:
            reader.feed(whole)
            reader.feed(b"\0")


@pytest.mark.parametrize("length", [0, 1, SEAL_BYTES, MAX_PAYLOAD_BYTES + SEAL_BYTES + 2, 2**32 - 1])
def test_length_that_no_frame_has_is_refused_at_once(length: int) -> None:
    header, _ = sealed()
    with pytest.raises(WireError, match=f"a frame of {length} bytes"):
        FrameReader(KEY).feed(header + length.to_bytes(4, "big"))


def test_largest_frame_comes_through_and_larger_ones_are_several() -> None:
    writer, reader = FrameWriter(KEY), FrameReader(KEY)
    data = b"x" * (2 * MAX_PAYLOAD_BYTES + 1)
    frames = reader.feed(writer.header + writer.frames(Kind.PARCELS, data))
    assert [len(frame.payload) for frame in frames] == [MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES, 1]
    assert writer.frames(Kind.PARCELS, b"") == b""
    with pytest.raises(ValueError, match="65536 bytes"):
        writer.frame(Kind.LOG, data[: MAX_PAYLOAD_BYTES + 1])


def test_nothing_is_sealed_after_the_end() -> None:
    writer = FrameWriter(KEY)
    writer.frame(Kind.END)
    with pytest.raises(ValueError, match="after the end"):
        writer.frame(Kind.ALIVE)


@pytest.mark.parametrize(
    ("plain", "tag"),
    [
        (bytes([Kind.LOG]), sodium.crypto_secretstream_xchacha20poly1305_TAG_FINAL),
        (bytes([Kind.END]), sodium.crypto_secretstream_xchacha20poly1305_TAG_MESSAGE),
        (bytes([Kind.LOG]), sodium.crypto_secretstream_xchacha20poly1305_TAG_REKEY),
        (bytes([Kind.LOG]), sodium.crypto_secretstream_xchacha20poly1305_TAG_PUSH),
        (bytes([0]), sodium.crypto_secretstream_xchacha20poly1305_TAG_MESSAGE),
        (bytes([99]), sodium.crypto_secretstream_xchacha20poly1305_TAG_MESSAGE),
        (b"", sodium.crypto_secretstream_xchacha20poly1305_TAG_FINAL),
    ],
)
def test_kind_and_tag_that_do_not_fit_are_refused_even_if_well_sealed(plain: bytes, tag: int) -> None:
    with pytest.raises(WireError, match="malformed"):
        read(forged(plain, tag))


@given(st.binary(min_size=HEADER_BYTES + 4, max_size=400))
def test_garbage_is_refused_or_waited_for_but_never_read(garbage: bytes) -> None:
    reader = FrameReader(KEY)
    try:
        assert reader.feed(garbage) == []
    except WireError as error:
        assert error.problem == "malformed"
    with pytest.raises(WireError):
        reader.finish()
