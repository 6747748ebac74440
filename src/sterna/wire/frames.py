"""The frames of a reply: sealed in sequence, so that truncation, reordering and repetition are detected.

On the wire: the 24 bytes of libsodium's secretstream header, then for each frame four bytes of length (big
endian) and its ciphertext. What is sealed is a byte for the kind, then the payload.
"""

from enum import IntEnum

from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from sterna.errors import WireError
from sterna.model import Record

HEADER_BYTES = sodium.crypto_secretstream_xchacha20poly1305_HEADERBYTES
SEAL_BYTES = sodium.crypto_secretstream_xchacha20poly1305_ABYTES
MAX_PLAIN_BYTES = 64 * 1024
MAX_PAYLOAD_BYTES = MAX_PLAIN_BYTES - 1
_LENGTH_BYTES = 4
_MESSAGE = sodium.crypto_secretstream_xchacha20poly1305_TAG_MESSAGE
_FINAL = sodium.crypto_secretstream_xchacha20poly1305_TAG_FINAL


class Kind(IntEnum):
    """What a frame holds."""

    PARCELS = 1  # a piece of the compressed stream of parcels
    LOG = 2  # a line of log
    ALIVE = 3  # empty: the host is still working
    PROBLEM = 4  # why the stream ends early, as problem+json
    END = 5  # how the visit ended, signed; nothing follows
    STOPPED = 7  # that the site's owner stopped the crawler, as problem+json, for homes that support it
    RECEIPT = 6  # what the visit cost and saved, signed; right before END, for homes that support it


class Frame(Record, frozen=True):
    """One frame, opened."""

    kind: Kind
    payload: bytes = b""


def sealed_bytes(frame: Frame) -> int:
    """The size of a frame on the wire, with its length field."""
    return _LENGTH_BYTES + SEAL_BYTES + 1 + len(frame.payload)


class FrameWriter:
    """Seals frames under a key that is used for this stream only."""

    def __init__(self, key: bytes) -> None:
        self._state = sodium.crypto_secretstream_xchacha20poly1305_state()
        self.header = sodium.crypto_secretstream_xchacha20poly1305_init_push(self._state, key)
        self._is_ended = False

    def frame(self, kind: Kind, payload: bytes = b"") -> bytes:
        """A sealed frame with its length; END is the last."""
        if self._is_ended or len(payload) > MAX_PAYLOAD_BYTES:
            raise ValueError(f"a frame of {len(payload)} bytes, or one after the end")
        self._is_ended = kind is Kind.END
        sealed = sodium.crypto_secretstream_xchacha20poly1305_push(
            self._state, bytes([kind]) + payload, None, _FINAL if self._is_ended else _MESSAGE
        )
        return len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed

    def frames(self, kind: Kind, data: bytes) -> bytes:
        """As many frames of this kind as the data needs, one after the other."""
        starts = range(0, len(data), MAX_PAYLOAD_BYTES)
        return b"".join(self.frame(kind, data[at : at + MAX_PAYLOAD_BYTES]) for at in starts)


class FrameReader:
    """Opens what a FrameWriter sealed, in pieces of any size; unusable after an error."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._state: sodium.crypto_secretstream_xchacha20poly1305_state | None = None
        self._received = bytearray()  # incomplete: less than one frame between calls
        self.is_ended = False

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now; WireError if one is not what was sealed."""
        if self.is_ended and data:
            raise WireError("malformed", "the stream continues after its end")
        self._received += data
        if self._state is None:
            if len(self._received) < HEADER_BYTES:
                return []
            self._state = sodium.crypto_secretstream_xchacha20poly1305_state()
            header = bytes(self._received[:HEADER_BYTES])
            sodium.crypto_secretstream_xchacha20poly1305_init_pull(self._state, header, self._key)
            del self._received[:HEADER_BYTES]
        return self._whole_frames()

    def finish(self) -> None:
        """Called when the input ends; WireError if the end frame was not seen."""
        if not self.is_ended:
            raise WireError("cut off", "the stream ended before its end frame")

    def _whole_frames(self) -> list[Frame]:
        frames: list[Frame] = []
        start = 0
        while len(self._received) - start >= _LENGTH_BYTES and not self.is_ended:
            body = start + _LENGTH_BYTES
            length = int.from_bytes(self._received[start:body], "big")
            if not SEAL_BYTES < length <= MAX_PLAIN_BYTES + SEAL_BYTES:
                raise WireError("malformed", f"a frame of {length} bytes")
            if body + length > len(self._received):
                break
            frames.append(self._open(bytes(self._received[body : body + length])))
            start = body + length
        del self._received[:start]
        if self.is_ended and self._received:
            raise WireError("malformed", "the stream continues after its end")
        return frames

    def _open(self, sealed: bytes) -> Frame:
        assert self._state
        try:
            plain, tag = sodium.crypto_secretstream_xchacha20poly1305_pull(self._state, sealed, None)
            frame = Frame(Kind(plain[0]), plain[1:])
        except (CryptoError, ValueError) as error:
            raise WireError(
                "malformed", "a frame was not sealed by the host, or not in this order"
            ) from error
        if tag != (_FINAL if frame.kind is Kind.END else _MESSAGE):
            raise WireError("malformed", "a frame has the wrong tag for its kind")
        self.is_ended = frame.kind is Kind.END
        return frame
