"""What earlier visits teach of the next one, and whose turn comes first when sites are visited again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.home.ledger.host_suite import arrived, out_row
from tests.home.ledger.ledger_suite import OTHER, SITE, page, targets
from tests.making import parcel

from sterna.home.ledger.records import Change, Estimate, HostRow, Lease, Subtree
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Checkpoint, Ended, Page, Target, Usage

THIRD = "https://c.example"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    yield ledger
    ledger.close()


def leased(ledger: SqliteLedger, now: float = 10.0) -> Lease:
    (lease,) = ledger.lease([f"visit-{now}"], now=now, pages=100, max_depth=64)
    return lease


def visited(
    ledger: SqliteLedger, *pages: Page, now: float = 10.0, until: float = 20.0, **fields: Any
) -> None:
    """A visit at the host that brings these pages."""
    lease = leased(ledger, now)
    ledger.write_out(out_row(lease), b"luggage")
    last = parcel(lease, pages=pages, ended=Ended.BUDGET, **fields)
    ledger.commit(Change(parcels=(arrived(last),)), now=until)


def test_of_a_site_that_nobody_visited_nothing_is_known(ledger: SqliteLedger) -> None:
    assert ledger.estimate(SITE, with_subtrees=True) == Estimate()
    ledger.seed([Target(f"{SITE}/")], now=1.0)
    assert ledger.estimate(SITE, with_subtrees=True) == Estimate(subtrees=(Subtree("/", 0, 1),))


def test_pages_are_counted_by_the_first_directory(ledger: SqliteLedger) -> None:
    ledger.seed([Target(f"{SITE}/"), Target(f"{OTHER}/a/")], now=1.0)
    found = targets("/a/1", "/a/2?x=/b/", "/b/c/d", "/top.html?q=/x/y", "/a", "/gone/", "/ä/1", "//odd")
    visited(
        ledger,
        page("/"),
        page("/a/1"),
        page("/gone/", status=404),
        page("/b/failed", status=0, error="timeout"),
        checkpoint=Checkpoint(found=found),
    )
    assert ledger.estimate(SITE, with_subtrees=True).subtrees == (
        Subtree("/", 1, 2),
        Subtree("//", 0, 1),
        Subtree("/a/", 1, 1),
        Subtree("/b/", 0, 1),
        Subtree("/ä/", 0, 1),
    )


def test_pages_of_a_refresh_wait_in_their_parts(ledger: SqliteLedger) -> None:
    ledger.seed([Target(f"{SITE}/")], now=1.0)
    visited(ledger, page("/"), page("/a/1"), page("/a/2"))
    ledger.refresh(older_than=500.0, now=1000.0)
    assert ledger.estimate(SITE, with_subtrees=True).subtrees == (
        Subtree("/", 1, 1),
        Subtree("/a/", 2, 2),
    )


def test_sitemaps_are_no_pages(ledger: SqliteLedger) -> None:
    ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/maps/1.xml", kind="sitemap")], now=1.0)
    assert ledger.estimate(SITE, with_subtrees=True).subtrees == (Subtree("/", 0, 1),)


def test_parts_are_looked_at_on_request_only(ledger: SqliteLedger) -> None:
    ledger.seed([Target(f"{SITE}/")], now=1.0)
    assert ledger.estimate(SITE).subtrees == ()


def test_page_costs_what_pages_have_cost_and_the_quickest_visit_counts(ledger: SqliteLedger) -> None:
    """The others may have waited for hours."""
    ledger.seed([Target(f"{SITE}/")], now=1.0)
    usage = Usage(pages=10, requests=20, bytes_received=80_000, cpu_seconds=2.0)
    visited(ledger, page("/"), now=10.0, until=15.0, usage=usage, checkpoint=Checkpoint(found=targets("/x")))
    visited(ledger, page("/x"), now=100.0, until=9_000.0, usage=usage)
    estimate = ledger.estimate(SITE)
    assert (estimate.page_bytes, estimate.page_seconds) == (4_000.0, 0.5)
    assert estimate.page_cpu_seconds == pytest.approx(0.2)


def test_small_visits_say_nothing_of_the_time_that_a_page_takes(ledger: SqliteLedger) -> None:
    ledger.seed([Target(f"{SITE}/")], now=1.0)
    visited(ledger, page("/"), now=10.0, until=15.0, usage=Usage(pages=2, requests=3))
    assert ledger.estimate(SITE).page_seconds == 0.0


def test_visits_from_here_say_nothing_of_the_time_at_a_host(ledger: SqliteLedger) -> None:
    ledger.seed([Target(f"{SITE}/")], now=1.0)
    lease = leased(ledger)
    last = parcel(lease, pages=(page("/"),), usage=Usage(pages=1, requests=1), ended=Ended.FINISHED)
    ledger.commit(Change(parcels=(last,)), now=500.0)
    assert ledger.estimate(SITE).page_seconds == 0.0


def test_reader_can_ask_for_it_too(ledger: SqliteLedger, tmp_path: Path) -> None:
    ledger.seed([Target(f"{SITE}/a/1")], now=1.0)
    reader = SqliteLedger(tmp_path / "ledger.sqlite", is_reader=True)
    try:
        assert reader.estimate(SITE, with_subtrees=True).subtrees == (Subtree("/a/", 0, 1),)
    finally:
        reader.close()


# -- luggage ---------------------------------------------------------------------------------------------


def test_crawler_may_take_something_else_along_until_it_is_over(ledger: SqliteLedger) -> None:
    ledger.seed([Target(f"{SITE}/")], now=1.0)
    lease = leased(ledger)
    ledger.write_out(out_row(lease), b"whole")
    ledger.set_luggage(lease.visit, b"some of it")
    assert ledger.luggage(lease.visit) == b"some of it"
    ledger.lose(lease.visit, now=20.0)
    ledger.set_luggage(lease.visit, b"too late")
    assert ledger.luggage(lease.visit) == b""


# -- promises --------------------------------------------------------------------------------------------


def test_sites_are_visited_again_in_the_order_of_what_they_were_promised(ledger: SqliteLedger) -> None:
    for now, site in enumerate((SITE, OTHER, THIRD), start=10):
        ledger.seed([Target(f"{site}/")], now=1.0)
        lease = leased(ledger, now)
        only = parcel(lease, pages=(page("/", site),), ended=Ended.FINISHED)
        ledger.commit(Change(parcels=(only,)), now=20.0)
    ledger.set_priority(THIRD, 7)
    ledger.set_priority(OTHER, 3)
    assert ledger.refresh(older_than=500.0, now=1000.0) == 3
    leases = ledger.lease(["u", "v", "w"], now=1001.0, pages=5, max_depth=5)
    assert [lease.site for lease in leases] == [THIRD, OTHER, SITE]


def test_promise_survives_what_else_becomes_known_of_a_host(ledger: SqliteLedger) -> None:
    ledger.set_host(HostRow(site=SITE, offer=b"{}", key="k", until=90.0))
    ledger.set_priority(SITE, 4)
    ledger.set_host(HostRow(site=SITE, offer=b"{}", key="k", until=95.0))
    row = ledger.host_row(SITE)
    assert row
    assert (row.priority, row.until) == (4, 95.0)


# -- hosts that said when they open ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "and_ask", "failed_until"),
    [
        ("closed-now: Mondays only", False, 80.0),
        ("closed-now: Mondays only", True, 0.0),
        ("busy: the queue is full", False, 0.0),
    ],
)
def test_host_that_said_when_it_opens_is_left_alone_by_the_next_run_too(
    ledger: SqliteLedger, reason: str, and_ask: bool, failed_until: float
) -> None:
    ledger.set_host(HostRow(site=SITE, offer=b"{}", key="k", failed_until=80.0, reason=reason))
    ledger.forgive_hosts(and_ask=and_ask)
    row = ledger.host_row(SITE)
    assert row
    assert row.failed_until == failed_until
