"""The conformance suite of the ledger, batches: their numbers, and what was stored before."""

from collections.abc import Callable

import pytest
from tests.home.ledger.ledger_suite import OTHER, SITE, page
from tests.home.ledger.trust_suite import TrustSuite
from tests.making import parcel

from sterna.archive.manifest import Segment
from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.records import Change, Standing
from sterna.model import Ended, Target
from sterna.web.urls import fingerprint


class BatchSuite(TrustSuite):
    """The whole suite: what a subclass of it passes, it passes of `TrustSuite` too."""

    def test_new_ledger_has_no_batch(self, ledger: Ledger) -> None:
        assert ledger.batch() == 0

    def test_batch_is_the_last_one_also_after_reopening(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        for number in (1, 2):
            ledger.commit(Change(parcels=(), batch=number), now=1.0)
        assert ledger.batch() == 2
        ledger.close()
        assert reopen().batch() == 2

    def test_change_without_rows_of_its_own_takes_no_number(self, ledger: Ledger) -> None:
        ledger.commit(Change(parcels=()), now=1.0)
        assert ledger.batch() == 0

    @pytest.mark.parametrize("number", [1, 3])
    def test_batch_that_leaves_a_gap_or_comes_twice_is_refused_with_all_it_brings(
        self, ledger: Ledger, number: int
    ) -> None:
        ledger.commit(Change(parcels=(), batch=1), now=1.0)
        wrong = Change(parcels=(), segments=(Segment("a", "page", 1, 10),), batch=number)
        with pytest.raises(ValueError, match=f"batch {number} is out of order"):
            ledger.commit(wrong, now=1.0)
        assert (ledger.batch(), ledger.segments()) == (1, [])

    def test_batches_are_no_error_and_a_refresh_does_not_count_them_anew(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        last = parcel(self.lease(ledger), pages=(page("/"),), ended=Ended.FINISHED)
        ledger.commit(Change(parcels=(last,), batch=1), now=20.0)
        assert ledger.refresh(older_than=500.0, now=1000.0) == 1
        assert (ledger.batch(), ledger.counts(now=20.0).errors) == (1, {})

    def test_page_that_a_commit_brought_is_known_whatever_it_was(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        pages = (page("/"), page("/gone", status=404), page("/unwanted", is_kept=False))
        self.commit(ledger, parcel(self.lease(ledger), pages=pages))
        marks = [fingerprint(f"{SITE}{path}") for path in ("/", "/gone", "/unwanted", "/new")]
        asked = {(site, mark) for site in (SITE, OTHER) for mark in marks}
        assert len(ledger.standings(asked)) == 3
        assert ledger.standings({(SITE, mark) for mark in marks}) == {
            (SITE, marks[0]): Standing(200, "", True),
            (SITE, marks[1]): Standing(404, "", True),
            (SITE, marks[2]): Standing(200, "", False),
        }
        assert ledger.standings(set()) == {}

    def test_thousands_of_pages_can_be_asked_for(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        pages = tuple(page(f"/{number}") for number in range(1_000))
        self.commit(ledger, parcel(self.lease(ledger), pages=pages))
        asked = {(SITE, fingerprint(f"{SITE}/{number}")) for number in range(2_000)}
        assert ledger.standings(asked).keys() == {(SITE, each.fingerprint) for each in pages}
