"""Receipts at home: what can be is signed and kept, what cannot be is not, and no visit suffers from it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clocks import StillClock
from tests.home.away import lying
from tests.home.away import test_trips_to_a_service as service
from tests.home.away.lying import ENDPOINT, NOW, SITE, Chunks, LyingHost, Stream, cut_after, parcels
from tests.home.away.outings import PlainCourier
from tests.home.away.test_trips_to_a_service import ALL, Cutter
from tests.host import knocking
from tests.host.knocking import GatedSite
from tests.transport.serving import MemoryTransport

from sterna.home.away.patience import Patience
from sterna.home.away.receipts import LOST_BYTES, SKEW_SECONDS, Witnessed, dispute, kept_in
from sterna.home.away.trip import Trip
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.host.owner.receipts import KeptReceipt, read_book
from sterna.model import Ended, Parcel, Usage
from sterna.wire.discovery import Offer
from sterna.wire.keys import Identity
from sterna.wire.orders import open_acknowledgement, session_of
from sterna.wire.receipts import Receipt, SignedReceipt, decode_receipt, spared
from sterna.wire.stream import StreamWriter

HOME, STRANGER = (Identity(bytes([number]) * 32) for number in (1, 3))
QUICK = Patience(silence_seconds=5.0, stop_seconds=2.0, tries=3, pause_seconds=0.01)
SOON_SECONDS = 60.0


@dataclass
class Kept:
    """A home's receipts in memory."""

    receipts: list[tuple[str, str, bytes]] = field(default_factory=list)

    async def __call__(self, visit: str, site: str, data: bytes) -> None:
        self.receipts.append((visit, site, data))

    @property
    def signed(self) -> SignedReceipt:
        ((_, _, data),) = self.receipts
        return decode_receipt(data)


# -- at the real service -----------------------------------------------------------------------------------


@dataclass
class Outing(service.Outing):
    """One that keeps receipts."""

    kept: Kept = field(default_factory=Kept)

    def __post_init__(self) -> None:
        self.keep_receipt = self.kept


@asynccontextmanager
async def outing_at(folder: Path, **fields: Any) -> AsyncIterator[Outing]:
    async with service.outing_at(folder, **fields) as made:
        yield Outing(made.home, made.transport, made.identity)


def at_the_host(folder: Path) -> KeptReceipt:
    (row,) = read_book(folder / "state").rows
    return row


@pytest.mark.parametrize("is_live_only", [False, True])
async def test_visit_is_signed_by_both_and_kept_by_both(tmp_path: Path, is_live_only: bool) -> None:
    async with outing_at(tmp_path, is_live_only=is_live_only) as outing:
        trip = await outing.go()
    assert (trip.receipt, trip.is_proven) == ("signed", True)
    signed = outing.kept.signed
    assert outing.kept.receipts[0][:2] == ("v1", knocking.SITE)
    assert signed.by_home
    assert signed.open().pages == len(ALL)
    assert at_the_host(tmp_path).signed == signed


async def test_cut_visit_is_signed_wherever_it_was_cut(tmp_path: Path) -> None:
    for count in range(20):
        cutter = Cutter(count)
        folder = tmp_path / str(count)
        async with outing_at(folder, through=cutter.through) as outing:
            trip = await outing.go()
        assert trip.receipt == "signed"
        assert at_the_host(folder).signed == decode_receipt(outing.kept.receipts[-1][2])
        if not cutter.cuts:
            break
    assert count > 3


async def test_stopped_visit_is_signed(tmp_path: Path) -> None:
    async with outing_at(tmp_path, site=(site := GatedSite(1000))) as outing:
        going = asyncio.create_task(outing.go())
        await service.trickle(site, lambda: len(outing.paths) >= 3)
        outing.stop.set()
        await service.trickle(site, going.done)
        trip = await going
    assert (trip.ended, trip.receipt) == (Ended.STOPPED, "signed")
    assert at_the_host(tmp_path).receipt.ended is Ended.STOPPED


async def test_visit_that_went_on_in_another_run_is_kept_and_not_signed(tmp_path: Path) -> None:
    site = GatedSite()
    async with outing_at(tmp_path, site=site) as outing:
        first = asyncio.create_task(outing.go())
        site.let(3)
        while len(outing.paths) < 3:  # noqa: ASYNC110 - parcels come by time
            await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.wait({first})
        site.let(99)
        trip = await outing.go(resume_from=outing.numbers[-1] + 1)
    assert trip.ended is Ended.FINISHED
    assert trip.receipt == "home has not seen all of the visit"
    assert outing.kept.signed.by_home == b""
    assert not at_the_host(tmp_path).is_countersigned


