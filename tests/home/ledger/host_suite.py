"""The last part of the ledger's conformance suite: hosts, and the crawlers that are sent there."""

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace
from tests.home.ledger.ledger_suite import OTHER, SITE, page, targets
from tests.home.ledger.program_suite import ProgramSuite
from tests.making import parcel

from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.records import (
    UNDER_WAY,
    Change,
    Disposal,
    HostRow,
    InboxRow,
    Lease,
    Out,
    OutboxRow,
    OwnerRow,
)
from sterna.model import Arrival, Checkpoint, Ended, Hold, Parcel, Robots, RobotsState, Target, Usage
from sterna.web.politeness import site_key
from sterna.web.robots import NEVER, is_due

ENDPOINT = f"{SITE}/sterna"


def out_row(lease: Lease, **fields: object) -> OutboxRow:
    base: dict[str, object] = {
        "visit": lease.visit,
        "site": lease.site,
        "endpoint": ENDPOINT,
        "key": "ed25519:key",
        "state": Out.WAITING,
        "written_at": 11.0,
        "order_bytes": 700,
    }
    return OutboxRow(**{**base, **fields})  # type: ignore[arg-type]


def arrived(of: Parcel) -> Parcel:
    """The parcel as it comes from a host."""
    return replace(of, arrival=Arrival(received_at=15.0, size_bytes=50))


