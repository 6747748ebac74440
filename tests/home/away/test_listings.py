"""A host's own listing spares pages of a refresh: those with the digest that home has, for a time.

One that proves wrong counts against its host.
"""

import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from email.utils import formatdate
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from sterna.errors import WireError
from sterna.home.away.listings import (
    MAX_TRUST_SECONDS,
    READ_ANYWAY,
    Spared,
    _due,
    judge_listings,
    judged,
    spared,
)
from sterna.home.ledger.records import Reread, Stale, TrustRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Target, Validator
from sterna.wire.listing import MAX_LISTED, Listing, pack_listing, unpack_listing

SITE = "https://www.example.org"
NOW = 1_700_000_000.0
DAY = 24 * 3600.0
ALL = 1_000


class Never(Random):
    """Reads no page anyway."""

    def random(self) -> float:
        return 1.0


def digest(mark: int, version: int = 0) -> bytes:
    return bytes([version]) + mark.to_bytes(15, "big")


def listing(began: float = NOW - DAY, *, changed: int = 0) -> Listing:
    pages = tuple(Validator(mark, digest=digest(mark, mark <= changed)) for mark in range(1, ALL + 1))
    return unpack_listing(pack_listing(Listing(site=SITE, began=began, pages=pages)), SITE)


def due(age: float = 3 * DAY, count: int = ALL) -> list[Stale]:
    return [Stale(mark, digest(mark), NOW - age) for mark in range(1, count + 1)]


def spared_of(pages: list[Stale], given: Listing, random: Random | None = None) -> frozenset[int]:
    return listed_of(pages, given, random).pages


def listed_of(pages: list[Stale], given: Listing, random: Random | None = None) -> Spared:
    return spared(pages, given, older_than=NOW - 2 * DAY, now=NOW, random=random or Never())


def test_pages_with_the_digest_that_home_has_are_spared() -> None:
    assert spared_of(due(), listing(changed=10)) == set(range(11, ALL + 1))


def test_unlisted_pages_and_those_without_a_digest_are_read() -> None:
    pages = [Stale(5000, digest(5000), NOW - 3 * DAY), Stale(1, b"", NOW - 3 * DAY)]
    assert spared_of(pages, listing()) == set()


@pytest.mark.parametrize("began", [NOW - 3 * DAY, NOW + DAY])
def test_listing_that_is_too_old_or_of_the_future_spares_nothing(began: float) -> None:
    assert spared_of(due(), listing(began)) == set()


def test_page_that_home_has_not_read_for_a_month_is_read() -> None:
    assert spared_of(due(MAX_TRUST_SECONDS + 1), listing()) == set()


def test_some_are_read_all_the_same() -> None:
    count = ALL - len(spared_of(due(), listing(), Random(7)))
    assert READ_ANYWAY * ALL / 2 < count < READ_ANYWAY * ALL * 2


def test_listing_of_another_site_or_version_is_refused() -> None:
    packed = pack_listing(Listing(site=SITE, began=NOW))
    with pytest.raises(WireError, match="another site"):
        unpack_listing(packed, "https://other.example.org")
    with pytest.raises(WireError, match="version 2"):
        unpack_listing(pack_listing(Listing(version=2, site=SITE, began=NOW)), SITE)
    with pytest.raises(WireError, match="no time"):
        unpack_listing(pack_listing(Listing(site=SITE, began=float("nan"))), SITE)
    for data in (b"", b"\xc1", b"<html>", packed[:-3]):
        with pytest.raises(WireError):
            unpack_listing(data, SITE)


def test_million_pages_take_twelve_bytes_each() -> None:
    packed = pack_listing(listing())
    assert len(packed) < 14 * ALL


def test_listing_of_more_pages_than_hosts_list_is_refused_before_it_is_decoded() -> None:
    marks = msgspec.msgpack.encode(((b"", b""), (b"", bytes(6 * (MAX_LISTED + 1))), b"", b"", b"", b""))
    packed = msgspec.msgpack.encode((1, SITE, NOW, marks))
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="6,000,006 bytes of fingerprints; 6,000,000 are allowed"):
            unpack_listing(packed, SITE)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(packed)
    finally:
        tracemalloc.stop()


