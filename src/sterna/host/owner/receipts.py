"""The receipts of a host's visits: counted while a visit runs, signed at its end, kept for good, and summed.

What counts is the payload, the bytes that were signed, with the signatures; they are verified when read.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from datetime import date
from functools import reduce
from itertools import groupby
from operator import add
from pathlib import Path

from msgspec.structs import astuple

from sterna.errors import Refused, StorageError, UsageError, WireError
from sterna.host.files import Database
from sterna.host.state import FORMAT, KEEP_RECEIPT, NAME, has_old_files, open_state
from sterna.model import Ended, Record, Usage, Visit
from sterna.wire.keys import Identity, PublicKey
from sterna.wire.receipts import LEAST_CALLS, MAX_TIME, Receipt, SignedReceipt, spared

CALLS_OF_A_STREAM = 2  # a greeting and an order
MAX_BILLS = 8  # of one visit, so that a home that resumes a finished visit again and again fills no disk
MAX_NAME = 100
MAX_AGENT = 400
SUM_SECONDS = 60.0  # between two readings for the status page: each verifies every signature

_log = logging.getLogger(__name__)


class KeptReceipt(Record, frozen=True):
    """A receipt with valid signatures, and what the host knew of its home."""

    receipt: Receipt
    signed: SignedReceipt
    name: str = ""  # the owner's name for the home
    agent: str = ""  # the user agent of its crawlers

    @property
    def is_countersigned(self) -> bool:
        return bool(self.signed.by_home)


class Book(Record, frozen=True):
    """All receipts of a host, the newest of each visit, and how many were found damaged."""

    rows: tuple[KeptReceipt, ...] = ()
    bad_lines: int = 0


class Receipts:
    """Signs receipts and keeps them in the host's database."""

    def __init__(
        self, database: Database, identity: Identity, *, wall: Callable[[], float] = time.time
    ) -> None:
        self.wall = wall  # receipts carry wall-clock time
        self.identity = identity
        self._database = database

    def sign(self, receipt: Receipt) -> SignedReceipt:
        return SignedReceipt.make(receipt, self.identity)

    def note(self, signed: SignedReceipt, *, name: str = "", agent: str = "") -> None:
        """Keeps a receipt; it is on the disk when this returns. StorageError if that fails."""
        receipt = signed.open()
        with self._database.transaction(is_durable=True) as db:
            about = (receipt.visit, receipt.home, *astuple(signed), name[:MAX_NAME], agent[:MAX_AGENT])
            db.execute(KEEP_RECEIPT, about)

    def countersign(self, visit: str, home: PublicKey, signature: bytes) -> None:
        """Keeps the home's signature under the newest receipt of its visit; may be repeated.

        Refused if there is no such receipt, WireError if the signature is not that home's under this one.
        """
        with self._database.snapshot() as db:
            row = db.execute(
                "SELECT payload, by_host FROM receipt WHERE visit = ? AND home = ? ORDER BY id DESC LIMIT 1",
                (visit, home.data),
            ).fetchone()
        if row is None:
            raise Refused("gone", f"there is no receipt of visit {visit} for your key")
        signed = SignedReceipt(row[0], row[1], signature)
        signed.open()
        with self._database.transaction(is_durable=True) as db:
            db.execute("UPDATE receipt SET by_home = ? WHERE payload = ?", (signature, signed.payload))


def read_book(state: Path) -> Book:
    """The receipts in a host's folder of state; none if no host has worked there."""
    with suppress(UsageError), closing(_open(state)) as database:
        return _read(database)
    return Book()


def _open(state: Path) -> Database:
    is_old = has_old_files(state)
    return open_state(state) if is_old else Database(state / NAME, FORMAT, is_reader=True)


def _read(database: Database) -> Book:
    with database.snapshot() as db:
        rows = db.execute("SELECT payload, by_host, by_home, name, agent FROM receipt ORDER BY id").fetchall()
    found: dict[tuple[bytes, str, float], KeptReceipt] = {}
    bad_lines = 0
    for payload, by_host, by_home, name, agent in rows:
        signed = SignedReceipt(payload, by_host, by_home)
        try:
            kept = KeptReceipt(signed.open(), signed, name, agent)
        except WireError:
            bad_lines += 1
            continue
        key = (kept.receipt.home, kept.receipt.visit, kept.receipt.began)
        # A later receipt that the home has not signed does not replace one that both signed.
        if kept.is_countersigned or key not in found or not found[key].is_countersigned:
            found[key] = kept
    ordered = sorted(found.values(), key=lambda kept: (kept.receipt.began, kept.receipt.visit))
    return Book(tuple(ordered), bad_lines)


