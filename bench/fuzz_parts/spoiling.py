"""How a message is spoiled, in its bytes or in its fields; the same chance gives the same message."""

import math
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import msgspec
import zstandard

SITE = "http://site.test"

# What msgpack can hold and nobody expects; a Raw goes into a message as it is.
_ODD_BYTES = (
    b"\x91" * 2_000 + b"\0",  # nested deeply
    b"\x91" * 60_000 + b"\0",
    b"\x81\xa1a" * 3_000 + b"\0",
    b"\xdd\xff\xff\xff\xff",  # an array, a map, bytes, a text that are said to be huge
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc1",  # what msgpack never uses
    b"\xa2\xff\xfe",  # no UTF-8
    b"\xa3\xed\xa0\x80",  # half a surrogate
    b"\xc7\x03\x01abc",  # extension types
    b"\xd6\xff\x00\x00\x00\x00",
    b"\xd8\x05" + bytes(16),
    b"\x82\xa1a\0\xa1a\0",  # a key twice
    b"\xca\x7f\xc0\x00\x00",  # NaN and infinity of 32 bits
    b"\xca\x7f\x80\x00\x00",
    b"\xd9",  # cut off
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xdc\x00\x00",  # not the shortest form
)
_NUMBERS: tuple[int | float, ...] = (
    *(0, 1, -1, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63)),
    *(0.0, -0.0, 0.5, -1.0, 1e-320, 1e18, 1e308, -1e308, math.nan, math.inf, -math.inf),
)
_TEXTS = (
    *("", "\0", "\n", "a\0b", "a\nb", "\r\nX-More: yes", "\x1b[2J", "\u202e", "\ufeff", "🐦" * 50, "%s%n%x"),
    *("a" * 101, "a" * 2_049, "a" * 70_000, "../../etc/passwd", "..", "/", "-", "a/b", "v1", "x" * 64),
    *("http://", "http://[::1", "http://169.254.169.254/", "http://127.0.0.1:22/", "file:///etc/passwd"),
    *(f"{SITE}/../a", f"{SITE}/%2e%2e/a", f"{SITE}@evil.test/", f"{SITE}.evil.test/", f"{SITE}:80/"),
    *(
        "http://ſite.test/",
        "http://site.test%00/",
        f"{SITE}/" + "a/" * 1_000,
        f"{SITE}/é",
        "HTTP://SITE.TEST/",
    ),
    *("ed25519:", "ed25519:" + "A" * 43, "finished", "lost", "send", "kill", "1", "NaN", "null", "true"),
)
_BYTES = (
    b"",
    b"\0",
    b"\xff" * 16,
    bytes(16),
    bytes(32),
    b"\1" + bytes(31),
    b"\xff" * 32,
    bytes(64),
    b"x" * 70_000,
)


def hostile(chance: Random) -> Any:
    """A value that whoever reads it may not have thought of."""
    match chance.randrange(9):
        case 0 | 1:
            return chance.choice(_NUMBERS)
        case 2 | 3:
            return chance.choice(_TEXTS)
        case 4:
            return chance.choice(_BYTES)
        case 5 | 6:
            return msgspec.Raw(chance.choice(_ODD_BYTES))
        case 7:
            return chance.choice((None, True, False, [], [[]], {}, {"a": 1}, {1: 2}))
        case _:
            return [chance.choice((0, "", b"", None, [], "a"))] * chance.choice((1, 2, 16, 1_000, 70_000))


def spoil_fields(value: Any, chance: Random, *, times: int = 0) -> Any:
    """The tree of lists, maps and values with some of its places changed."""
    for _ in range(times or chance.choice((1, 1, 1, 2, 4))):
        value = _spoil_place(value, chance)
    return value


def _spoil_place(value: Any, chance: Random) -> Any:
    # Deeper places are more, and are what readers look at least: go down more often than not.
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return _spoil_list(value, at, chance)
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        match chance.randrange(10):
            case 0:
                return {name: each for name, each in value.items() if name != key}
            case 1:
                return value | {chance.choice(_TEXTS): hostile(chance)}
            case _:
                return value | {key: _spoil_place(value[key], chance)}
    return _alike(value, chance) if chance.random() < 0.6 else hostile(chance)


