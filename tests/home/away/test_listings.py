"""A host's own listing spares pages of a refresh: those with the digest that home has, for a time."""

import tracemalloc
from random import Random

import msgspec
import pytest

from sterna.errors import WireError
from sterna.home.away.listings import MAX_TRUST_SECONDS, READ_ANYWAY, spared
from sterna.home.ledger.records import Stale
from sterna.model import Validator
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
