"""The rest of the ledger's conformance suite: what programs bring, be it priorities, state or choices."""

from collections.abc import Callable

import pytest
from tests.home.ledger.ledger_suite import OTHER, SITE, LedgerSuite, page, targets
from tests.making import parcel

from sterna.home.ledger.interface import Ledger
from sterna.model import Checkpoint, Ended, Raw, State, StateChange, Target, Usage


class ProgramSuite(LedgerSuite):
    """The whole suite: what a subclass of it passes, it passes of `LedgerSuite` too."""

    def visit(self, ledger: Ledger, *parcels: dict[str, object], now: float = 10.0) -> None:
        """A visit that brings these parcels, the first of which has the start page."""
        lease = self.lease(ledger, now)
        for number, fields in enumerate(parcels, 1):
            ended = Ended.BUDGET if number == len(parcels) else None
            pages = (page("/"),) if number == 1 else ()
            whole: dict[str, object] = {"pages": pages, "ended": ended, **fields}
            self.commit(ledger, parcel(lease, number, **whole), now=now + 1.0)

    def waiting(self, ledger: Ledger, now: float = 30.0, **fields: int) -> list[tuple[str, int, int]]:
        """What the next visit starts from: path, depth, priority."""
        starts = self.lease(ledger, now, **fields).starts
        return [(start.url.removeprefix(SITE), start.depth, start.priority) for start in starts]

    # -- what was not wanted, what was used up -----------------------------------------------------------

    def test_page_that_was_not_wanted_is_done_and_has_its_validators(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        raw = Raw(b"", b"", b"", "")
        self.visit(ledger, {"pages": (page("/", is_kept=False, raw=raw),), "usage": Usage(pages=1)})
        counts = ledger.counts(now=20.0)
        assert (counts.pages, counts.pending, counts.kept) == (1, 0, 0)
        ledger.refresh(older_than=500.0, now=1000.0)
        (validator,) = self.lease(ledger, 1001.0).known.validators
        assert (validator.etag, validator.has_raw) == ('"1"', False)

    def test_kept_pages_and_cpu_seconds_add_up(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        first, second = Usage(pages=4, kept=3, cpu_seconds=0.25), Usage(pages=2, kept=2, cpu_seconds=0.5)
        self.visit(ledger, {"usage": first}, {"usage": second})
        counts, (visit,) = ledger.counts(now=20.0), ledger.visit_rows()
        assert (counts.kept, counts.cpu_seconds, counts.errors) == (5, 0.75, {})
        assert (visit.kept, visit.cpu_seconds) == (5, 0.75)

    @pytest.mark.parametrize("limit", [Ended.CPU_SECONDS, Ended.VIOLATION, Ended.RULES])
    def test_site_at_which_a_limit_ended_the_crawler_is_idle_until_the_next_wake(
        self, ledger: Ledger, limit: Ended
    ) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/more")], now=1.0)
        self.visit(ledger, {"ended": limit})
        assert ledger.counts(now=30.0).next_turn is None
        ledger.wake(now=31.0)
        assert self.waiting(ledger, 32.0) == [("/more", 0, 0)]

    # -- priorities --------------------------------------------------------------------------------------

    def test_highest_priority_comes_first_and_then_the_lowest_depth(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        found = (
            *targets("/least", depth=1, priority=-5),
            *targets("/plain-far", depth=7),
            *targets("/plain-near", depth=2),
            *targets("/urgent-far", depth=9, priority=3),
            *targets("/urgent-near", depth=4, priority=3),
            *targets("/most", depth=30, priority=200),
        )
        self.visit(ledger, {"checkpoint": Checkpoint(found=found)})
        assert self.waiting(ledger) == [
            ("/most", 30, 200),
            ("/urgent-near", 4, 3),
            ("/urgent-far", 9, 3),
            ("/plain-near", 2, 0),
            ("/plain-far", 7, 0),
            ("/least", 1, -5),
        ]

    def test_seed_may_have_a_priority(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/a"), Target(f"{SITE}/b", priority=1)], now=1.0)
        assert self.waiting(ledger) == [("/b", 0, 1), ("/a", 0, 0)]

    def test_priority_beyond_all_bounds_counts_as_the_highest(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/a", 3, priority=10**30), Target(f"{SITE}/b", 2, priority=9)], now=1.0)
        (first, depth, highest), *_ = self.waiting(ledger)
        assert (first, depth) == ("/a", 3)
        assert highest > 10**9

    @pytest.mark.parametrize(
        ("before", "after", "waits"),
        [
            ((5, 0), (5, 8), (5, 8)),
            ((5, 8), (5, 0), (5, 8)),
            ((5, 0), (9, 8), (5, 8)),
            ((5, 8), (2, 0), (2, 8)),
            ((5, -3), (5, -1), (5, -1)),
            ((5, -3), (5, 0), (5, 0)),
        ],
    )
    @pytest.mark.parametrize("is_one_commit", [False, True])
    def test_link_found_again_has_the_higher_priority_and_the_lower_depth(
        self,
        ledger: Ledger,
        before: tuple[int, int],
        after: tuple[int, int],
        waits: tuple[int, int],
        is_one_commit: bool,
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        first, second = (
            Checkpoint(found=targets("/x", depth=depth, priority=priority))
            for depth, priority in (before, after)
        )
        parcels = [
            parcel(lease, 1, pages=(page("/"),), checkpoint=first),
            parcel(lease, 2, checkpoint=second, ended=Ended.BUDGET),
        ]
        for batch in [parcels] if is_one_commit else [[each] for each in parcels]:
            self.commit(ledger, *batch)
        assert ledger.counts(now=20.0).pending == 1
        assert self.waiting(ledger) == [("/x", *waits)]

    def test_page_that_was_done_does_not_wait_again_for_its_new_priority(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        found = Checkpoint(found=targets("/", depth=0, priority=50))
        self.visit(ledger, {}, {"checkpoint": found})
        assert ledger.counts(now=20.0).pending == 0

    def test_urgent_page_leaves_the_frontier_and_a_failed_one_keeps_its_priority(
        self, ledger: Ledger
    ) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        found = Checkpoint(found=targets("/x", "/y", priority=4))
        again = Checkpoint(again=(Target(f"{SITE}/y", 1, attempts=1, priority=4),))
        self.visit(ledger, {"checkpoint": found}, {"pages": (page("/x"),), "checkpoint": again})
        (start,) = self.lease(ledger, 30.0).starts
        assert (start.url, start.priority, start.attempts) == (f"{SITE}/y", 4, 1)

    def test_lease_of_a_best_first_crawl_may_go_to_any_depth(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        found = targets("/x", "/y", depth=1) + targets("/deep", depth=6, priority=1)
        self.visit(ledger, {"checkpoint": Checkpoint(found=found)})
        lease = self.lease(ledger, 30.0, pages=2, max_depth=40)
        assert ([start.depth for start in lease.starts], lease.depth) == ([6, 1], 40)

    def test_even_what_is_urgent_waits_where_it_lies_too_deep(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        found = targets("/deep", depth=6, priority=9) + targets("/near", depth=2, priority=1)
        self.visit(ledger, {"checkpoint": Checkpoint(found=found)})
        assert self.waiting(ledger, max_depth=5) == [("/near", 2, 1)]

    def test_urgent_page_is_urgent_when_it_is_visited_again(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        found = Checkpoint(found=targets("/x", priority=7))
        self.visit(ledger, {"checkpoint": found}, {"pages": (page("/x"),)})
        ledger.refresh(older_than=500.0, now=1000.0)
        assert self.waiting(ledger, 1001.0) == [("/x", 1, 7), ("/", 0, 0)]

    # -- what crawlers remember --------------------------------------------------------------------------

    def test_crawler_without_a_state_sets_out_with_none(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        assert self.lease(ledger).state == ledger.state(SITE) == ledger.state(OTHER) == State()

    def test_state_comes_back_with_the_next_lease(self, ledger: Ledger, reopen: Callable[[], Ledger]) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/more")], now=1.0)
        self.visit(
            ledger,
            {"state": StateChange(added=((1, b"one"), (2, b"two"), (10, b"\0ten")), memory=b"m")},
            {"state": StateChange(added=((11, b"eleven"),), removed=(2,))},
        )
        ledger.close()
        again = reopen()
        state = State(((1, b"one"), (10, b"\0ten"), (11, b"eleven")), b"m")
        assert self.lease(again, 30.0).state == again.state(SITE) == state

    def test_memory_may_become_empty(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        self.visit(ledger, {"state": StateChange(memory=b"m")}, {"state": StateChange(memory=b"")})
        assert ledger.state(SITE) == State()

    def test_number_that_is_given_again_stands_for_the_new_fact(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        change = StateChange(added=((1, b"new"),), removed=(1,))
        self.visit(ledger, {"state": StateChange(added=((1, b"old"),))}, {"state": change})
        assert ledger.state(SITE).facts == ((1, b"new"),)

    def test_parcel_that_is_not_stored_changes_no_state(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        lease = self.lease(ledger)
        first = parcel(lease, 1, state=StateChange(added=((1, b"a"),), memory=b"first"))
        self.commit(ledger, first, parcel(lease, 2, state=StateChange(removed=(1,), memory=b"second")))
        self.commit(ledger, first)
        ledger.recover(now=30.0, least_pause=0.0)
        self.commit(ledger, parcel(lease, 3, state=StateChange(added=((5, b"late"),))))
        assert self.lease(ledger, 40.0).state == State((), b"second")

    def test_states_of_two_sites_are_two(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/"), Target(f"{OTHER}/")], now=1.0)
        here, there = ledger.lease(["v", "w"], now=2.0, pages=5, max_depth=5)
        self.commit(
            ledger,
            parcel(here, state=StateChange(added=((1, b"here"), (2, b"too")))),
            parcel(there, state=StateChange(added=((1, b"there"),), removed=(2,))),
        )
        assert ledger.state(SITE).facts == ((1, b"here"), (2, b"too"))
        assert ledger.facts() == [(SITE, 1, b"here"), (SITE, 2, b"too"), (OTHER, 1, b"there")]

    def test_state_is_handed_on_to_a_site_that_nobody_has_seen_yet(self, ledger: Ledger) -> None:
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        self.visit(ledger, {"state": StateChange(added=((3, b"c"), (4, b"d")), memory=b"m")})
        ledger.set_state(OTHER, ledger.state(SITE))
        assert ledger.counts(now=20.0).pending == 0
        ledger.seed([Target(f"{OTHER}/")], now=20.0)
        lease = self.lease(ledger, 30.0)
        assert (lease.site, lease.state) == (OTHER, State(((3, b"c"), (4, b"d")), b"m"))

    def test_state_that_is_set_leaves_nothing_of_the_one_before(self, ledger: Ledger) -> None:
        ledger.set_state(SITE, State(((1, b"a"), (2, b"b")), b"m"))
        ledger.set_state(SITE, State(((2, b"c"),)))
        assert ledger.state(SITE) == State(((2, b"c"),))
        ledger.set_state(SITE, State())
        assert ledger.facts() == []
