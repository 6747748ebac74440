"""Reply 2: parcels, log lines and heartbeats into frames at the host, and out of them at home."""

from collections.abc import Iterator

import msgspec

from sterna.errors import WireError
from sterna.model import Ended, Record, Usage
from sterna.wire.compression import Squeezer, Unsqueezer
from sterna.wire.frames import HEADER_BYTES, MAX_PAYLOAD_BYTES, FrameReader, FrameWriter, Kind, sealed_bytes
from sterna.wire.keys import Identity, PublicKey
from sterna.wire.merkle import HASH_BYTES
from sterna.wire.parcels import MAX_COUNT, MAX_PARCEL_BYTES, check_usage
from sterna.wire.problems import malformed

TAKES_STOPS = "stops"  # the word by which a home announces that it supports the frame of an owner's stop
PAUSED, RESUMED = "paused:", "resumed:"  # begin log lines: a visit rests, and why; it goes on
MAX_LINE_BYTES = 2048  # of log
_LENGTH_BYTES = 4
_ENDING = "ending"  # the context in which endings are signed


class Ending(Record, frozen=True, kw_only=True):
    """How a visit ended and what it brought in all its parcels, as its host signed it."""

    visit: str
    parcels: int
    pages: int
    usage: Usage
    ended: Ended
    root: bytes  # of the Merkle tree of the pages
    signature: bytes = b""

    def signed(self, host: Identity) -> "Ending":
        return msgspec.structs.replace(self, signature=host.sign(_ENDING, self._unsigned()))

    def check(self, host: PublicKey) -> None:
        """WireError if the signature is not that of the host."""
        host.verify(_ENDING, self._unsigned(), self.signature)

    def _unsigned(self) -> bytes:
        return msgspec.msgpack.encode(msgspec.structs.replace(self, signature=b""))


class ParcelCame(Record, frozen=True):
    """A parcel, still packed."""

    packed: bytes


class LineCame(Record, frozen=True):
    """A line of the host's log."""

    text: str


class AliveCame(Record, frozen=True):
    """A heartbeat: the host is still working."""


class ProblemCame(Record, frozen=True):
    """The stream ends early; this problem+json says why."""

    json: bytes


class StoppedCame(Record, frozen=True):
    """The site's owner stopped the crawler; this problem+json says why, and until when."""

    json: bytes


class ReceiptCame(Record, frozen=True):
    """A signed receipt, still packed, and how many bytes of the stream came before it."""

    packed: bytes
    before_bytes: int


Came = ParcelCame | LineCame | AliveCame | StoppedCame | ProblemCame | ReceiptCame | Ending


class StreamWriter:
    """The host's end; the result of each call is to be sent, in the order of the calls."""

    def __init__(self, key: bytes, *, level: int, memory_bytes: int = 0) -> None:
        """Compresses within `memory_bytes` (0: no limit)."""
        self._frames = FrameWriter(key)
        self._squeezer = Squeezer(level, memory_bytes=memory_bytes)

    def begin(self) -> bytes:
        """The header, to be sent first."""
        return self._frames.header

    def parcel(self, packed: bytes) -> bytes:
        """A parcel as `parcels.pack_parcel` made it; takes a while for a large one."""
        piece = self._squeezer.add(len(packed).to_bytes(_LENGTH_BYTES, "big") + packed)
        return self._frames.frames(Kind.PARCELS, piece)

    def line(self, text: str) -> bytes:
        """A line of log, truncated to MAX_LINE_BYTES."""
        return self._frames.frame(Kind.LOG, text.encode(errors="replace")[:MAX_LINE_BYTES])

    def alive(self) -> bytes:
        return self._frames.frame(Kind.ALIVE)

    def problem(self, json: bytes) -> bytes:
        return self._frames.frame(Kind.PROBLEM, json[:MAX_PAYLOAD_BYTES])

    def stopped(self, json: bytes) -> bytes:
        """The owner's stop; to be sent before the last parcel."""
        return self._frames.frame(Kind.STOPPED, json[:MAX_PAYLOAD_BYTES])

    def receipt(self, packed: bytes) -> bytes:
        """The receipt; only the end may follow."""
        return self._frames.frame(Kind.RECEIPT, packed)

    def end(self, ending: Ending) -> bytes:
        """The end; nothing may follow."""
        return self._frames.frame(Kind.END, msgspec.msgpack.encode(ending))


