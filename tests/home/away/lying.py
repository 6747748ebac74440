"""A host on the bare messages, which a test can make lie in every way."""

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests import making
from tests.transport.serving import Cut, Said, Saying, refusing

from sterna.errors import Refused
from sterna.model import Budget, Ended, Etiquette, Known, Page, Parcel, Usage, Visit
from sterna.transport.interface import Call
from sterna.wire.discovery import Offer, encode_offer
from sterna.wire.handshake import SessionKeys, read_hello, welcome
from sterna.wire.keys import Identity
from sterna.wire.known import Marks, marks_of
from sterna.wire.merkle import Tree, leaf_of
from sterna.wire.orders import (
    Kill,
    Look,
    Order,
    Query,
    Report,
    Resume,
    Send,
    open_acknowledgement,
    open_order,
    seal_report,
    session_of,
)
from sterna.wire.parcels import as_sent, pack_parcel
from sterna.wire.stream import Ending, StreamWriter

SITE = making.SITE
NOW = making.NOW
ENDPOINT = f"{SITE}/sterna"

Chunks = Sequence[bytes]
Compose = Callable[["Stream"], Chunks]  # what is sealed, in its order
Distort = Callable[[Chunks, "Stream"], Chunks | AsyncIterator[bytes]]  # what becomes of it on its way


def visit(**fields: Any) -> Visit:
    budget = Budget(pages=1000, seconds=60.0)
    given: dict[str, Any] = {"epoch": 3, "etiquette": Etiquette(user_agent="Tern/1"), "budget": budget}
    return making.visit(**(given | fields))


def page(path: str, **fields: Any) -> Page:
    given: dict[str, Any] = {"depth": 1, "title": f"Page {path}"}
    return making.page(path, **(given | fields))


def parcel(number: int, *pages: Page, **fields: Any) -> Parcel:
    usage = Usage(pages=sum(200 <= each.status < 300 for each in pages))
    return making.parcel(visit(), number, pages=pages, **({"usage": usage} | fields))


def parcels(count: int = 5) -> list[Parcel]:
    """So many, of two pages each; the last one says that the visit is finished."""
    return [
        parcel(
            number,
            page(f"/{number}a"),
            page(f"/{number}b"),
            ended=Ended.FINISHED if number == count else None,
        )
        for number in range(1, count + 1)
    ]


@dataclass(frozen=True)
class Stream:
    """What a host knows when it makes a stream."""

    writer: StreamWriter
    number: int  # of streams, from 1
    packed: Chunks  # the parcels that it is to bring
    ending: Ending


def usual(stream: Stream) -> Chunks:
    """The beginning, a chunk for each parcel, the end."""
    writer = stream.writer
    return [writer.begin(), *map(writer.parcel, stream.packed), writer.end(stream.ending)]


def honest(chunks: Chunks, stream: Stream) -> Chunks:
    """As they were sealed."""
    return chunks


@dataclass
class LyingHost:
    """Answers calls by the protocol, but for what a test has put in."""

    parcels: list[Parcel]
    identity: Identity = field(default_factory=Identity.new)
    marks: Marks = field(default_factory=lambda: marks_of(Known()))
    compose: Compose = usual
    distort: Distort = honest
    ending: dict[str, Any] = field(default_factory=dict)  # what the end says instead of the truth
    refusals: list[Refused | None] = field(default_factory=list)  # of orders, one after the other
    hello: Callable[[bytes], bytes] = lambda reply: reply
    # What came; changed by answer() alone.
    calls: list[Call] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    signer: Identity | None = None  # of the end, if it is another
    streams: int = 0

    def __post_init__(self) -> None:
        self.sessions: dict[bytes, SessionKeys] = {}

    @property
    def offer(self) -> Offer:
        return Offer(site=SITE, key=self.identity.public.text, endpoint=ENDPOINT)

    async def answer(self, call: Call) -> Said:
        self.calls.append(call)
        if call.op == "discover":
            return Saying(encode_offer(self.offer))
        if call.op == "hello":
            return Saying(self.hello(self._welcome(call.body)))
        keys = self.sessions[session_of(call.body)]
        if call.op == "acknowledge":
            self.acknowledged.append(open_acknowledgement(keys, call.body).number)
            return Saying()
        return self._carry_out(open_order(keys, call.body)[1], keys)

    def _welcome(self, body: bytes) -> bytes:
        reply, keys = welcome(
            read_hello(body),
            self.identity,
            grants=Budget(),
            platform={},
            ticket=secrets.token_bytes(32),
            session=secrets.token_bytes(16),
        )
        self.sessions[keys.session] = keys
        return reply

    def _carry_out(self, order: Order, keys: SessionKeys) -> Said:
        self.orders.append(order)
        if isinstance(order, Look | Kill):
            report = Report(visit=order.visit, state="running", parcels=len(self.parcels))
            return Saying(seal_report(keys, report))
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal:
            return refusing(refusal.problem, refusal.detail, retry_after=refusal.retry_after or 0)
        assert not isinstance(order, Query)
        return Saying(self._stream(order, keys))

    async def _stream(self, order: Send | Resume, keys: SessionKeys) -> AsyncIterator[bytes]:
        self.streams += 1
        first = order.first if isinstance(order, Resume) else 1
        stream = Stream(
            StreamWriter(keys.stream, level=order.level),
            self.streams,
            [pack_parcel(each, self.marks) for each in self.parcels[first - 1 :]],
            self._ending(),
        )
        made = self.distort(self.compose(stream), stream)
        if isinstance(made, Sequence):
            for chunk in made:
                yield chunk
        else:
            async for chunk in made:
                yield chunk

    def _ending(self) -> Ending:
        tree = Tree()
        for each in self.parcels:
            for sent in as_sent(each, self.marks).pages:
                tree.add(leaf_of(sent))
        given: dict[str, Any] = {
            "visit": "v1",
            "parcels": len(self.parcels),
            "pages": tree.count,
            "usage": Usage(),
            "ended": Ended.FINISHED,
            "root": tree.root(),
        }
        signature = self.ending.get("signature")
        ending = Ending(**(given | {k: v for k, v in self.ending.items() if k != "signature"}))
        signed = ending.signed(self.signer or self.identity)
        return msgspec.structs.replace(signed, signature=signature) if signature else signed


def cut_after(count: int, *, streams: int = 1) -> Distort:
    """The first streams are cut after so many chunks."""

    async def cutting(chunks: Chunks) -> AsyncIterator[bytes]:
        for chunk in chunks[:count]:
            yield chunk
        raise Cut

    def distort(chunks: Chunks, stream: Stream) -> Chunks | AsyncIterator[bytes]:
        return cutting(chunks) if stream.number <= streams else chunks

    return distort
