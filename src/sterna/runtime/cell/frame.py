"""Messages between a host and its cells: four bytes of length, then msgpack; the cell's end of the socket.

A cell imports this before it is jailed, so it must stay small: no asyncio.
"""

import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

HEAD_BYTES = 4
BUFFER_BYTES = 64 * 1024

_ENCODER = msgspec.msgpack.Encoder()
_Message = TypeVar("_Message")


def framed(message: Any, *, most_bytes: int) -> bytearray:
    """The message as it is sent; ValueError if it is larger than `most_bytes`."""
    frame = bytearray(HEAD_BYTES)
    _ENCODER.encode_into(message, frame, HEAD_BYTES)
    size = _checked(len(frame) - HEAD_BYTES, most_bytes)
    frame[:HEAD_BYTES] = size.to_bytes(HEAD_BYTES, "big")
    return frame


def frame_size(head: bytes | bytearray, *, most_bytes: int) -> int:
    """How many bytes follow the head; ValueError if more than `most_bytes`."""
    return _checked(int.from_bytes(head, "big"), most_bytes)


def cut_frames(received: bytearray, *, most_bytes: int) -> list[bytes]:
    """Takes the whole frames off the front of what was received; ValueError if one is too large."""
    frames: list[bytes] = []
    start, length = 0, len(received)
    with memoryview(received) as view:
        while length - start >= HEAD_BYTES:
            begin = start + HEAD_BYTES
            end = begin + frame_size(received[start:begin], most_bytes=most_bytes)
            if end > length:
                break
            frames.append(bytes(view[begin:end]))
            start = end
    del received[:start]
    return frames


def message_decoder(kind: type[_Message] | object) -> Callable[[bytes | bytearray], _Message]:
    """A function that decodes messages of this kind; it raises ValueError if they are malformed."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(data: bytes | bytearray) -> _Message:
        try:
            message: _Message = decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"malformed message: {error}") from error
        return message

    return read


def _checked(size: int, most_bytes: int) -> int:
    if size > most_bytes:
        raise ValueError(f"a message of {size:,} bytes is larger than {most_bytes:,}")
    return size


class CellLine(Generic[_Message]):
    """A cell's end of its socket, which blocks; it only reads and writes, as the jail allows."""

    def __init__(
        self, sock: socket.socket, decode: Callable[[bytes], _Message], *, most_in: int, most_out: int
    ) -> None:
        self._sock = sock
        self._source = sock.makefile("rb", buffering=BUFFER_BYTES)
        self._decode = decode
        self._most_in, self._most_out = most_in, most_out

    def receive(self) -> _Message:
        """The next message; EOFError when the host has closed the line, ValueError if it is malformed."""
        return self._decode(self._read(frame_size(self._read(HEAD_BYTES), most_bytes=self._most_in)))

    def send(self, message: Any) -> None:
        self._sock.sendall(framed(message, most_bytes=self._most_out))

    def close(self) -> None:
        """Leaves the socket to its owner."""
        self._source.close()

    def _read(self, size: int) -> bytes:
        data: bytes = self._source.read(size)
        if len(data) < size:
            raise EOFError
        return data