class HostSuite(ProgramSuite):
    """The whole suite: what a subclass of it passes, it passes of `LedgerSuite` and `ProgramSuite` too."""

    def send_out(self, ledger: Ledger, now: float = 10.0, *, is_live_only: bool = False) -> Lease:
        """A lease whose crawler is noted in the outbox."""
        lease = self.lease(ledger, now)
        ledger.write_out(out_row(lease, is_live_only=is_live_only), b"luggage")
        return lease

    def arrive(self, ledger: Ledger, *parcels: Parcel, now: float = 20.0) -> None:
        ledger.commit(Change(parcels=tuple(map(arrived, parcels))), now=now)

    # -- a host's word on its robots.txt -----------------------------------------------------------------

    def test_word_of_a_host_that_robots_txt_failed_keeps_home_away_too(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        failed = Robots(RobotsState.DISQUALIFIED, 15.0, 3, 4000.0, b"", "HTTP 503")
        self.arrive(ledger, parcel(self.send_out(ledger), robots=failed, ended=Ended.DISQUALIFIED))
        assert ledger.counts(now=30.0).next_turn == 4000.0
        robots = self.lease(ledger, 4000.0).robots
        assert (robots.retry_at, robots.failures, robots.reason) == (4000.0, 0, "its host says: HTTP 503")

    def test_word_of_a_host_keeps_home_away_for_a_day_at_most(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        failed = Robots(RobotsState.DISQUALIFIED, 15.0, 8, NEVER, b"", "HTTP 503; given up")
        self.arrive(ledger, parcel(self.send_out(ledger), robots=failed, ended=Ended.DISQUALIFIED))
        assert ledger.counts(now=30.0).next_turn == 20.0 + 24 * 3600.0

    def test_host_that_only_says_that_its_visit_was_disqualified_is_left_alone_for_an_hour(
        self, ledger: Ledger
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        self.arrive(ledger, parcel(self.send_out(ledger), ended=Ended.DISQUALIFIED))
        assert ledger.counts(now=30.0).next_turn == 20.0 + 3600.0

    @pytest.mark.parametrize(
        "word",
        [
            Robots(RobotsState.QUALIFIED, 15.0),
            Robots(RobotsState.DISQUALIFIED, 15.0, 1, 50.0, b"", "HTTP 503"),
            Robots(RobotsState.UNKNOWN),
        ],
    )
    def test_word_of_a_host_never_shortens_a_wait(self, ledger: Ledger, word: Robots) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        own = Robots(RobotsState.DISQUALIFIED, 20.0, 2, 3600.0, b"", "HTTP 503")
        lease = self.send_out(ledger)
        ledger.commit(Change(parcels=(parcel(lease, robots=own),)), now=12.0)
        self.arrive(ledger, parcel(lease, number=2, robots=word, ended=Ended.BUDGET))
        ledger.wake(now=30.0)
        assert self.lease(ledger, 3600.0).robots == own

    def test_word_of_a_host_that_its_site_is_open_is_kept_and_home_asks_all_the_same(
        self, ledger: Ledger
    ) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/b")], now=1.0)
        word = Robots(RobotsState.QUALIFIED, 15.0, rules=b"User-agent: *\nAllow: /\n")
        self.arrive(ledger, parcel(self.send_out(ledger), robots=word, ended=Ended.BUDGET))
        assert [row.robots for row in ledger.site_rows()] == ["qualified"]
        robots = self.lease(ledger, 1e6).robots
        assert is_due(robots, 1e6)
        assert robots.rules == b""

    def test_word_of_a_host_does_not_renew_the_rules_that_home_knows(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/b")], now=1.0)
        own = Robots(RobotsState.QUALIFIED, 11.0, rules=b"User-agent: *\nDisallow: /a\n")
        lease = self.send_out(ledger)
        ledger.commit(Change(parcels=(parcel(lease, robots=own),)), now=12.0)
        word = Robots(RobotsState.QUALIFIED, 15.0)
        self.arrive(ledger, parcel(lease, number=2, robots=word, ended=Ended.BUDGET))
        assert self.lease(ledger, 30.0).robots == own

    # -- what is known of a host -------------------------------------------------------------------------

    def test_nobody_has_looked_for_the_host_of_a_new_site(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        assert ledger.host_row(SITE) is None

    def test_what_is_known_of_a_host_survives_reopening_and_is_replaced_whole(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        row = HostRow(
            site=SITE,
            checked_at=5.0,
            offer=b'{"a":1}',
            key="ed25519:k",
            until=90.0,
            failed_until=7.0,
            reason="r",
        )
        ledger.set_host(row)
        ledger.close()
        again = reopen()
        assert again.host_row(SITE) == row
        none = HostRow(site=SITE, checked_at=6.0, until=100.0)
        again.set_host(none)
        assert (again.host_row(SITE), again.host_row(OTHER)) == (none, None)

    @pytest.mark.parametrize("ends", ["closed", "committed"])
    def test_that_a_site_has_no_host_is_known_at_once_and_after_reopening(
        self, ledger: Ledger, reopen: Callable[[], Ledger], ends: str
    ) -> None:
        none = HostRow(site=SITE, checked_at=6.0, until=100.0, reason="HTTP 404")
        ledger.set_host(none)
        assert ledger.host_row(SITE) == none
        if ends == "closed":
            ledger.close()
        else:
            ledger.commit(Change(parcels=()), now=7.0)
        assert reopen().host_row(SITE) == none

    def test_host_that_comes_to_a_site_without_one_is_known(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        ledger.set_host(HostRow(site=SITE, until=100.0))
        found = HostRow(site=SITE, until=200.0, offer=b"{}", key="ed25519:k")
        ledger.set_host(found)
        ledger.commit(Change(parcels=()), now=7.0)
        assert ledger.host_row(SITE) == found
        ledger.close()
        assert reopen().host_row(SITE) == found

    @pytest.mark.parametrize("and_ask", [False, True])
    def test_host_that_failed_is_forgiven_and_none_is_asked_for_again_on_request(
        self, ledger: Ledger, and_ask: bool
    ) -> None:
        failed = HostRow(site=SITE, offer=b"{}", until=90.0, failed_until=80.0, key="k", reason="busy")
        none = HostRow(site=OTHER, until=90.0)
        ledger.set_host(failed)
        ledger.set_host(none)
        ledger.forgive_hosts(and_ask=and_ask)
        assert ledger.host_row(SITE) == msgspec.structs.replace(failed, failed_until=0.0)
        assert ledger.host_row(OTHER) == msgspec.structs.replace(none, until=0.0 if and_ask else 90.0)

    @pytest.mark.parametrize(
        ("offer", "failed_until", "pages"),
        [(b"{}", 0.0, 3), (b"{}", 500.0, 1), (b"", 0.0, 1), (None, 0.0, 1)],
    )
    def test_visit_to_a_site_with_a_host_may_be_larger(
        self, ledger: Ledger, offer: bytes | None, failed_until: float, pages: int
    ) -> None:
        ledger.seed(targets("/a", "/b", "/c", depth=0), now=1.0)
        ledger.set_host(HostRow(site=SITE, offer=offer, failed_until=failed_until))
        (lease,) = ledger.lease(["v"], now=10.0, pages=1, host_pages=3, max_depth=5)
        assert (lease.pages, len(lease.starts)) == (pages, pages)

    # -- what owners ask for -----------------------------------------------------------------------------

    def test_site_whose_owner_stopped_the_crawler_is_not_leased_before_its_time(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        ledger.seed(targets("/a", depth=0), now=1.0)
        row = OwnerRow(site=SITE, reason="no", until=500.0, ask_at=100.0, closed="/x/\n/y", closed_until=50.0)
        ledger.set_owner(row)
        ledger.close()
        ledger = reopen()
        assert ledger.owner_rows() == [row]
        assert (ledger.owner_row(SITE), ledger.owner_row(OTHER)) == (row, None)
        assert ledger.lease(["v"], now=10.0, pages=9, max_depth=9) == []
        assert ledger.counts(now=10.0).next_turn == 100.0  # when its host is to be asked
        (lease,) = ledger.lease(["v"], now=100.0, pages=9, max_depth=9)
        assert lease.closed == ()

    @pytest.mark.parametrize(("may_ask", "turn"), [(True, 20.0), (False, 500.0)])
    def test_next_run_asks_the_owner_again_if_it_sends_crawlers(
        self, ledger: Ledger, may_ask: bool, turn: float
    ) -> None:
        ledger.seed(targets("/a", depth=0), now=1.0)
        ledger.set_owner(OwnerRow(site=SITE, until=500.0, ask_at=500.0))
        assert ledger.lease(["v"], now=10.0, pages=9, max_depth=9) == []
        ledger.ask_owners(now=20.0, may_ask=may_ask)
        assert ledger.counts(now=20.0).next_turn == turn
        assert len(ledger.lease(["v"], now=20.0, pages=9, max_depth=9)) == may_ask

    def test_owners_wish_from_a_clock_that_was_a_year_ahead_is_void(self, ledger: Ledger) -> None:
        year, now = 365 * 86400.0, 1_000_000.0
        ahead = now + year
        ledger.set_owner(OwnerRow(site=SITE, until=ahead, ask_at=ahead, closed="/a", closed_until=ahead))
        ledger.seed([Target(f"{SITE}/a")], now=now)
        ledger.recover(now=now, least_pause=1.0)
        (lease,) = ledger.lease(["one"], now=now, pages=10, max_depth=64)
        assert lease.closed == ()

    def test_user_who_crawls_despite_owners_waits_for_none(self, ledger: Ledger) -> None:
        ledger.seed(targets("/a", depth=0), now=1.0)
        ledger.set_owner(OwnerRow(site=SITE, until=500.0, ask_at=500.0, closed="/a", closed_until=500.0))
        assert ledger.lease(["v"], now=10.0, pages=9, max_depth=9) == []
        ledger.forget_owners(now=20.0)
        (lease,) = ledger.lease(["v"], now=20.0, pages=9, max_depth=9)
        assert (lease.closed, ledger.owner_rows()) == ((), [])

    # -- leaving and coming home -------------------------------------------------------------------------

    def test_crawler_is_noted_before_it_leaves_and_survives_reopening(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.send_out(ledger)
        ledger.close()
        again = reopen()
        assert again.outbox() == [out_row(lease)]
        assert (again.luggage(lease.visit), again.luggage("other")) == (b"luggage", b"")
        assert again.counts(now=12.0).away == 1

    def test_parcel_from_a_host_is_in_the_inbox_and_its_crawler_is_away(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.send_out(ledger)
        first = parcel(lease, pages=(page("/"),), usage=Usage(pages=1, bytes_received=4_000))
        self.arrive(ledger, first)
        assert ledger.inbox(lease.visit) == [
            InboxRow(visit=lease.visit, number=1, received_at=15.0, size_bytes=50, taken_at=20.0)
        ]
        (row,) = ledger.outbox()
        assert (row.state, row.sent_at, row.parcels, row.pages, row.fetched_bytes) == (
            Out.AWAY,
            15.0,
            1,
            1,
            4_000,
        )
        assert [visit.place for visit in ledger.visit_rows()] == ["host"]

    def test_parcel_from_a_host_is_stored_once(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        first = parcel(self.send_out(ledger), pages=(page("/"),), usage=Usage(pages=1))
        self.arrive(ledger, first)
        assert ledger.judge(first) is Disposal.STORED
        self.arrive(ledger, first, now=30.0)
        assert ledger.counts(now=30.0).pages == 1
        assert [row.taken_at for row in ledger.inbox(first.visit)] == [20.0]

    def test_parcel_that_is_refused_leaves_nothing_in_the_inbox(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        late = parcel(self.send_out(ledger), 2)
        self.arrive(ledger, late)
        assert (ledger.inbox(late.visit), ledger.outbox()[0].state) == ([], Out.WAITING)

    def test_visit_made_here_has_no_inbox(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        self.commit(ledger, parcel(lease, pages=(page("/"),), ended=Ended.FINISHED))
        assert (ledger.inbox(lease.visit), ledger.outbox()) == ([], [])
        assert [visit.place for visit in ledger.visit_rows()] == ["here"]

    def test_crawler_that_came_back_is_told_with_what_crossed_the_network(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.send_out(ledger)
        last = parcel(
            lease, pages=(page("/"),), usage=Usage(pages=1, bytes_received=9_000), ended=Ended.FINISHED
        )
        self.arrive(ledger, last)
        state = ledger.mark_out(
            lease.visit, Out.RETURNED, now=30.0, bytes_sent=700, bytes_received=900, reason="finished"
        )
        (row,) = ledger.outbox()
        assert (state, row.state, row.over_at, row.reason) == (Out.RETURNED, Out.RETURNED, 30.0, "finished")
        assert (row.bytes_sent, row.bytes_received, row.fetched_bytes) == (700, 900, 9_000)
        assert (ledger.luggage(lease.visit), ledger.counts(now=30.0).away) == (b"", 0)
        # Home received the parcels; the pages themselves stayed at the site.
        assert ledger.counts(now=30.0).bytes_received == 900

    def test_outbox_lists_by_state_in_the_order_in_which_they_left(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"https://s{n}.example/") for n in range(3)], now=1.0)
        leases = ledger.lease(["v", "w", "x"], now=10.0, pages=5, max_depth=5)
        for lease, written_at in zip(leases, (13.0, 12.0, 14.0), strict=True):
            ledger.write_out(out_row(lease, written_at=written_at), b"")
        ledger.mark_out("w", Out.LOST, now=20.0)
        ledger.mark_out("x", Out.AWAY, now=21.0)
        assert [row.visit for row in ledger.outbox()] == ["w", "v", "x"]
        assert [row.visit for row in ledger.outbox(states=UNDER_WAY)] == ["v", "x"]
        assert [row.visit for row in ledger.outbox(states=[Out.LOST])] == ["w"]

    def test_killed_crawler_stays_killed_whatever_is_told_of_it_later(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.send_out(ledger)
        assert ledger.mark_out(lease.visit, Out.KILLED, now=20.0, reason="by hand") is Out.KILLED
        self.arrive(ledger, parcel(lease, pages=(page("/"),)), now=21.0)
        told = ledger.mark_out(lease.visit, Out.RETURNED, now=22.0, bytes_received=40)
        (row,) = ledger.outbox()
        assert told is row.state is Out.KILLED
        assert (row.over_at, row.reason, row.bytes_received) == (20.0, "by hand", 40)

    # -- losing them -------------------------------------------------------------------------------------

    def test_crawler_at_a_host_that_keeps_visits_is_not_lost_when_home_ends(
        self, ledger: Ledger, reopen: Callable[[], Ledger]
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.send_out(ledger)
        self.arrive(ledger, parcel(lease, pages=(page("/"),), checkpoint=Checkpoint(found=targets("/x"))))
        ledger.close()
        again = reopen()
        assert again.recover(now=100.0, least_pause=1.0) == 0
        assert again.lease(["other"], now=200.0, pages=5, max_depth=5) == []
        assert again.outbox(states=UNDER_WAY)[0].parcels == 1
        rest = parcel(lease, 2, pages=(page("/x"),), ended=Ended.FINISHED)
        assert again.judge(rest) is Disposal.NEW
        self.arrive(again, rest, now=210.0)
        assert (again.counts(now=210.0).pages, again.counts(now=210.0).pending) == (2, 0)

    def test_crawler_at_a_host_that_keeps_nothing_is_lost_when_home_ends(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.send_out(ledger, is_live_only=True)
        assert ledger.recover(now=100.0, least_pause=5.0) == 1
        (row,) = ledger.outbox()
        assert (row.state, row.over_at, ledger.luggage(lease.visit)) == (Out.LOST, 100.0, b"")
        assert ledger.judge(parcel(lease)) is Disposal.STALE
        assert ledger.holds(now=100.0) == (Hold(site_key(SITE), 105.0),)
        assert self.lease(ledger, 106.0).epoch == lease.epoch + 1

    def test_lost_visit_keeps_what_it_brought_and_another_goes_on_from_there(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.send_out(ledger)
        self.arrive(
            ledger, parcel(lease, pages=(page("/"),), checkpoint=Checkpoint(found=targets("/x", "/y")))
        )
        assert ledger.lose(lease.visit, now=30.0, reason="its host is gone")
        assert not ledger.lose(lease.visit, now=31.0)
        (row,), (visit,) = ledger.outbox(), ledger.visit_rows()
        assert (row.state, row.reason, visit.ended, visit.over) == (
            Out.LOST,
            "its host is gone",
            Ended.LOST,
            30.0,
        )
        assert ledger.judge(parcel(lease, 2)) is Disposal.STALE
        next_one = self.lease(ledger, 30.0)
        assert {start.url for start in next_one.starts} == {f"{SITE}/x", f"{SITE}/y"}

    def test_visit_that_ended_by_itself_cannot_be_lost(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.send_out(ledger)
        self.arrive(ledger, parcel(lease, pages=(page("/"),), ended=Ended.FINISHED))
        ledger.mark_out(lease.visit, Out.RETURNED, now=30.0)
        assert not ledger.lose(lease.visit, now=31.0)
        assert (ledger.outbox()[0].state, ledger.visit_rows()[0].ended) == (Out.RETURNED, Ended.FINISHED)

    def test_site_of_a_lost_visit_waits_for_its_hold(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.send_out(ledger)
        ledger.hold([Hold(site_key(SITE), 500.0)])
        ledger.lose(lease.visit, now=30.0)
        assert ledger.counts(now=30.0).next_turn == 500.0

    def test_disqualified_site_of_a_lost_visit_waits_for_its_retry(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        robots = Robots(RobotsState.DISQUALIFIED, 20.0, 1, 3600.0, b"", "HTTP 503")
        self.commit(ledger, parcel(lease, robots=robots))
        assert ledger.lose(lease.visit, now=30.0)
        assert ledger.counts(now=30.0).next_turn == 3600.0

    # -- how much a page changed -------------------------------------------------------------------------

    def test_likeness_comes_back_with_the_validators(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        first = parcel(self.lease(ledger), pages=(page("/", likeness=b"12345678"),), ended=Ended.FINISHED)
        self.commit(ledger, first)
        ledger.refresh(older_than=500.0, now=1000.0)
        again = self.lease(ledger, 1001.0)
        assert [each.likeness for each in again.known.validators] == [b"12345678"]
        unchanged = page("/", fetched=1002.0, is_unchanged=True, digest=b"")
        self.commit(ledger, parcel(again, pages=(unchanged,), ended=Ended.FINISHED))
        ledger.refresh(older_than=2000.0, now=2000.0)
        third = self.lease(ledger, 2001.0)
        assert [each.likeness for each in third.known.validators] == [b"12345678"]

    def test_likeness_is_forgotten_with_the_other_validators(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        first = parcel(self.lease(ledger), pages=(page("/", likeness=b"12345678"),), ended=Ended.FINISHED)
        self.commit(ledger, first)
        ledger.forget_validators()
        ledger.refresh(older_than=500.0, now=1000.0)
        (validator,) = self.lease(ledger, 1001.0).known.validators
        assert msgspec.structs.astuple(validator)[1:] == ("", "", b"", False, b"")