async def test_visit_that_another_run_sent_and_never_read_is_signed(tmp_path: Path) -> None:
    """As of a crawler that its host kept until its hours came."""
    async with outing_at(tmp_path, site=(site := GatedSite())) as outing:
        first = asyncio.create_task(outing.go())
        while not site.asked:  # noqa: ASYNC110 - nobody tells a test of it
            await asyncio.sleep(0.02)
        first.cancel()
        await asyncio.wait({first})
        outing.parcels.clear()
        site.let(99)
        trip = await outing.go(resume_from=1)
    assert (trip.receipt, trip.is_proven) == ("signed", True)
    assert at_the_host(tmp_path).is_countersigned


async def test_receipts_are_kept_in_the_ledger(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    with ThreadPoolExecutor(1) as thread:
        async with service.outing_at(tmp_path) as outing:
            outing.keep_receipt = kept_in(LedgerDesk(ledger, thread))
            await outing.go()
    ((visit, site, data),) = ledger.receipts()
    ledger.close()
    assert (visit, site) == ("v1", knocking.SITE)
    assert decode_receipt(data).open().pages == len(ALL)


# -- at a host that lies -----------------------------------------------------------------------------------


Forge = Callable[[Receipt, Identity], SignedReceipt | bytes]


def true(receipt: Receipt, host: Identity) -> SignedReceipt:
    return SignedReceipt.make(receipt, host)


def but(**fields: Any) -> Forge:
    """A host that signs something else."""
    return lambda receipt, host: SignedReceipt.make(msgspec.structs.replace(receipt, **fields), host)


def with_bytes(more: int) -> Forge:
    def forge(receipt: Receipt, host: Identity) -> SignedReceipt:
        sent = receipt.sent_bytes + more
        fields = {"sent_bytes": sent, "spared_bytes": spared(receipt.read_bytes, sent)}
        return SignedReceipt.make(msgspec.structs.replace(receipt, **fields), host)

    return forge


def shipment() -> list[Parcel]:
    """Parcels that say what they cost."""
    return [
        msgspec.structs.replace(
            each, usage=Usage(requests=3, bytes_received=40_000, pages=2, cpu_seconds=0.25)
        )
        for each in parcels(3)
    ]


@dataclass
class Trial:
    """A host that gives a receipt of its own making, and the home that takes it."""

    forge: Forge = true
    host: LyingHost = field(default_factory=lambda: LyingHost(shipment()))
    kept: Kept = field(default_factory=Kept)
    delivered: list[Parcel] = field(default_factory=list)
    sent_bytes: int = 0

    def compose(self, stream: Stream) -> Chunks:
        writer: StreamWriter = stream.writer
        chunks = [writer.begin(), *map(writer.parcel, stream.packed)]
        self.sent_bytes += sum(map(len, chunks))
        receipt = Receipt(
            visit="v1",
            site=SITE,
            home=HOME.public.data,
            host=self.host.identity.public.data,
            began=NOW,
            over=NOW + 1,
            ended=Ended.FINISHED,
            pages=6,
            requests=9,
            read_bytes=120_000,
            sent_bytes=self.sent_bytes,
            cpu_seconds=0.75,
            spared_requests=7,
            spared_bytes=spared(120_000, self.sent_bytes),
            root=stream.ending.root,
        )
        made = self.forge(receipt, self.host.identity)
        packed = made if isinstance(made, bytes) else made.encode()
        return [*chunks, writer.receipt(packed), writer.end(stream.ending)]

    async def deliver(self, parcel: Parcel) -> None:
        self.delivered.append(parcel)

    async def go(self, offer: Offer | None = None) -> Trip:
        self.host.compose = self.compose
        clock = StillClock()
        clock.time = NOW
        courier = PlainCourier(
            MemoryTransport({ENDPOINT: self.host.answer}), clock=clock, patience=QUICK, keep_receipt=self.kept
        )
        async with asyncio.timeout(SOON_SECONDS):
            return await courier.carry(lying.visit(), offer or self.host.offer, deliver=self.deliver)

    @property
    def signatures(self) -> list[bytes]:
        """What home signed, as it came to the host."""
        bodies = [call.body for call in self.host.calls if call.op == "acknowledge"]
        said = [open_acknowledgement(self.host.sessions[session_of(body)], body) for body in bodies]
        return [each.receipt for each in said if each.receipt]


async def test_true_receipt_is_signed() -> None:
    """Else all that the others are refused for could be a mistake of theirs."""
    trial = Trial()
    trip = await trial.go()
    assert (trip.receipt, trip.is_proven) == ("signed", True)
    signed = trial.kept.signed
    assert signed.open().sent_bytes == trial.sent_bytes
    assert trial.signatures == [signed.by_home]


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (with_bytes(1), "bytes sent"),
        (with_bytes(-1), "bytes sent"),
        (with_bytes(10**9), "bytes sent"),
        (but(pages=7), "counts of pages"),
        (but(requests=10), "counts of pages"),
        (but(read_bytes=10**9, spared_bytes=10**9), ""),
        (but(cpu_seconds=1.0), "CPU seconds"),
        (but(ended=Ended.BUDGET), "pages differ"),
        (but(root=bytes(32)), "pages differ"),
        (but(began=NOW - SKEW_SECONDS - 1), "times"),
        (but(over=NOW + SKEW_SECONDS + 1), "times"),
    ],
)
async def test_figures_that_are_not_those_of_the_visit_are_kept_and_not_signed(
    forge: Forge, reason: str
) -> None:
    trial = Trial(forge)
    trip = await trial.go()
    assert (trip.ended, trip.is_proven, len(trial.delivered)) == (Ended.FINISHED, True, 3)
    assert trip.receipt != "signed"
    assert reason in trip.receipt
    assert trial.signatures == []
    assert trial.host.acknowledged[-1] == 3
    if trial.kept.receipts:  # what a host signed is kept: it can be shown to others
        assert trial.kept.signed.by_home == b""


