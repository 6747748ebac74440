"""A home and a host with fixed keys, what they say to each other, and how to spoil it."""

from collections.abc import Callable, Iterator

import pytest

from sterna.errors import WireError
from sterna.model import Budget
from sterna.wire.handshake import Greeting, Session, SessionKeys, read_hello, welcome
from sterna.wire.keys import Identity

HOME, HOST, STRANGER = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
SITE = "https://www.example.org"
NOW = 1_700_000_000.0
TICKET = bytes(range(32))
SESSION = bytes(range(100, 116))
PLATFORM = {"sterna": "0.5.0", "python": "3.11", "system": "linux"}


def greeting(*, audience: str = SITE, wants: Budget | None = None) -> Greeting:
    return Greeting.begin(HOME, home="lab", audience=audience, wants=wants or Budget(), now=NOW)


def reply_to(body: bytes, *, host: Identity = HOST, session: bytes = SESSION) -> tuple[bytes, SessionKeys]:
    return welcome(
        read_hello(body), host, grants=Budget(pages=500), platform=PLATFORM, ticket=TICKET, session=session
    )


def session() -> tuple[Session, SessionKeys]:
    """What home and host each have after a handshake."""
    asked = greeting()
    reply, keys = reply_to(asked.body)
    return asked.finish(reply, HOST.public), keys


def spoiled(message: bytes) -> Iterator[bytes]:
    """The message cut at every byte, longer by one, and with every byte changed in three ways."""
    for size in range(len(message)):
        yield message[:size]
    yield message + b"\0"
    for at, byte in enumerate(message):
        for flip in (0x01, 0x80, 0xFF):
            yield message[:at] + bytes([byte ^ flip]) + message[at + 1 :]


def refusal(call: Callable[..., object], *args: object) -> str:
    """The problem by whose name a call is refused."""
    with pytest.raises(WireError) as refused:
        call(*args)
    return refused.value.problem


def is_read(call: Callable[..., object], *args: object) -> bool:
    """False if it is refused in the one way that is allowed; anything else is raised."""
    try:
        call(*args)
    except WireError:
        return False
    return True
