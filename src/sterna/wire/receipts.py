"""Receipts: what a visit cost its site and what it spared it, signed by the host and then by the home.

What is signed are the bytes of the receipt as its host wrote them: they are kept and passed on as they are,
so that a receipt of a later release, with fields that are not known here, still proves the same.
"""

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from sterna.errors import WireError
from sterna.model import Ended, Record
from sterna.wire.handshake import Key, Signature, Site
from sterna.wire.keys import SIGNATURE_BYTES, Identity, PublicKey
from sterna.wire.merkle import HASH_BYTES
from sterna.wire.orders import Count, VisitId
from sterna.wire.problems import malformed

VERSION = 1
TAKES_RECEIPTS = "receipts"  # by this word among what it understands a home says that it knows the frame
MAX_RECEIPT_BYTES = 4 * 1024
MAX_TIME = 253_402_300_799.0  # the end of the year 9999, after which there are no dates
MAX_CPU_SECONDS = 1e9
LEAST_CALLS = 2  # that a home makes for a visit: a greeting and an order

_BY_HOST, _BY_HOME = "receipt", "receipt-home"  # the contexts of the signatures


class Receipt(Record, frozen=True, kw_only=True):
    """What one visit cost and spared; bytes are those on the line, compressed."""

    version: int = VERSION
    visit: VisitId
    site: Site
    home: Key
    host: Key
    began: float  # at the host, by its clock
    over: float
    ended: Ended
    pages: Count
    requests: Count  # to the site, made beside it
    read_bytes: Count
    sent_bytes: Count  # by all streams of the visit, until this receipt
    cpu_seconds: float  # of readers and engine
    spared_requests: Count  # that did not cross the network: those above but for the calls of the home
    spared_bytes: Count
    root: Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]  # as in the signed end


class SignedReceipt(Record, frozen=True):
    """The bytes of a receipt, and who signed them."""

    payload: Annotated[bytes, Meta(max_length=MAX_RECEIPT_BYTES)]
    by_host: Signature
    by_home: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""  # empty: it did not, or not yet

    @classmethod
    def make(cls, receipt: Receipt, host: Identity) -> "SignedReceipt":
        """The receipt, signed by its host."""
        payload = _encode(receipt)
        return cls(payload, host.sign(_BY_HOST, payload))

    def open(self) -> Receipt:
        """What was signed; WireError if it cannot be, or if one of those whom it names did not sign it."""
        with malformed("the receipt"):
            version = _VERSION.decode(self.payload).version
        if version != VERSION:
            raise WireError("version", f"a receipt of version {str(version)[:20]}, not {VERSION}")
        with malformed("the receipt"):
            receipt = _RECEIPT.decode(self.payload)
        _check(receipt)
        PublicKey(receipt.host).verify(_BY_HOST, self.payload, self.by_host)
        if self.by_home:
            PublicKey(receipt.home).verify(_BY_HOME, self.payload, self.by_home)
        return receipt

    def countersign(self, home: Identity) -> "SignedReceipt":
        """The same, signed by the home too."""
        return self.with_home(home.sign(_BY_HOME, self.payload))

    def with_home(self, signature: bytes) -> "SignedReceipt":
        """The same with the home's signature, which open() verifies."""
        return msgspec.structs.replace(self, by_home=signature)

    def encode(self) -> bytes:
        """As it travels, and as a home keeps it."""
        return _encode(self)


class _Version(Record, frozen=True):
    version: int


_VERSION = msgspec.msgpack.Decoder(_Version)
_RECEIPT = msgspec.msgpack.Decoder(Receipt)
_SIGNED = msgspec.msgpack.Decoder(SignedReceipt)
_encode = msgspec.msgpack.Encoder().encode


def decode_receipt(data: bytes) -> SignedReceipt:
    """The signed receipt in these bytes; what it says is read and verified by open()."""
    if len(data) > MAX_RECEIPT_BYTES:
        raise WireError("too-large", f"a receipt has at most {MAX_RECEIPT_BYTES} bytes")
    with malformed("the receipt"):
        return _SIGNED.decode(data)


def spared(done: int, instead: int) -> int:
    """What did not cross the network: what was done beside the site, less what it took instead."""
    return max(done - instead, 0)


def _check(receipt: Receipt) -> None:
    """WireError if no visit can have cost that."""
    if not 0 <= receipt.began <= receipt.over <= MAX_TIME:  # False for NaN, too
        raise WireError("malformed", "a receipt with times that no visit has")
    if not (math.isfinite(receipt.cpu_seconds) and 0 <= receipt.cpu_seconds <= MAX_CPU_SECONDS):
        raise WireError("malformed", "a receipt with CPU seconds that no visit takes")
    if receipt.spared_bytes != spared(receipt.read_bytes, receipt.sent_bytes):
        raise WireError("malformed", "a receipt that spared other bytes than were read and not sent")
    if receipt.spared_requests > spared(receipt.requests, LEAST_CALLS):
        raise WireError("malformed", "a receipt that spared more requests than were made")
