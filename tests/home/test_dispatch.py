"""Dispatch: slots, shares, and how a run ends, with a carrier that only notes what it is given."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tests import making

from sterna.errors import ParcelRefused, StorageError
from sterna.home.away.place import HERE, Place
from sterna.home.dispatch import Dispatch, Plan
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Change, HostRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.progress import Progress
from sterna.model import Crawler, Deliver, Ended, Etiquette, Parcel, Target, Usage, Visit
from sterna.web.clock import SystemClock

CLOCK = SystemClock()


def last_parcel(visit: Visit, *, pages: int = 1, ended: Ended = Ended.FINISHED) -> Parcel:
    found = tuple(making.page(start.url, fetched=1.0) for start in visit.starts)
    return making.parcel(visit, pages=found, usage=Usage(pages=pages), ended=ended)


class NotingCarrier:
    """Brings each visit home at once, unless the test says otherwise."""

    def __init__(self, answer: Callable[[Visit], Parcel] = last_parcel) -> None:
        self.visits: list[Visit] = []
        self.active = self.most_active = 0
        self._answer = answer
        self.left_over: list[Visit] = []
        self.is_host = False
        self.closed: set[str] = set()

    async def unfinished(self) -> list[Visit]:
        return self.left_over

    def may_visit(self, site: str) -> bool:
        return site not in self.closed

    async def carry_out(
        self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> Place:
        self.visits.append(visit)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        if self.is_host:
            leave()
        await asyncio.sleep(0.05)
        self.active -= 1
        await deliver(self._answer(visit))
        return Place("host") if self.is_host else HERE


@pytest.fixture
def ledger(tmp_path: Path) -> SqliteLedger:
    return SqliteLedger(tmp_path / "ledger.sqlite")


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def seed(ledger: SqliteLedger, sites: int, pages: int = 1) -> None:
    urls = [Target(f"https://s{site}.example/{page}") for site in range(sites) for page in range(pages)]
    ledger.seed(urls, now=CLOCK.now() - 1)


def make(
    ledger: SqliteLedger, carrier: NotingCarrier, thread: ThreadPoolExecutor, **fields: int | None
) -> Dispatch:
    async def deliver(parcel: Parcel) -> None:
        # As intake does it: the ledger is called from one thread.
        commit = partial(ledger.commit, Change(parcels=(parcel,)), now=CLOCK.now())
        await asyncio.get_running_loop().run_in_executor(thread, commit)
        dispatch.take_note((parcel,))

    limits = {"slots": 4, "max_pages": None, **fields}
    plan = Plan(
        crawler=Crawler(),
        etiquette=Etiquette(),
        slots=limits["slots"] or 0,
        max_pages=limits["max_pages"],
        wait_seconds=0.0,
        allow_private=False,
        may_visit=lambda site: True,
    )
    progress = Progress(began=0.0)
    dispatch = Dispatch(
        LedgerDesk(ledger, thread),
        carrier,
        plan=plan,
        clock=CLOCK,
        deliver=deliver,
        progress=progress,
        round_pages=0,
    )
    return dispatch


async def test_every_site_is_visited_and_never_more_at_once_than_there_are_slots(
    ledger: SqliteLedger, thread: ThreadPoolExecutor
) -> None:
    seed(ledger, 30)
    carrier = NotingCarrier()
    assert await make(ledger, carrier, thread).run(asyncio.Event()) == "finished"
    assert len({visit.site for visit in carrier.visits}) == 30
    assert carrier.most_active == 4


async def test_pages_that_are_left_are_shared_among_what_is_due(
    ledger: SqliteLedger, thread: ThreadPoolExecutor
) -> None:
    seed(ledger, 4, pages=50)
    carrier = NotingCarrier(lambda visit: last_parcel(visit, pages=visit.budget.pages, ended=Ended.BUDGET))
    assert await make(ledger, carrier, thread, max_pages=40).run(asyncio.Event()) == "limit"
    assert [visit.budget.pages for visit in carrier.visits] == [10, 10, 10, 10]


async def test_visits_are_impatient_only_while_others_wait_for_a_slot(
    ledger: SqliteLedger, thread: ThreadPoolExecutor
) -> None:
    seed(ledger, 6)
    carrier = NotingCarrier()
    await make(ledger, carrier, thread, slots=4).run(asyncio.Event())
    patience = [visit.budget.patience_seconds for visit in carrier.visits]
    assert max(patience[:4]) <= 1.0
    assert patience[-1] == 60.0


async def test_site_that_must_wait_ends_the_run_as_waiting(
    ledger: SqliteLedger, thread: ThreadPoolExecutor
) -> None:
    ledger.seed([Target("https://later.example/")], now=CLOCK.now() + 3600)
    assert await make(ledger, NotingCarrier(), thread).run(asyncio.Event()) == "waiting"


async def test_refused_parcel_costs_its_visit_and_not_the_run(
    ledger: SqliteLedger, thread: ThreadPoolExecutor
) -> None:
    seed(ledger, 2)

    def refuse_first(visit: Visit) -> Parcel:
        if visit.site == "https://s0.example":
            raise ParcelRefused("stale")
        return last_parcel(visit)

    carrier = NotingCarrier(refuse_first)
    assert await make(ledger, carrier, thread).run(asyncio.Event()) == "finished"
    assert len(carrier.visits) == 2


async def test_disk_that_refuses_ends_the_run_with_its_words(
    ledger: SqliteLedger, thread: ThreadPoolExecutor
) -> None:
    seed(ledger, 3)

    def refuse(visit: Visit) -> Parcel:
        raise StorageError("the disk is full")

    with pytest.raises(StorageError, match="full"):
        await make(ledger, NotingCarrier(refuse), thread).run(asyncio.Event())


async def test_stopped_run_begins_nothing_new(ledger: SqliteLedger, thread: ThreadPoolExecutor) -> None:
    seed(ledger, 3)
    stop = asyncio.Event()
    stop.set()
    carrier = NotingCarrier()
    assert await make(ledger, carrier, thread).run(stop) == "stopped"
    assert carrier.visits == []


# -- crawlers at hosts -----------------------------------------------------------------------------------


async def test_crawlers_that_are_away_take_no_slots(ledger: SqliteLedger, thread: ThreadPoolExecutor) -> None:
    seed(ledger, 30)
    carrier = NotingCarrier()
    carrier.is_host = True
    dispatch = make(ledger, carrier, thread)
    assert await dispatch.run(asyncio.Event()) == "finished"
    assert carrier.most_active > 4
    assert dispatch.progress.visits == {"host": 30}


async def test_visits_of_an_earlier_run_go_on_and_take_no_slots(
    ledger: SqliteLedger, thread: ThreadPoolExecutor
) -> None:
    seed(ledger, 6)
    leases = ledger.lease(["v", "w", "x"], now=CLOCK.now(), pages=5, max_depth=5)
    carrier = NotingCarrier()
    dispatch = make(ledger, carrier, thread, slots=2)
    carrier.left_over = [dispatch._visit(lease, 60.0) for lease in leases]
    assert await dispatch.run(asyncio.Event()) == "finished"
    assert [visit.id for visit in carrier.visits[:3]] == ["v", "w", "x"]
    assert (len(carrier.visits), carrier.most_active) == (6, 5)


async def test_site_that_the_carrier_closes_is_idle(ledger: SqliteLedger, thread: ThreadPoolExecutor) -> None:
    seed(ledger, 3)
    carrier = NotingCarrier()
    carrier.closed = {"https://s1.example"}
    assert await make(ledger, carrier, thread).run(asyncio.Event()) == "finished"
    assert {visit.site for visit in carrier.visits} == {"https://s0.example", "https://s2.example"}


async def test_visit_to_a_host_may_fetch_more_than_one_from_here(
    ledger: SqliteLedger, thread: ThreadPoolExecutor
) -> None:
    seed(ledger, 2)
    ledger.set_host(HostRow(site="https://s0.example", offer=b"{}"))
    carrier = NotingCarrier()
    await make(ledger, carrier, thread).run(asyncio.Event())
    budgets = {visit.site: visit.budget.pages for visit in carrier.visits}
    assert budgets == {"https://s0.example": 10_000, "https://s1.example": 5_000}