# -- what is read all the same -----------------------------------------------------------------------------


def date(seconds: float) -> str:
    return formatdate(seconds, usegmt=True)


def asked(*marks: int) -> Spared:
    return Spared(asked={mark: digest(mark)[:5] for mark in marks}, began=NOW - DAY, key="host")


def read(mark: int, *, version: int = 0, modified: str = "") -> Reread:
    return Reread(mark, f"{SITE}/{mark}", digest(mark, version), modified)


def test_what_is_read_all_the_same_is_remembered_with_its_digest() -> None:
    given = listed_of(due(), listing(changed=10), Random(7))
    assert given.asked
    assert not given.asked.keys() & given.pages
    assert given.asked == {mark: digest(mark)[:5] for mark in given.asked}
    assert given.pages | given.asked.keys() == set(range(11, ALL + 1))


def test_page_that_had_changed_before_the_listing_was_made_is_a_lie() -> None:
    old, new = date(NOW - 2 * DAY), date(NOW - DAY / 2)
    verdict = judged(asked(1, 2, 3, 4), [read(1, version=1, modified=old), read(2), read(9, version=1)])
    assert ([page.fingerprint for page in verdict.altered], verdict.read) == ([1], 2)
    assert verdict.is_doubtful
    for modified in (new, "", "yesterday"):
        verdict = judged(asked(1, 2), [read(1, version=1, modified=modified), read(2)])
        assert (verdict.altered, len(verdict.changed), verdict.is_doubtful) == ((), 1, False)


def test_listing_of_which_half_has_changed_is_doubted() -> None:
    pages = [read(1, version=1), read(2, version=1), read(3), read(4)]
    verdict = judged(asked(1, 2, 3, 4), pages)
    assert (verdict.altered, verdict.is_doubtful) == ((), True)
    assert not judged(asked(1, 2, 3, 4, 5), [*pages, read(5)]).is_doubtful


class Desk:
    """The ledger, asked in this thread."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger

    async def do(self, work: Callable[[Any], Any]) -> Any:
        return work(self.ledger)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """Home has read one page of the site again, which changed in the year before."""
    with closing(SqliteLedger(tmp_path / "ledger.sqlite")) as ledger:
        ledger.seed([Target(f"{SITE}/")], now=NOW)
        with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db, db:
            db.execute(
                "INSERT INTO page (site_id, fingerprint, url, status, error, depth, fetched, etag, modified,"
                " digest, has_raw) SELECT id, 1, ?, 200, '', 0, ?, '', ?, ?, 0 FROM site",
                (f"{SITE}/1", NOW, date(NOW - 300 * DAY), digest(1, 1)),
            )
        yield ledger


async def test_lying_listing_counts_against_its_host_and_is_not_believed_for_a_while(
    ledger: SqliteLedger,
) -> None:
    warnings: list[str] = []
    ledger.trust.set(TrustRow(site=SITE, key="host", good=50.0, at=NOW))
    desk: Any = Desk(ledger)
    await judge_listings(desk, {SITE: asked(1, 2)}, since=NOW - 60, now=NOW, warn=warnings.append)
    row = ledger.trust.row(SITE)
    assert row
    assert (row.good, row.bad, row.until) == (0.0, 1.0, NOW + DAY)
    (sample,) = ledger.trust.samples(SITE)
    assert (sample.url, sample.verdict) == (f"{SITE}/1", "altered")
    assert len(warnings) == 1
    assert f"the host of {SITE} lied" in warnings[0]
    assert _due(ledger, site=SITE, older_than=NOW + 1, now=NOW + DAY / 2) == []


async def test_true_listing_changes_nothing(ledger: SqliteLedger) -> None:
    warnings: list[str] = []
    true = Spared(asked={1: digest(1, 1)[:5]}, began=NOW - DAY, key="host")
    desk: Any = Desk(ledger)
    await judge_listings(desk, {SITE: true}, since=NOW - 60, now=NOW, warn=warnings.append)
    assert (ledger.trust.row(SITE), warnings) == (None, [])