def _alike(value: Any, chance: Random) -> Any:
    """A value of the same kind, so that its reader looks at what it says."""
    if isinstance(value, bool) or value is None:
        return hostile(chance)
    if isinstance(value, int | float):
        near = () if abs(value) >= 2**62 else (value + 1, value - 1, -value, value * 2)
        return chance.choice((*near, *(each for each in _NUMBERS if type(each) is type(value))))
    if isinstance(value, str):
        texts = (
            value + "\0",
            value + "\n",
            value[::-1],
            value.upper(),
            value * 3,
            value + "/..",
            value + "é",
        )
        return chance.choice((*texts, *_TEXTS))
    if isinstance(value, bytes):
        return spoil_bytes(value, chance) if chance.random() < 0.7 else chance.choice(_BYTES)
    return hostile(chance)


def _spoil_list(value: list[Any], at: int, chance: Random) -> list[Any]:
    match chance.randrange(16):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return value[: at + 1] + value[at:]
        case 2:
            return [*value, hostile(chance)]
        case 3:
            other = chance.randrange(len(value))
            swapped = list(value)
            swapped[at], swapped[other] = swapped[other], swapped[at]
            return swapped
        case 4:
            return value[:at]
        case _:
            return [*value[:at], _spoil_place(value[at], chance), *value[at + 1 :]]


def spoil_bytes(data: bytes, chance: Random) -> bytes:
    """The data with a few of its bytes changed, lost, repeated or made up."""
    spoiled = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(spoiled) + 1)
        size = chance.choice((1, 1, 2, 8, 64, 600))
        match chance.randrange(7):
            case 0:
                spoiled[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del spoiled[at : at + size]
            case 2:
                spoiled[at:at] = spoiled[at : at + size]
            case 3:
                spoiled[at:at] = chance.randbytes(size)
            case 4:
                del spoiled[at:]
            case 5:
                spoiled[at : at + size] = bytes(size)
            case _ if at < len(spoiled):
                spoiled[at] ^= 1 << chance.randrange(8)
            case _:
                spoiled += chance.randbytes(size)
    return bytes(spoiled)


def tree_of(record: Any) -> Any:
    """The lists, maps and values that a record is on the wire."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record))


def garbage(chance: Random) -> bytes:
    """Bytes that are nothing, or nearly something."""
    match chance.randrange(6):
        case 0:
            return b""
        case 1:
            return chance.randbytes(chance.choice((1, 16, 40, 1_000)))
        case 2:
            return chance.choice(_ODD_BYTES)
        case 3:
            return msgspec.msgpack.encode(hostile(chance))
        case 4:
            return bytes(chance.choice((1, 100, 100_000)))
        case _:
            return b"\x92" + chance.choice(_ODD_BYTES) + chance.choice(_ODD_BYTES)


@cache
def bombs() -> tuple[bytes, ...]:
    """zstd frames that are small and hold much, or say so, or are wrong in their own way."""
    big = zstandard.ZstdCompressor(level=1)
    stream = big.compressobj()
    without_size = b"".join(stream.compress(bytes(1 << 20)) for _ in range(256)) + stream.flush()
    return (
        big.compress(bytes(256 << 20)),  # says what it holds
        without_size,  # does not
        b"\x28\xb5\x2f\xfd\xe4" + (2**60).to_bytes(8, "little") + b"\x01\x00\x00",  # lies about it
        b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00",  # wants the largest of windows
        big.compress(b"a") + big.compress(b"b"),
        big.compress(b"\x90") + b"more",
        b"\x50\x2a\x4d\x18\xff\xff\xff\x7f",  # a frame to be skipped, of two gigabytes
        big.compress(b"\x93" + b"\x91" * 1_000_000),
        big.compress(b"")[:-1],
        b"\x28\xb5\x2f\xfd",
    )


Make = Callable[[Random], Any]


def either(chance: Random, *makes: Make) -> Any:
    """What one of them makes."""
    return chance.choice(makes)(chance)
