"""The conformance suite of the ledger: every implementation passes it (see test_sqlite_ledger)."""

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from tests import making
from tests.making import parcel

from sterna.archive.manifest import Segment, WarcPosition
from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.records import WHOLE, Change, Disposal, HostRow, Lease, OwnerRow, TrustRow
from sterna.model import (
    Checkpoint,
    Ended,
    Hold,
    Page,
    Parcel,
    Robots,
    RobotsState,
    Target,
    Usage,
)
from sterna.web.politeness import site_key
from sterna.web.robots import NEVER
from sterna.web.urls import fingerprint

SITE = "https://a.example"
OTHER = "https://b.example"


def page(path: str, site: str = SITE, **fields: Any) -> Page:
    """A page with what lets it be asked for only if it changed."""
    return making.page(path, site=site, **({"fetched": 100.0, "etag": '"1"', "digest": b"d"} | fields))


def targets(*paths: str, depth: int = 1, site: str = SITE, priority: int = 0) -> tuple[Target, ...]:
    return tuple(Target(f"{site}{path}", depth, f"{site}/", priority=priority) for path in paths)


class LedgerSuite:
    """A subclass gives the fixtures `ledger` and `reopen`."""

    @pytest.fixture
    def ledger(self) -> Ledger:
        raise NotImplementedError

    @pytest.fixture
    def reopen(self) -> Callable[[], Ledger]:
        raise NotImplementedError

    def lease(self, ledger: Ledger, now: float = 10.0, **fields: int) -> Lease:
        limits = {"pages": 100, "max_depth": 64, **fields}
        (lease,) = ledger.lease(
            [f"visit-{now}"], now=now, pages=limits["pages"], max_depth=limits["max_depth"]
        )
        return lease

    def commit(self, ledger: Ledger, *parcels: Parcel, now: float = 20.0) -> None:
        ledger.commit(Change(parcels=parcels), now=now)

    # -- leases ------------------------------------------------------------------------------------------

    def test_empty_ledger_has_nothing_to_lease(self, ledger: Ledger) -> None:
        assert ledger.lease(["v"], now=1.0, pages=10, max_depth=5) == []

    def test_seed_is_leased_once(self, ledger: Ledger) -> None:
        assert ledger.seed([Target(f"{SITE}/")], now=1.0, private_sites=[SITE]) == 1
        lease = self.lease(ledger)
        assert (lease.site, lease.part, lease.epoch) == (SITE, WHOLE, 1)
        assert [target.url for target in lease.starts] == [f"{SITE}/"]
        assert lease.may_be_private
        assert ledger.lease(["second"], now=11.0, pages=10, max_depth=5) == []

    def test_seed_that_is_known_is_not_added_again(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        assert ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/new")], now=2.0) == 1

    def test_sites_take_turns_in_the_order_they_became_due(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=2.0)
        ledger.seed([Target(f"{OTHER}/")], now=1.0)
        leases = ledger.lease(["v", "w", "x"], now=10.0, pages=5, max_depth=5)
        assert [(lease.visit, lease.site) for lease in leases] == [("v", OTHER), ("w", SITE)]

    def test_lease_gives_lowest_depth_first_and_goes_no_deeper_than_it_could_hold(
        self, ledger: Ledger
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        found = targets("/x", "/y", depth=1) + targets("/deep", depth=2)
        lease = self.lease(ledger)
        self.commit(
            ledger,
            parcel(lease, pages=(page("/"),), checkpoint=Checkpoint(found=found), ended=Ended.BUDGET),
        )
        second = self.lease(ledger, 30.0, pages=2)
        assert {target.url for target in second.starts} == {f"{SITE}/x", f"{SITE}/y"}
        assert second.depth == 1

    def test_lease_of_long_urls_gives_fewer_of_them(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        long = targets(*(f"/{number:04}{'x' * 2_000}" for number in range(6_000)), depth=1)
        found = long + targets("/deep", depth=2)
        lease = self.lease(ledger)
        self.commit(
            ledger,
            parcel(lease, pages=(page("/"),), checkpoint=Checkpoint(found=found), ended=Ended.BUDGET),
        )
        second = self.lease(ledger, 30.0, pages=20_000)
        assert 8_000_000 < sum(len(target.url) + len(target.referrer) for target in second.starts) < 8_400_000
        assert (second.pages, second.depth) == (20_000, 1)

    def test_too_deep_targets_wait_until_the_limit_is_raised(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger, max_depth=0)
        found = targets("/below", depth=1)
        self.commit(
            ledger,
            parcel(lease, pages=(page("/"),), checkpoint=Checkpoint(found=found), ended=Ended.FINISHED),
        )
        assert ledger.lease(["no"], now=30.0, pages=5, max_depth=0) == []
        assert ledger.counts(now=30.0).next_turn is None
        ledger.wake(now=31.0)
        assert self.lease(ledger, 32.0, max_depth=1).starts[0].url == f"{SITE}/below"

    def test_known_pages_go_with_the_next_visit(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        checkpoint = Checkpoint(found=targets("/a", "/b"), done=(fingerprint(f"{SITE}/b"),))
        self.commit(ledger, parcel(lease, pages=(page("/"),), checkpoint=checkpoint, ended=Ended.BUDGET))
        known = array("q")
        known.frombytes(self.lease(ledger, 30.0).known.fingerprints)
        assert list(known) == sorted([fingerprint(f"{SITE}/"), fingerprint(f"{SITE}/b")])

    def test_site_that_may_not_be_visited_is_idle_until_the_next_wake(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{OTHER}/")], now=1.0)
        (lease,) = ledger.lease(
            ["v", "w"], now=2.0, pages=1, max_depth=1, may_visit=lambda site: site == OTHER
        )
        assert lease.site == OTHER
        assert ledger.counts(now=2.0).next_turn is None
        ledger.wake(now=3.0)
        assert self.lease(ledger).site == SITE

    # -- parcels -----------------------------------------------------------------------------------------

    def test_parcel_is_stored_once(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        usage = Usage(pages=1, requests=2, bytes_received=3)
        one = parcel(self.lease(ledger), pages=(page("/"),), usage=usage)
        assert ledger.judge(one) is Disposal.NEW
        self.commit(ledger, one)
        assert ledger.judge(one) is Disposal.STORED
        self.commit(ledger, one)
        counts = ledger.counts(now=20.0)
        assert (counts.pages, counts.requests, counts.bytes_received, counts.pending) == (1, 2, 3, 0)

    def test_parcel_after_a_missing_one_is_refused(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        assert ledger.judge(parcel(lease, 2)) is Disposal.GAP

    def test_parcel_of_an_old_epoch_is_refused(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        old = self.lease(ledger)
        ledger.recover(now=20.0, least_pause=1.0)
        new = self.lease(ledger, 30.0)
        late = parcel(old, pages=(page("/"),), usage=Usage(pages=1))
        assert new.epoch == old.epoch + 1
        assert ledger.judge(late) is Disposal.STALE
        self.commit(ledger, late)
        assert ledger.counts(now=30.0).pages == 0

    def test_last_parcel_repeated_after_the_visit_is_acknowledged_and_not_stored(
        self, ledger: Ledger
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        last = parcel(self.lease(ledger), pages=(page("/"),), usage=Usage(pages=1), ended=Ended.FINISHED)
        self.commit(ledger, last)
        assert ledger.judge(last) is Disposal.STORED
        self.commit(ledger, last)
        assert ledger.counts(now=20.0).pages == 1

    def test_parcels_of_one_visit_may_come_in_one_commit_and_none_after_the_last(
        self, ledger: Ledger
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        parcels = [parcel(lease, number, usage=Usage(pages=1)) for number in (1, 2, 2)]
        last = parcel(lease, 3, pages=(page("/"),), usage=Usage(pages=1), ended=Ended.FINISHED)
        self.commit(ledger, *parcels, last, parcel(lease, 4, usage=Usage(pages=1)))
        assert (ledger.counts(now=20.0).round_pages, ledger.visit_rows()[0].parcels) == (3, 3)

    def test_link_of_two_parcels_of_a_commit_waits_once_at_its_lowest_depth(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{OTHER}/")], now=1.0)
        here, there = ledger.lease(["v", "w"], now=2.0, pages=5, max_depth=5)
        found = Checkpoint(found=targets("/x", depth=3))
        self.commit(
            ledger,
            parcel(here, pages=(page("/"),), checkpoint=found, ended=Ended.BUDGET),
            parcel(there, pages=(page("/", OTHER),), outlinks=targets("/x", depth=2), ended=Ended.FINISHED),
        )
        assert ledger.counts(now=20.0).pending == 1
        assert [target.depth for target in self.lease(ledger, 30.0).starts] == [2]

    def test_thousands_of_links_are_each_added_once(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        paths = [f"/{number}" for number in range(3_000)]
        self.commit(ledger, parcel(lease, 1, checkpoint=Checkpoint(found=targets(*paths[:2_000]))))
        self.commit(ledger, parcel(lease, 2, checkpoint=Checkpoint(found=targets(*paths[1_000:]))))
        assert ledger.counts(now=20.0).pending == 1 + 3_000

    def test_start_comes_with_its_referrer_of_its_own_or_of_another_site(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        referrers = ("", f"{SITE}/", f"{SITE}//a?b", f"{OTHER}/c", f"{SITE}.org/d")
        found = tuple(Target(f"{SITE}/{number}", 1, each) for number, each in enumerate(referrers))
        last = parcel(
            self.lease(ledger), pages=(page("/"),), checkpoint=Checkpoint(found=found), ended=Ended.BUDGET
        )
        self.commit(ledger, last)
        starts = self.lease(ledger, 30.0).starts
        assert {(target.url, target.referrer) for target in starts} == {
            (target.url, target.referrer) for target in found
        }

    def test_finished_site_has_no_turn(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        self.commit(ledger, parcel(self.lease(ledger), pages=(page("/"),), ended=Ended.FINISHED))
        assert ledger.counts(now=20.0).next_turn is None

    def test_outlink_wakes_another_site_and_a_finished_one(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        first = self.lease(ledger)
        self.commit(
            ledger,
            parcel(first, pages=(page("/"),), outlinks=targets("/", site=OTHER), ended=Ended.FINISHED),
        )
        second = self.lease(ledger, 30.0)
        assert (second.site, second.may_be_private) == (OTHER, False)
        back = parcel(second, pages=(page("/", OTHER),), outlinks=targets("/late"), ended=Ended.FINISHED)
        self.commit(ledger, back, now=40.0)
        third = self.lease(ledger, 50.0)
        assert (third.site, third.epoch, third.starts[0].url) == (SITE, 2, f"{SITE}/late")

    def test_moved_start_page_makes_its_new_site_a_seed_but_not_private(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        moved = parcel(self.lease(ledger), outlinks=targets("/", site=OTHER, depth=0), ended=Ended.FINISHED)
        self.commit(ledger, moved)
        assert ledger.seed_sites() == {SITE, OTHER}
        leases = {lease.site: lease for lease in (self.lease(ledger, 30.0), self.lease(ledger, 31.0))}
        assert not leases[OTHER].may_be_private

    def test_nearer_way_to_a_waiting_url_lowers_its_depth(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        self.commit(ledger, parcel(lease, 1, checkpoint=Checkpoint(found=targets("/x", depth=7))))
        self.commit(ledger, parcel(lease, 2, checkpoint=Checkpoint(found=targets("/x", depth=2))))
        last = parcel(lease, 3, pages=(page("/"),), ended=Ended.BUDGET)
        self.commit(ledger, last)
        assert [t.depth for t in self.lease(ledger, 30.0).starts] == [2]
        assert ledger.counts(now=30.0).pending == 1

    def test_page_leaves_the_frontier_whatever_depth_it_was_found_at(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        self.commit(ledger, parcel(lease, 1, checkpoint=Checkpoint(found=targets("/x", depth=3))))
        self.commit(ledger, parcel(lease, 2, pages=(page("/"), page("/x", depth=1)), ended=Ended.FINISHED))
        assert ledger.counts(now=30.0).pending == 0

    def test_target_to_be_tried_again_keeps_its_attempts_and_its_time(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        again = Target(f"{SITE}/", attempts=2, not_before=500.0)
        ended = parcel(self.lease(ledger), checkpoint=Checkpoint(again=(again,)), ended=Ended.STOPPED)
        self.commit(ledger, ended)
        assert ledger.lease(["early"], now=400.0, pages=1, max_depth=1) == []
        assert ledger.counts(now=400.0).next_turn == 500.0
        assert self.lease(ledger, 501.0).starts[0].attempts == 2

    def test_urls_of_a_kind_wait_until_they_are_done(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        maps = tuple(Target(f"{SITE}/{name}.xml", 0, f"{SITE}/", "sitemap") for name in "ab")
        lease = self.lease(ledger)
        self.commit(ledger, parcel(lease, 1, checkpoint=Checkpoint(found=(*maps, *targets("/x")))))
        assert sorted(ledger.waiting(SITE, WHOLE, kinds=("sitemap",)), key=lambda each: each.url) == [*maps]
        assert len(ledger.waiting(SITE, WHOLE, kinds=("sitemap", "page"))) == 4
        done = Checkpoint(done=(fingerprint(maps[0].url),))
        self.commit(ledger, parcel(lease, 2, checkpoint=done))
        assert ledger.waiting(SITE, WHOLE, kinds=("sitemap",)) == [maps[1]]
        assert ledger.waiting(SITE, "/part/", kinds=("sitemap",)) == []
        assert ledger.waiting(OTHER, WHOLE, kinds=("sitemap",)) == []

    def test_usage_adds_up(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        self.commit(ledger, parcel(lease, 1, usage=Usage(pages=2, errors={"timeout": 1})))
        self.commit(ledger, parcel(lease, 2, usage=Usage(pages=3, errors={"timeout": 1, "http_404": 4})))
        counts = ledger.counts(now=30.0)
        assert (counts.round_pages, counts.errors) == (5, {"http_404": 4, "timeout": 2})
        (site,) = ledger.site_rows()
        (visit,) = ledger.visit_rows()
        assert (site.errors, visit.pages, visit.parcels) == (6, 5, 2)

    def test_page_counts_once_however_often_it_is_visited_and_only_while_it_is_good(
        self, ledger: Ledger
    ) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/gone")], now=1.0)
        first = (page("/"), page("/gone", status=404), page("/bomb", error="bomb"))
        self.commit(ledger, parcel(self.lease(ledger), pages=first, ended=Ended.FINISHED))
        assert ledger.counts(now=30.0).pages == ledger.site_rows()[0].pages == 1
        ledger.refresh(older_than=500.0, now=1000.0)
        second = (page("/", digest=b"new"), page("/gone"))
        self.commit(ledger, parcel(self.lease(ledger, 1001.0), pages=second, ended=Ended.FINISHED))
        assert ledger.counts(now=30.0).pages == ledger.site_rows()[0].pages == 2
        ledger.refresh(older_than=500.0, now=2000.0)
        third = (page("/", status=404), page("/gone", is_unchanged=True))
        self.commit(ledger, parcel(self.lease(ledger, 2001.0), pages=third, ended=Ended.FINISHED))
        assert ledger.counts(now=30.0).pages == 1

    # -- politeness --------------------------------------------------------------------------------------

    def test_hold_delays_the_sites_turn_and_survives_reopening(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/b")], now=1.0)
        hold = Hold(site_key(SITE), 900.0)
        ended = parcel(self.lease(ledger), pages=(page("/"),), holds=(hold,), ended=Ended.BLOCKED)
        self.commit(ledger, ended)
        ledger.close()
        again = reopen()
        assert again.lease(["early"], now=899.0, pages=1, max_depth=1) == []
        assert again.holds(now=899.0) == (hold,)
        assert self.lease(again, 901.0).site == SITE

    def test_waits_from_a_clock_that_was_a_year_ahead_are_void(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        year, now = 365 * 86400.0, 1_000_000.0
        ledger.seed([Target(f"{SITE}/a"), Target(f"{OTHER}/b")], now=now + year)
        ledger.hold([Hold(site_key(SITE), now + year + 60.0), Hold("total", now + 60.0)])
        lease = self.lease(ledger, now=now + year)
        late = Target(f"{SITE}/late", attempts=1, not_before=now + year + 60.0)
        self.commit(
            ledger,
            parcel(
                lease,
                checkpoint=Checkpoint(again=(late,), found=(late,)),
                holds=(Hold(site_key(lease.site), now + year + 3600.0),),
                ended=Ended.BLOCKED,
            ),
            now=now + year + 1.0,
        )
        ledger = reopen()
        ledger.recover(now=now, least_pause=1.0)
        assert ledger.holds(now=now) == (Hold("total", now + 60.0),)
        leases = ledger.lease(["one", "two"], now=now, pages=100, max_depth=64)
        assert {start.url for each in leases for start in each.starts} >= {f"{SITE}/late", f"{OTHER}/b"}

    def test_page_that_was_fetched_while_the_clock_was_ahead_is_refreshed(self, ledger: Ledger) -> None:
        year, now = 365 * 86400.0, 1_000_000.0
        ledger.seed([Target(f"{SITE}/a")], now=now + year)
        lease = self.lease(ledger, now=now + year)
        pages = (page("/a", fetched=now + year),)
        self.commit(ledger, parcel(lease, pages=pages, ended=Ended.FINISHED), now=now + year)
        assert ledger.refresh(older_than=now, now=now) == 1

    def test_robots_txt_is_asked_for_again_after_a_clock_was_ahead(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        year, now = 365 * 86400.0, 1_000_000.0
        ledger.seed([Target(f"{SITE}/a")], now=now + year)
        failed = Robots(
            RobotsState.DISQUALIFIED, tried_at=now + year, failures=1, retry_at=now + year + 3600.0
        )
        lease = self.lease(ledger, now=now + year)
        self.commit(ledger, parcel(lease, robots=failed, ended=Ended.DISQUALIFIED), now=now + year)
        ledger = reopen()
        ledger.recover(now=now, least_pause=1.0)
        assert self.lease(ledger, now=now).robots.retry_at <= now

    def test_hold_is_never_shortened(self, ledger: Ledger) -> None:
        ledger.hold([Hold("total", 50.0)])
        ledger.hold([Hold("total", 20.0)])
        assert ledger.holds(now=1.0) == (Hold("total", 50.0),)

    def test_disqualified_site_waits_for_its_retry(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        robots = Robots(RobotsState.DISQUALIFIED, 20.0, 1, 3600.0, b"", "HTTP 503")
        self.commit(ledger, parcel(self.lease(ledger), robots=robots, ended=Ended.DISQUALIFIED))
        assert ledger.lease(["early"], now=3599.0, pages=1, max_depth=1) == []
        assert self.lease(ledger, 3600.0).robots == robots

    def test_site_of_a_lost_visit_rests_for_its_own_delay(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        self.commit(ledger, parcel(self.lease(ledger), delay_seconds=30.0))
        assert ledger.recover(now=100.0, least_pause=1.0) == 1
        assert ledger.lease(["early"], now=129.0, pages=1, max_depth=1) == []
        lease = self.lease(ledger, 130.0)
        assert lease.holds == ()
        assert ledger.recover(now=200.0, least_pause=60.0) == 1
        assert ledger.holds(now=200.0) == (Hold(site_key(SITE), 260.0),)

    # -- visiting again ----------------------------------------------------------------------------------

    def test_refresh_brings_old_pages_back_with_their_validators(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        pages = (page("/", fetched=100.0, modified="Mon"), page("/young", fetched=900.0))
        lease = self.lease(ledger)
        found = Checkpoint(found=targets("/young"))
        self.commit(ledger, parcel(lease, pages=pages, checkpoint=found, ended=Ended.FINISHED))
        assert ledger.refresh(older_than=500.0, now=1000.0) == 1
        again = self.lease(ledger, 1001.0)
        assert [target.url for target in again.starts] == [f"{SITE}/"]
        (validator,) = again.known.validators
        assert (validator.fingerprint, validator.etag, validator.modified, validator.digest) == (
            fingerprint(f"{SITE}/"),
            '"1"',
            "Mon",
            b"d",
        )
        assert ledger.counts(now=1001.0).round_pages == 0

    def test_refresh_leaves_out_what_is_spared_unless_it_is_to_be_read_whole(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        pages = (page("/", fetched=100.0), page("/a", fetched=100.0), page("/b", fetched=100.0))
        found = Checkpoint(found=targets("/a", "/b"))
        self.commit(ledger, parcel(self.lease(ledger), pages=pages, checkpoint=found, ended=Ended.FINISHED))
        due = ledger.due(SITE, older_than=500.0)
        assert {each.fingerprint for each in due} == {each.fingerprint for each in pages}
        assert {(each.digest, each.fetched) for each in due} == {(b"d", 100.0)}
        assert (
            ledger.due(SITE, older_than=100.0)
            == ledger.due("https://other.example.org", older_than=500.0)
            == []
        )
        spared = {SITE: {fingerprint(f"{SITE}/a"), fingerprint(f"{SITE}/b")}}
        assert ledger.refresh(older_than=500.0, now=1000.0, spared=spared) == 1
        ledger.forget_validators()
        assert ledger.refresh(older_than=500.0, now=1000.0, spared=spared) == 2

    def test_known_hosts_are_those_that_neither_lied_nor_have_an_owner_who_stops_us(
        self, ledger: Ledger
    ) -> None:
        for name in ("a", "b", "c", "d"):
            site = f"https://{name}.example.org"
            ledger.seed([Target(f"{site}/")], now=1.0, private_sites=[site] if name == "a" else [])
            ledger.set_host(HostRow(site=site, offer=b"offer" if name != "d" else b"", key="k"))
        ledger.trust.set(TrustRow(site="https://b.example.org", bad=1.0, until=20.0))
        ledger.set_owner(OwnerRow(site="https://c.example.org", until=30.0))
        assert [(row.site[8], private) for row, private in ledger.known_hosts(now=10.0)] == [("a", True)]
        assert [row.site[8] for row, _ in ledger.known_hosts(now=25.0)] == ["a", "b"]
        assert [row.site[8] for row, _ in ledger.known_hosts(now=35.0)] == ["a", "b", "c"]

    def test_page_that_was_not_read_well_is_asked_for_without_conditions(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/gone")], now=1.0)
        pages = (page("/", error="encoding"), page("/gone", status=404))
        self.commit(ledger, parcel(self.lease(ledger), pages=pages, ended=Ended.FINISHED))
        assert ledger.refresh(older_than=500.0, now=1000.0) == 2
        assert self.lease(ledger, 1001.0).known.validators == ()

    def test_refresh_gives_a_site_that_was_given_up_another_chance(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        robots = Robots(RobotsState.DISQUALIFIED, 20.0, 8, NEVER, b"", "HTTP 503")
        self.commit(ledger, parcel(self.lease(ledger), robots=robots, ended=Ended.DISQUALIFIED))
        assert ledger.counts(now=30.0).next_turn is None
        ledger.refresh(older_than=0.0, now=1000.0)
        assert self.lease(ledger, 1001.0).robots.state is RobotsState.UNKNOWN

    # -- asking again ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("retry_at", [3600.0, NEVER])
    def test_start_url_that_is_given_again_asks_for_a_robots_txt_that_failed(
        self, ledger: Ledger, retry_at: float
    ) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{OTHER}/")], now=1.0)
        robots = Robots(RobotsState.DISQUALIFIED, 20.0, 8, retry_at, b"", "HTTP 503")
        for lease in ledger.lease(["v", "w"], now=10.0, pages=1, max_depth=1):
            self.commit(ledger, parcel(lease, robots=robots, ended=Ended.DISQUALIFIED))
        ledger.ask_again([f"{SITE}/"], now=30.0)
        ledger.wake(now=30.0)
        leases = ledger.lease(["again", "other"], now=30.0, pages=1, max_depth=1)
        asked = [lease.site for lease in leases if lease.robots.retry_at <= 30.0]
        assert asked == [SITE]
        assert leases[0].robots.failures == 8

    def test_start_url_that_is_given_again_does_not_end_a_pause_that_its_site_asked_for(
        self, ledger: Ledger
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        robots = Robots(RobotsState.DISQUALIFIED, 20.0, 1, 3600.0, b"", "HTTP 503")
        held = (Hold(site_key(SITE), 900.0),)
        lease = self.lease(ledger)
        self.commit(ledger, parcel(lease, robots=robots, holds=held, ended=Ended.DISQUALIFIED))
        ledger.ask_again([f"{SITE}/"], now=30.0)
        ledger.wake(now=30.0)
        assert ledger.counts(now=30.0).next_turn == 900.0

    def test_start_url_that_is_given_again_is_fetched_again_if_it_failed(self, ledger: Ledger) -> None:
        paths = {"/ok": page("/ok"), "/dns": page("/dns", status=0, error="dns")}
        ledger.seed([Target(SITE + path) for path in paths], now=1.0)
        self.commit(ledger, parcel(self.lease(ledger), pages=tuple(paths.values()), ended=Ended.FINISHED))
        ledger.ask_again([SITE + path for path in paths], now=30.0)
        ledger.wake(now=30.0)
        assert [start.url for start in self.lease(ledger, 30.0).starts] == [f"{SITE}/dns"]

    def test_start_url_of_a_new_site_has_nothing_to_ask_again(self, ledger: Ledger) -> None:
        ledger.ask_again([f"{SITE}/"], now=30.0)
        assert ledger.counts(now=30.0).pending == 0

    def test_sites_are_asked_for_robots_txt_again_where_it_is_not_wanted_any_more(
        self, ledger: Ledger
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        robots = Robots(RobotsState.DISQUALIFIED, 20.0, 1, 3600.0, b"", "HTTP 503")
        self.commit(ledger, parcel(self.lease(ledger), robots=robots, ended=Ended.DISQUALIFIED))
        ledger.requalify(now=30.0)
        assert self.lease(ledger, 30.0).robots.retry_at == 0

    def test_retry_ends_pauses_but_not_the_delay_between_requests(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/a"), Target(f"{SITE}/b")], now=1.0)
        late = Checkpoint(again=(Target(f"{SITE}/b", attempts=1, not_before=5000.0),))
        held = (Hold(site_key(SITE), 4000.0), Hold("address 192.0.2.1", 60.0))
        done = parcel(
            self.lease(ledger),
            pages=(page("/a"),),
            checkpoint=late,
            holds=held,
            delay_seconds=7.0,
            ended=Ended.BLOCKED,
        )
        self.commit(ledger, done)
        assert ledger.retry(now=30.0, least_pause=1.0) == 0
        assert ledger.holds(now=30.0) == (Hold("address 192.0.2.1", 60.0), Hold(site_key(SITE), 37.0))
        lease = self.lease(ledger, 30.0)
        assert [(start.url, start.attempts) for start in lease.starts] == [(f"{SITE}/b", 1)]

    def test_retry_puts_pages_back_that_failed_and_no_others(self, ledger: Ledger) -> None:
        good = (page("/ok"), page("/gone", status=404), page("/closed", status=0, error="robots"))
        failed = (
            page("/timeout", status=0, error="timeout"),
            page("/busy", status=0, error="http_503"),
            page("/broken", status=500),
        )
        ledger.seed([Target(each.url) for each in (*good, *failed)], now=1.0)
        self.commit(ledger, parcel(self.lease(ledger), pages=(*good, *failed), ended=Ended.FINISHED))
        assert ledger.retry(now=30.0, least_pause=1.0) == 3
        ledger.wake(now=30.0)
        found = {start.url for start in self.lease(ledger, 30.0).starts}
        assert found == {each.url for each in failed}

    def test_refresh_twice_adds_nothing(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        self.commit(ledger, parcel(self.lease(ledger), pages=(page("/"),), ended=Ended.FINISHED))
        assert ledger.refresh(older_than=500.0, now=1000.0) == 1
        assert ledger.refresh(older_than=500.0, now=1000.0) == 0
        assert ledger.counts(now=1000.0).pending == 1

    def test_unchanged_page_is_young_again_and_keeps_its_validators(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        self.commit(ledger, parcel(self.lease(ledger), pages=(page("/"),), ended=Ended.FINISHED))
        ledger.refresh(older_than=500.0, now=1000.0)
        unchanged = page("/", fetched=1002.0, status=304, is_unchanged=True, etag="", digest=b"")
        self.commit(ledger, parcel(self.lease(ledger, 1001.0), pages=(unchanged,), ended=Ended.FINISHED))
        assert ledger.refresh(older_than=1002.0, now=2000.0) == 0
        assert ledger.refresh(older_than=1003.0, now=2000.0) == 1
        assert self.lease(ledger, 2001.0).known.validators[0].etag == '"1"'

    # -- the archive's manifest, settings ----------------------------------------------------------------

    def test_segments_are_committed_with_their_parcels_and_exchanged_when_merged(
        self, ledger: Ledger
    ) -> None:
        old = [Segment("a", "page", 1, 10), Segment("b", "page", 2, 20)]
        ledger.commit(Change(parcels=(), segments=tuple(old)), now=1.0)
        merged = Segment("c", "page", 3, 25, 1)
        ledger.replace_segments(old, merged, now=5.0)
        assert ledger.segments() == [merged]
        assert ledger.forget_retired(before=5.0) == []
        assert sorted(ledger.forget_retired(before=6.0)) == ["a", "b"]
        assert ledger.forget_retired(before=6.0) == []

    def test_warc_positions_are_replaced_by_name(self, ledger: Ledger) -> None:
        ledger.commit(Change(parcels=(), warc=(WarcPosition("w", 10, True),)), now=1.0)
        ledger.set_warc_positions([WarcPosition("w", 30, False)])
        assert ledger.warc_positions() == [WarcPosition("w", 30, False)]

    def test_settings_and_blocks_survive_reopening(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        ledger.set_setting("options", "{}")
        ledger.block(["bad.example", "worse.example"])
        ledger.unblock(["worse.example"])
        ledger.close()
        again = reopen()
        assert again.setting("options") == "{}"
        assert again.setting("none") is None
        assert again.blocked() == {"bad.example"}

    def test_due_count_stops_counting(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"https://s{n}.example/") for n in range(5)], now=1.0)
        assert ledger.due_count(now=2.0, most=3) == 3
        assert ledger.due_count(now=0.5, most=3) == 0