class StreamReader:
    """Home's end; holds at most one parcel besides its input."""

    def __init__(self, key: bytes, *, max_bytes: int) -> None:
        self._frames = FrameReader(key)
        self._unsqueezer = Unsqueezer(max_bytes)
        self._pending = bytearray()  # of an incomplete parcel
        self._has_receipt = False
        self.opened_bytes = 0  # of the stream, up to the frame that was given out last

    def feed(self, data: bytes) -> Iterator[Came]:
        """What is complete now, in order; WireError if it is malformed."""
        for frame in self._frames.feed(data):
            before_bytes = self.opened_bytes or HEADER_BYTES
            self.opened_bytes = before_bytes + sealed_bytes(frame)
            if self._has_receipt and frame.kind is not Kind.END:
                raise WireError("malformed", "a receipt is followed by something else than the end")
            if frame.kind is Kind.PARCELS:
                yield from self._parcels(frame.payload)
            elif frame.kind is Kind.LOG:
                yield LineCame(_line(frame.payload))
            elif frame.kind is Kind.ALIVE:
                if frame.payload:
                    raise WireError("malformed", "a heartbeat is not empty")
                yield AliveCame()
            elif frame.kind is Kind.STOPPED:
                yield StoppedCame(frame.payload)
            elif frame.kind is Kind.PROBLEM:
                yield ProblemCame(frame.payload)
            elif frame.kind is Kind.RECEIPT:
                self._has_receipt = True
                yield ReceiptCame(frame.payload, before_bytes)
            else:
                yield self._ending(frame.payload)

    def finish(self) -> None:
        """Called when the input ends; WireError("cut off") if the end was not seen."""
        self._frames.finish()

    def _parcels(self, piece: bytes) -> Iterator[ParcelCame]:
        room = _LENGTH_BYTES + MAX_PARCEL_BYTES - len(self._pending)
        came = self._unsqueezer.add(piece, max_bytes=room)
        if self._pending:
            self._pending += came
        else:
            self._pending = came
        while len(self._pending) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._pending[:_LENGTH_BYTES], "big")
            if end > _LENGTH_BYTES + MAX_PARCEL_BYTES:
                raise WireError("too-large", f"a parcel of {end} bytes")
            if end > len(self._pending):
                return
            yield self._cut(end)

    def _cut(self, end: int) -> ParcelCame:
        """The parcel that ends there; in a function of its own, which does not keep it while it is used."""
        with memoryview(self._pending) as pending:  # a slice of the array itself would be another copy
            packed = bytes(pending[_LENGTH_BYTES:end])
        del self._pending[:end]
        return ParcelCame(packed)

    def _ending(self, payload: bytes) -> Ending:
        if self._pending:
            raise WireError("malformed", "the stream ends within a parcel")
        with malformed("the end of the stream"):
            ending = msgspec.msgpack.decode(payload, type=Ending)
        check_usage(ending.usage)
        if not all(0 <= count <= MAX_COUNT for count in (ending.parcels, ending.pages)):
            raise WireError("malformed", "the end has a count that is negative or too large")
        if len(ending.root) != HASH_BYTES:
            raise WireError("malformed", f"a root of {len(ending.root)} bytes")
        return ending


def _line(payload: bytes) -> str:
    """A printable line, without control characters."""
    text = payload[:MAX_LINE_BYTES].decode(errors="replace")
    return "".join(char if char.isprintable() else " " for char in text)