class Account:
    """What one visit costs its site; changed in the loop's thread only."""

    def __init__(
        self, visit: Visit, *, home: str, name: str, receipts: Receipts, began: float | None = None
    ) -> None:
        self._visit = visit.id
        self._site = visit.site
        self._agent = visit.etiquette.outside_agent
        self._home = home
        self._name = name
        self._receipts = receipts
        self.began = began  # set by begin(), unless it began before the host was restarted
        # Set by end().
        self._over = 0.0
        self._ended: Ended | None = None
        self._usage = Usage()
        self._root = b""
        # Changed by _make().
        self._bills: list[SignedReceipt] = []
        self._billed_bytes = 0
        # Increased by those who serve the home.
        self.streams = 0
        self.calls = 0  # other than those for streams
        self.sent_bytes = 0  # by all streams

    def begin(self) -> None:
        if self.began is None:
            self.began = _credible(self._receipts.wall())

    def end(self, usage: Usage, ended: Ended | None, *, root: bytes, at: float) -> None:
        """The visit is over since then, by the wall clock; without `ended` it was broken off."""
        self._over = _credible(at)
        self._usage = usage
        self._ended = ended
        self._root = root

    async def bill(self) -> bytes:
        """The encoded receipt of a visit that is over, after keeping it; b"" if it never began."""
        # It counts what all streams have written so far, so a stream that is resumed gets another one.
        is_due = not self._bills or self.sent_bytes > self._billed_bytes
        if is_due and len(self._bills) < MAX_BILLS and (made := self._make()):
            await asyncio.to_thread(self._note, made)
        return self._bills[-1].encode() if self._bills else b""

    def close(self) -> None:
        """Keeps the receipt of a visit whose home never fetched its end."""
        if not self._bills and (made := self._make()):
            self._note(made)

    def _make(self) -> SignedReceipt | None:
        if self.began is None:
            return None
        usage, calls = self._usage, max(CALLS_OF_A_STREAM * self.streams + self.calls, LEAST_CALLS)
        receipt = Receipt(
            visit=self._visit,
            site=self._site,
            home=PublicKey.parse(self._home).data,
            host=self._receipts.identity.public.data,
            began=self.began,
            over=max(self._over, self.began),  # the clock may have been set back
            ended=self._ended or Ended.LOST,
            pages=usage.pages,
            requests=usage.requests,
            read_bytes=usage.bytes_received,
            sent_bytes=self.sent_bytes,
            cpu_seconds=usage.cpu_seconds,
            spared_requests=spared(usage.requests, calls),
            spared_bytes=spared(usage.bytes_received, self.sent_bytes),
            root=self._root,
        )
        self._billed_bytes = self.sent_bytes
        self._bills.append(self._receipts.sign(receipt))
        return self._bills[-1]

    def _note(self, made: SignedReceipt) -> None:
        try:
            self._receipts.note(made, name=self._name, agent=self._agent)
        except StorageError as error:
            # The home gets it all the same, and the visit is over.
            _log.error("the receipt of visit %s is not kept: %s", self._visit, error)


def _credible(time: float) -> float:
    # A clock may show anything; a receipt may not.
    return min(max(time, 0.0), MAX_TIME)


class Total(Record, frozen=True, array_like=False):
    visits: int = 0
    countersigned: int = 0  # of these, signed by their homes too
    pages: int = 0
    requests: int = 0
    read_bytes: int = 0
    sent_bytes: int = 0
    cpu_seconds: float = 0.0
    spared_requests: int = 0
    spared_bytes: int = 0

    def plus(self, kept: KeptReceipt) -> "Total":
        numbers = (getattr(kept.receipt, name) for name in Total.__struct_fields__[2:])
        return Total(*map(add, astuple(self), (1, kept.is_countersigned, *numbers)))


class HomeTotal(Record, frozen=True, array_like=False):
    """The sum over the visits of one home, on one day or in all."""

    home: str  # the owner's name for it
    key: str
    total: Total
    day: date | None = None


def total_of(rows: Iterable[KeptReceipt]) -> Total:
    return reduce(Total.plus, rows, Total())


def by_home(rows: Sequence[KeptReceipt]) -> list[HomeTotal]:
    """The sum for each home, ordered by name."""
    return [HomeTotal(name_of(own), key, total_of(own)) for key, own in grouped(rows).items()]


def by_home_and_day(rows: Sequence[KeptReceipt], day_of: Callable[[float], date]) -> list[HomeTotal]:
    """The sum for each home and each day on which visits of it began, ordered by name and day."""

    def began_on(kept: KeptReceipt) -> date:
        return day_of(kept.receipt.began)

    return [
        HomeTotal(name_of(own), key, total_of(some), day)
        for key, own in grouped(rows).items()
        for day, some in groupby(sorted(own, key=began_on), key=began_on)
    ]


def grouped(rows: Sequence[KeptReceipt]) -> dict[str, list[KeptReceipt]]:
    """The receipts of each home by its key; homes are ordered by name."""
    homes: dict[bytes, list[KeptReceipt]] = {}
    for kept in rows:
        homes.setdefault(kept.receipt.home, []).append(kept)
    named = sorted(homes.items(), key=lambda item: (name_of(item[1]), item[0]))
    return {PublicKey(key).text: own for key, own in named}


def name_of(own: Sequence[KeptReceipt]) -> str:
    """The owner's latest name for the home of these receipts; the id of its key if it never had one."""
    latest = max(own, key=lambda kept: kept.receipt.began)
    return latest.name or PublicKey(latest.receipt.home).id


class HomeTotals:
    """The sums by home for the status page, at most a minute old; those who spared most bytes come first."""

    def __init__(self, state: Path) -> None:
        self._state = state
        # Changed by a call alone.
        self._seen: tuple[float, ...] = (0, 0)  # receipts, and those that are countersigned
        self._due = 0.0
        self._totals: Sequence[HomeTotal] = ()

    def __call__(self) -> Sequence[HomeTotal]:
        if time.monotonic() < self._due:
            return self._totals
        with suppress(UsageError), closing(_open(self._state)) as database:  # no host may have worked there
            with database.snapshot() as db:
                seen = db.execute("SELECT count(*), total(by_home <> x'') FROM receipt").fetchone()
            if seen != self._seen:
                totals = by_home(_read(database).rows)
                self._totals = sorted(totals, key=lambda each: -each.total.spared_bytes)
                self._seen, self._due = seen, time.monotonic() + SUM_SECONDS
        return self._totals
