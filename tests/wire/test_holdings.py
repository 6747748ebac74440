"""What a crawler holds is read by its home as it was sent, or not at all."""

from typing import Any

import msgspec
import pytest
import zstandard
from tests.wire.parties import is_read, session, spoiled

from sterna.errors import WireError
from sterna.model import Usage
from sterna.wire.handshake import seal
from sterna.wire.holdings import (
    MAX_HOLDINGS_BYTES,
    MAX_PARCELS,
    Holdings,
    Waiting,
    open_holdings,
    seal_holdings,
)
from sterna.wire.orders import Report

_, KEYS = session()
REPORT = Report(visit="v1", state="running", parcels=4, acknowledged=2)
HELD = Holdings(
    report=REPORT,
    at=1_700_000_000.5,
    usage=Usage(pages=3, requests=5),
    waiting=(Waiting(0, 1), Waiting(3, 250)),
    done=7,
    facts_total=3,
    facts=(b"one", b"two"),
    parcels=(b"packed",),
)


def sealed(plain: bytes) -> bytes:
    return KEYS.session + seal(KEYS.report, zstandard.compress(plain), bound=KEYS.session)


def test_holdings_are_read_as_they_were_sealed() -> None:
    assert open_holdings(KEYS, seal_holdings(KEYS, HELD)) == HELD


def test_changed_or_cut_holdings_are_not_read() -> None:
    assert not any(is_read(open_holdings, KEYS, body) for body in spoiled(seal_holdings(KEYS, HELD)))


def altered(**fields: Any) -> bytes:
    return msgspec.msgpack.encode(msgspec.structs.replace(HELD, **fields))


@pytest.mark.parametrize(
    ("plain", "problem"),
    [
        (b"\0" * (MAX_HOLDINGS_BYTES + 1), "too-large"),
        (
            msgspec.msgpack.encode(msgspec.structs.replace(HELD, parcels=(b"",) * (MAX_PARCELS + 1))),
            "too-large",
        ),
        (
            msgspec.msgpack.encode(msgspec.structs.replace(HELD, usage=Usage(errors={"x" * 600_000: 1}))),
            "too-large",
        ),
        (altered(usage=Usage(pages=-1)), "malformed"),
        (altered(at=float("nan")), "malformed"),
        (altered(waiting=(Waiting(0, -1),)), "malformed"),
        (msgspec.msgpack.encode(["not", "holdings"]), "malformed"),
        (b"\xc1", "malformed"),
    ],
)
def test_hostile_holdings_are_refused(plain: bytes, problem: str) -> None:
    with pytest.raises(WireError) as caught:
        open_holdings(KEYS, sealed(plain))
    assert caught.value.problem == problem


def test_reply_that_is_not_compressed_is_refused() -> None:
    with pytest.raises(WireError, match="zstd"):
        open_holdings(KEYS, KEYS.session + seal(KEYS.report, b"plain", bound=KEYS.session))


def test_later_fields_are_ignored() -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(HELD))
    assert open_holdings(KEYS, sealed(msgspec.msgpack.encode([*fields, "new"]))) == HELD
