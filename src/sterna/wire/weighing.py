"""What a message would become, told before anything is made of it.

The smallest of objects take forty times their bytes, and bytes that say the same over and over cost a sender
nothing: a message of a few kilobytes could else fill the memory.
"""

import msgspec


def size_of(raw: msgspec.Raw) -> int:
    """The bytes of what is not decoded yet."""
    return len(memoryview(raw))


def is_array(raw: msgspec.Raw) -> bool:
    """Whether it is one, by its first byte."""
    first = memoryview(raw)[0]
    return first in (0xDC, 0xDD) or first & 0xF0 == 0x90


def array_length(raw: msgspec.Raw) -> int:
    """How many elements it has; 0 for what is no array, which the typed decoder refuses where one belongs."""
    head = bytes(memoryview(raw)[:5])
    if not is_array(raw):
        return 0
    if head[0] == 0xDC:
        return int.from_bytes(head[1:3], "big")
    return int.from_bytes(head[1:5], "big") if head[0] == 0xDD else head[0] & 0x0F
