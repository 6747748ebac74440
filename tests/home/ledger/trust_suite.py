"""What every ledger keeps of believing hosts: scores, samples, receipts, priorities."""

from collections.abc import Callable

from tests.home.ledger.host_suite import HostSuite
from tests.home.ledger.ledger_suite import OTHER, SITE, page, targets
from tests.making import parcel

from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.records import Change, HostRow, SampleRow, TrustRow
from sterna.model import Checkpoint, Ended, Usage


def sample(path: str, visit: str = "v1", site: str = SITE, at: float = 5.0) -> SampleRow:
    return SampleRow(visit=visit, url=f"{site}{path}", site=site, verdict="same", at=at)


class TrustSuite(HostSuite):
    """The whole suite: what a subclass of it passes, it passes of `HostSuite` too."""

    def test_nothing_is_known_of_a_host_that_was_never_checked(self, ledger: Ledger) -> None:
        assert (ledger.trust.row(SITE), ledger.trust.rows(), ledger.trust.samples(SITE)) == (None, [], [])

    def test_trust_survives_reopening_and_is_replaced_whole(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        first = TrustRow(site=SITE, key="ed25519:k", good=12.5, bad=0.5, at=7.0, until=9.0)
        ledger.trust.set(first, [sample("/a"), sample("/b", at=6.0)])
        ledger.trust.set(TrustRow(site=OTHER, good=1.0))
        ledger.close()
        again = reopen()
        assert again.trust.row(SITE) == first
        assert [row.site for row in again.trust.rows()] == [SITE, OTHER]
        assert [each.url for each in again.trust.samples(SITE)] == [f"{SITE}/b", f"{SITE}/a"]
        later = TrustRow(site=SITE, key="ed25519:k", good=13.0, at=8.0)
        again.trust.set(later, [sample("/c", visit="v2", at=8.0)])
        assert again.trust.row(SITE) == later
        assert len(again.trust.samples(SITE)) == 3
        again.trust.set(TrustRow(site=SITE, at=200 * 86_400.0))
        assert again.trust.samples(SITE) == []  # after half a year they say nothing any more

    def test_host_that_is_forgotten_leaves_nothing_and_is_tried_again(self, ledger: Ledger) -> None:
        ledger.trust.set(TrustRow(site=SITE, bad=1.0, until=99.0), [sample("/a")])
        ledger.trust.set(TrustRow(site=OTHER), [sample("/a", visit="v2", site=OTHER)])
        ledger.set_host(HostRow(site=SITE, key="k", failed_until=99.0))
        assert ledger.trust.forget(SITE) is True
        assert (ledger.trust.row(SITE), ledger.trust.samples(SITE)) == (None, [])
        assert len(ledger.trust.samples(OTHER)) == 1
        row = ledger.host_row(SITE)
        assert row and (row.key, row.failed_until) == ("k", 0.0)
        assert ledger.trust.forget(SITE) is False

    def test_what_a_check_took_counts_as_the_crawls_own(self, ledger: Ledger) -> None:
        ledger.seed(targets("/", depth=0), now=1.0)
        ledger.trust.count(SITE, Usage(requests=3, bytes_received=500))
        counts, (site,) = ledger.counts(now=2.0), ledger.site_rows()
        assert (counts.requests, counts.bytes_received, counts.pages) == (3, 500, 0)
        assert (site.requests, site.bytes_received) == (3, 500)

    def test_pages_of_a_liar_are_put_back_and_asked_for_whole(self, ledger: Ledger) -> None:
        ledger.seed(targets("/old", depth=0), now=1.0)
        (lease,) = ledger.lease(["v1"], now=1.0, pages=10, max_depth=64)
        before = parcel(lease, pages=(page("/old", fetched=10.0),), ended=Ended.FINISHED)
        ledger.commit(Change(parcels=(before,)), now=10.0)
        ledger.seed(targets("/new", depth=0), now=20.0)
        (lease,) = ledger.lease(["v2"], now=20.0, pages=10, max_depth=64)
        lies = parcel(
            lease,
            pages=(page("/new", fetched=21.0), page("/invented", fetched=22.0)),
            checkpoint=Checkpoint(found=targets("/invented", depth=1)),
            ended=Ended.FINISHED,
        )
        ledger.commit(Change(parcels=(lies,)), now=23.0)
        assert ledger.counts(now=23.0).pending == 0

        assert ledger.trust.put_back(SITE, since=21.0, now=24.0) == 2
        assert ledger.trust.put_back(SITE, since=21.0, now=24.0) == 0
        assert ledger.counts(now=24.0).pending == 2
        (again,) = ledger.lease(["v3"], now=24.0, pages=10, max_depth=64)
        assert sorted(start.url for start in again.starts) == [f"{SITE}/invented", f"{SITE}/new"]
        assert [(each.digest, each.etag) for each in again.known.validators] == [(b"", ""), (b"", "")]
        # A page that is not there after all is no page any more.
        gone = parcel(
            again,
            pages=(page("/new", fetched=30.0), page("/invented", fetched=30.0, status=404)),
            ended=Ended.FINISHED,
        )
        ledger.commit(Change(parcels=(gone,)), now=31.0)
        counts = ledger.counts(now=31.0)
        assert (counts.pages, counts.pending) == (2, 0)

    def test_pages_are_put_back_while_the_site_is_visited_again(self, ledger: Ledger) -> None:
        ledger.seed(targets("/", depth=0), now=1.0)
        (lease,) = ledger.lease(["v1"], now=1.0, pages=10, max_depth=64)
        last = parcel(
            lease,
            pages=(page("/", fetched=2.0),),
            checkpoint=Checkpoint(found=targets("/next")),
            ended=Ended.BUDGET,
        )
        ledger.commit(Change(parcels=(last,)), now=3.0)
        (second,) = ledger.lease(["v2"], now=4.0, pages=10, max_depth=64)
        assert ledger.trust.put_back(SITE, since=1.5, now=5.0) == 1
        ended = parcel(second, pages=(page("/next", fetched=6.0),), ended=Ended.FINISHED)
        ledger.commit(Change(parcels=(ended,)), now=7.0)
        (third,) = ledger.lease(["v3"], now=8.0, pages=10, max_depth=64)
        assert [start.url for start in third.starts] == [f"{SITE}/"]

    def test_priority_stays_when_a_host_is_looked_for_and_found(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        ledger.set_priority(SITE, 7)
        row = ledger.host_row(SITE)
        assert row and (row.priority, row.until, row.offer) == (7, 0.0, None)
        ledger.set_host(HostRow(site=SITE, offer=b"{}", key="k", until=9.0))
        ledger.set_host(HostRow(site=OTHER, until=9.0))
        ledger.set_priority(OTHER, 2)
        ledger.close()
        again = reopen()
        rows = [again.host_row(SITE), again.host_row(OTHER)]
        assert [(row.priority, row.until) for row in rows if row] == [(7, 9.0), (2, 9.0)]

    def test_receipts_come_in_the_order_of_their_visits(self, ledger: Ledger) -> None:
        ledger.seed((*targets("/", depth=0), *targets("/", depth=0, site=OTHER)), now=1.0)
        ledger.lease(["late"], now=5.0, pages=10, max_depth=64)
        ledger.lease(["later"], now=6.0, pages=10, max_depth=64)
        ledger.add_receipt("later", OTHER, b"2")
        ledger.add_receipt("late", SITE, b"0")
        ledger.add_receipt("late", SITE, b"1")
        assert ledger.receipts() == [("late", SITE, b"1"), ("later", OTHER, b"2")]