@pytest.mark.parametrize(
    "forge",
    [
        but(visit="v2"),
        but(site="https://other.test"),
        but(home=STRANGER.public.data),
        lambda receipt, host: SignedReceipt.make(
            msgspec.structs.replace(receipt, host=STRANGER.public.data), STRANGER
        ),
        lambda receipt, host: SignedReceipt.make(receipt, STRANGER),
        lambda receipt, host: msgspec.structs.replace(SignedReceipt.make(receipt, host), by_home=bytes(64)),
        but(spared_requests=9),
        but(version=2),
        lambda receipt, host: b"",
        lambda receipt, host: b"\xc1" * 100,
        lambda receipt, host: bytes(60_000),
    ],
)
async def test_receipt_that_proves_nothing_is_neither_signed_nor_kept(forge: Forge) -> None:
    trial = Trial(forge)
    trip = await trial.go()
    assert (trip.ended, trip.is_proven, len(trial.delivered)) == (Ended.FINISHED, True, 3)
    assert trip.receipt.startswith("invalid receipt")
    assert "\n" not in trip.receipt
    assert (trial.signatures, trial.kept.receipts) == ([], [])
    assert trial.host.acknowledged[-1] == 3


async def test_host_without_receipts_is_the_host_that_it_was() -> None:
    trial = Trial()
    trial.compose = lying.usual  # type: ignore[method-assign]
    trip = await trial.go()
    assert (trip.receipt, trip.is_proven) == ("", True)
    assert (trial.signatures, trial.kept.receipts) == ([], [])


async def test_receipt_of_a_visit_that_was_cut_counts_all_that_was_sent() -> None:
    trial = Trial()
    trial.host.distort = cut_after(2)
    trip = await trial.go()
    assert (trip.cuts, trip.receipt) == (1, "signed")
    assert trial.kept.signed.open().sent_bytes == trial.sent_bytes


async def test_receipt_of_an_earlier_stream_does_not_count_for_a_later_one() -> None:
    """The first stream is cut between its receipt and its end, and the second has none."""
    trial = Trial()
    true_compose = trial.compose

    def compose(stream: Stream) -> Chunks:
        return true_compose(stream) if stream.number == 1 else lying.usual(stream)

    trial.compose = compose  # type: ignore[method-assign]
    trial.host.distort = cut_after(5)
    trip = await trial.go()
    assert (trip.cuts, trip.receipt, trip.is_proven) == (1, "", True)


# -- the judgement -----------------------------------------------------------------------------------------


SEEN = Witnessed(
    visit="v1",
    site=SITE,
    host=bytes(32),
    is_whole=True,
    ended=Ended.FINISHED,
    costs=Usage(pages=6, requests=9, bytes_received=120_000, cpu_seconds=0.75),
    root=bytes(32),
    received_bytes=10_000,
    lost_streams=0,
    earliest=NOW,
    latest=NOW + 10,
)


def judged(sent_bytes: int, **seen: Any) -> str:
    receipt = Receipt(
        visit="v1",
        site=SITE,
        home=bytes(32),
        host=bytes(32),
        began=NOW + 1,
        over=NOW + 2,
        ended=Ended.FINISHED,
        pages=6,
        requests=9,
        read_bytes=120_000,
        sent_bytes=sent_bytes,
        cpu_seconds=0.75,
        spared_requests=7,
        spared_bytes=spared(120_000, sent_bytes),
        root=bytes(32),
    )
    return dispute(receipt, msgspec.structs.replace(SEEN, **seen))


@pytest.mark.parametrize(
    ("sent_bytes", "lost_streams", "is_signed"),
    [
        (10_000, 0, True),
        (10_001, 0, False),
        (9_999, 0, False),
        (10_000, 1, True),
        (10_000 + LOST_BYTES, 1, True),
        (10_001 + LOST_BYTES, 1, False),
        (9_999, 5, False),
    ],
)
def test_more_than_came_is_believed_only_where_a_stream_was_lost(
    sent_bytes: int, lost_streams: int, is_signed: bool
) -> None:
    assert (judged(sent_bytes, lost_streams=lost_streams) == "") is is_signed


def test_visit_that_was_not_seen_whole_is_not_signed() -> None:
    assert judged(10_000) == ""
    assert judged(10_000, is_whole=False)
