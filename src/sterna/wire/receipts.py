"""Receipts: what a visit cost its site and what it saved, signed by the host and then by the home.

The signatures are over the bytes that the host wrote. These are kept and passed on unchanged, so that a
receipt of a later release, with unknown fields, stays valid.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from sterna.errors import WireError
from sterna.model import Ended, Record
from sterna.wire.handshake import Key, Signature, Site, Versioned
from sterna.wire.keys import SIGNATURE_BYTES, Identity, PublicKey
from sterna.wire.merkle import HASH_BYTES
from sterna.wire.orders import Count, VisitId
from sterna.wire.problems import malformed

VERSION = 1
TAKES_RECEIPTS = "receipts"  # the word by which a home announces that it supports the frame
MAX_RECEIPT_BYTES = 4 * 1024
MAX_TIME = 253_402_300_799.0  # the end of the year 9999, after which there are no dates
MAX_CPU_SECONDS = 1e9
LEAST_CALLS = 2  # of a home for one visit: a greeting and an order

_BY_HOST, _BY_HOME = "receipt", "receipt-home"  # the contexts of the signatures


class Receipt(Record, frozen=True, kw_only=True):
    """What one visit cost and saved; bytes are counted as sent, compressed."""

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
    spared_requests: Count  # that did not cross the network: `requests` less the calls of the home
    spared_bytes: Count
    root: Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]  # as in the signed end


class SignedReceipt(Record, frozen=True):
    """The bytes of a receipt and their signatures."""

    payload: Annotated[bytes, Meta(max_length=MAX_RECEIPT_BYTES)]
    by_host: Signature
    by_home: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""  # empty: not signed, or not yet

    @classmethod
    def make(cls, receipt: Receipt, host: Identity) -> "SignedReceipt":
        payload = _encode(receipt)
        return cls(payload, host.sign(_BY_HOST, payload))

    def open(self) -> Receipt:
        """The receipt; WireError if it is invalid or a signature is wrong."""
        with malformed("the receipt"):
            version = _VERSION.decode(self.payload).version
            if version != VERSION:
                raise WireError("version", f"a receipt of version {str(version)[:20]}, not {VERSION}")
            receipt = _RECEIPT.decode(self.payload)
        if not 0 <= receipt.began <= receipt.over <= MAX_TIME:  # False for NaN, too
            raise WireError("malformed", "a receipt with times out of range or order")
        if not 0 <= receipt.cpu_seconds <= MAX_CPU_SECONDS:
            what = f"CPU seconds out of range (0 to {MAX_CPU_SECONDS:g})"
            raise WireError("malformed", f"a receipt with {what}")
        if receipt.spared_bytes != spared(receipt.read_bytes, receipt.sent_bytes):
            raise WireError("malformed", "spared_bytes of a receipt is not read_bytes less sent_bytes")
        if receipt.spared_requests > spared(receipt.requests, LEAST_CALLS):
            raise WireError("malformed", "spared_requests of a receipt exceeds the requests made")
        PublicKey(receipt.host).verify(_BY_HOST, self.payload, self.by_host)
        if self.by_home:
            PublicKey(receipt.home).verify(_BY_HOME, self.payload, self.by_home)
        return receipt

    def countersign(self, home: Identity) -> "SignedReceipt":
        return msgspec.structs.replace(self, by_home=home.sign(_BY_HOME, self.payload))

    def encode(self) -> bytes:
        return _encode(self)


_VERSION = msgspec.msgpack.Decoder(Versioned)
_RECEIPT = msgspec.msgpack.Decoder(Receipt)
_SIGNED = msgspec.msgpack.Decoder(SignedReceipt)
_encode = msgspec.msgpack.Encoder().encode


def decode_receipt(data: bytes) -> SignedReceipt:
    """The signed receipt in these bytes; open() reads and verifies its contents."""
    if len(data) > MAX_RECEIPT_BYTES:
        raise WireError("too-large", f"a receipt has at most {MAX_RECEIPT_BYTES} bytes")
    with malformed("the receipt"):
        return _SIGNED.decode(data)


def spared(done: int, instead: int) -> int:
    """What did not cross the network: the amount at the site, less what was sent instead."""
    return max(done - instead, 0)
