"""Results of hosts that are not believed wait until they are checked; others are checked afterwards."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.clocks import StillClock
from tests.home.away.lying import NOW, SITE, visit
from tests.home.away.lying import page as plain_page
from tests.home.away.lying import parcel as plain_parcel
from tests.home.away.scripted import PARCEL_BYTES, ScriptedLines, do_nothing

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused
from sterna.home.away.courier import Courier, TripRequest
from sterna.home.away.events import Fault
from sterna.home.belief.inquiry import Inquiries
from sterna.home.belief.quarantine import Quarantine
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Out, TrustRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.progress import Progress
from sterna.model import (
    Checkpoint,
    Crawler,
    Deliver,
    Ended,
    Page,
    Parcel,
    Program,
    Raw,
    Source,
    State,
    Target,
    Usage,
    Visit,
)
from sterna.trust.score import DAY, Score, belief
from sterna.version import __version__
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint
from sterna.wire.discovery import Offer

PAGES = 100
OLD = "Mon, 01 Jan 2018 00:00:00 GMT"
OFFER = Offer(site=SITE, key="ed25519:k", endpoint=f"{SITE}/sterna", platform={"sterna": __version__})
TRUSTED = TrustRow(site=SITE, key="ed25519:k", good=200.0, at=NOW)


def page(number: int, words: str = "") -> Page:
    text = f"page {number} {words}"
    digest = digest_of(text.encode())
    return plain_page(f"/{number}", text=text, title="", digest=digest, modified=OLD, fetched=NOW)


def told(*, altered: int = 0, parcels: int = 5) -> list[Parcel]:
    """The parcels of a host that altered so many of its pages."""
    pages = [page(n, "pills" if n < altered else "") for n in range(PAGES)]
    share = PAGES // parcels
    return [
        plain_parcel(
            n + 1,
            *pages[n * share : (n + 1) * share],
            checkpoint=Checkpoint(done=()),
            ended=Ended.FINISHED if n + 1 == parcels else None,
        )
        for n in range(parcels)
    ]


@dataclass
class FakeHere:
    """The site as it is seen from here."""

    is_reachable: bool = True
    asked: list[str] = field(default_factory=list)

    async def carry_out(
        self, visit: Visit, *, deliver: Callable[[Parcel], Awaitable[None]], stop: asyncio.Event
    ) -> None:
        paths = [start.url.removeprefix(SITE) for start in visit.starts]
        self.asked += paths
        pages = [page(int(path[1:])) for path in paths] if self.is_reachable else []
        usage = Usage(requests=len(paths), bytes_received=100 * len(paths))
        await deliver(replace(plain_parcel(1, *pages), usage=usage, ended=Ended.FINISHED))

    async def digest(self, raw: Raw) -> bytes:
        raise AssertionError("no page has a raw response")


@dataclass
class World:
    """A home, a host that tells something, and what came of it."""

    folder: Path
    sender: ScriptedLines
    here: FakeHere
    ledger: SqliteLedger
    thread: ThreadPoolExecutor
    clock: StillClock
    progress: Progress
    taken: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    refuses: bool = False
    trips: int = 0

    async def take(self, parcel: Parcel) -> None:
        if self.refuses:
            raise ParcelRefused("stale")
        assert parcel.arrival
        assert parcel.arrival.size_bytes == PARCEL_BYTES
        self.taken.append(parcel.number)

    def inquiries(self, **fields: Any) -> Inquiries:
        return Inquiries(
            here=self.here,
            ledger=LedgerDesk(self.ledger, self.thread),
            quarantine=fields.pop("room", Quarantine(self.folder / "waiting")),
            clock=self.clock,
            progress=self.progress,
            warn=self.warnings.append,
            random=Random(3),
            **fields,
        )

    async def go(
        self, *, resume_from: int = 0, offer: Offer = OFFER, deliver: Deliver | None = None, **fields: Any
    ) -> Out:
        inquiries = self.inquiries(**fields)
        courier = Courier(
            self.sender.open, inquiries.ledger, clock=self.clock, progress=self.progress, inquiries=inquiries
        )
        self.trips += not resume_from
        start = visit(id=f"v{self.trips}", starts=(Target(f"{SITE}/0"),))
        request = TripRequest(visit=start, offer=offer, resume_from=resume_from)
        outcome = await courier.travel(request, deliver=deliver or self.take, stop=self.stop, blame=_forgive)
        if outcome.failure:
            raise outcome.failure
        return outcome.out

    @property
    def score(self) -> TrustRow:
        row = self.ledger.trust.row(SITE)
        assert row
        return row

    @property
    def waiting(self) -> list[str]:
        folder = self.folder / "waiting"
        return [path.name for path in folder.iterdir()] if folder.exists() else []


async def _forgive(fault: Fault) -> None:
    pass


@pytest.fixture
def world(tmp_path: Path) -> Any:
    clock = StillClock()
    clock.time = NOW + 5.0
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    with ThreadPoolExecutor(1) as thread:
        yield World(tmp_path, ScriptedLines(*told()), FakeHere(), ledger, thread, clock, Progress(began=NOW))
    ledger.close()


# -- hosts that are not believed yet ---------------------------------------------------------------------


async def test_unknown_host_is_checked_before_anything_is_used(world: World) -> None:
    async def nothing_yet(parcel: Parcel) -> None:
        assert world.taken == []
        assert world.here.asked == []

    world.sender.during = nothing_yet
    assert await world.go() is Out.RETURNED
    assert world.taken == [1, 2, 3, 4, 5]
    assert len(world.here.asked) == 5  # one page in twenty
    assert (world.score.good, world.score.bad, world.score.key) == (5.0, 0.0, "ed25519:k")
    assert {each.verdict for each in world.ledger.trust.samples(SITE)} == {"same"}
    assert world.waiting == []
    assert world.warnings == []


async def test_samples_are_requests_of_the_crawl(world: World) -> None:
    world.ledger.seed([Target(f"{SITE}/")], now=1.0)
    await world.go()
    counts = world.ledger.counts(now=1.0)
    received = 500 + 5 * PARCEL_BYTES  # the samples, and what the host sent
    assert (counts.requests, counts.bytes_received) == (5, received)
    assert (world.progress.usage.requests, world.progress.usage.bytes_received) == (5, received)
    assert world.progress.checked == 5
    assert world.progress.usage.pages == 0


async def test_nothing_of_a_lying_host_is_used_and_it_is_left_alone(world: World) -> None:
    world.sender.parcels = told(altered=PAGES)
    with pytest.raises(HostGone, match="lied: 5 of 5"):
        await world.go()
    assert (world.taken, world.waiting) == ([], [])
    assert (world.score.good, world.score.bad, world.score.until) == (0.0, 5.0, world.clock.time + 5 * DAY)
    (warning,) = world.warnings
    assert warning.startswith(f"the host of {SITE} lied: 5 of 5 checked pages")
    with pytest.raises(Refused, match="false pages") as refusal:
        await world.go()
    assert refusal.value.retry_after == pytest.approx(5 * DAY)
    assert len(world.sender.asked) == 1
    world.clock.time += 6 * DAY
    world.sender.parcels = told()
    assert await world.go() is Out.RETURNED


async def test_host_earns_trust_visit_by_visit(world: World) -> None:
    asked = []
    for _ in range(8):
        before = len(world.here.asked)
        await world.go()
        asked.append(len(world.here.asked) - before)
        if belief(Score(world.score.good, world.score.bad, world.score.at), world.clock.time).is_trusted:
            break
    assert asked == [5, 5, 5, 5, 5, 5]
    assert world.taken == [1, 2, 3, 4, 5] * 6


async def test_results_that_cannot_be_checked_are_not_used(world: World) -> None:
    world.here.is_reachable = False
    with pytest.raises(HostGone, match="cannot check the pages"):
        await world.go()
    assert (world.taken, world.waiting) == ([], [])
    assert world.score.good == world.score.bad == world.score.until == 0.0
    assert "--check none" in world.warnings[0]


async def test_what_came_before_a_host_broke_off_is_checked_and_used(world: World) -> None:
    world.sender.parcels = told()[:3]
    world.sender.error = HostGone("killed")
    with pytest.raises(HostGone, match="killed"):
        await world.go()
    assert world.taken == [1, 2, 3]
    assert world.score.good == 3.0
    assert world.waiting == []


async def test_lies_that_came_before_a_host_broke_off_are_lies(world: World) -> None:
    world.sender.parcels = told(altered=PAGES)[:3]
    world.sender.error = LineBroken("cut")
    with pytest.raises(HostGone, match="lied"):
        await world.go()
    assert world.taken == []


async def test_host_that_refuses_a_visit_is_not_judged(world: World) -> None:
    world.sender.parcels = []
    world.sender.error = Refused("busy", retry_after=9.0)
    with pytest.raises(Refused, match="busy"):
        await world.go()
    assert world.ledger.trust.row(SITE) is None
    assert world.waiting == []


async def test_parcel_that_home_refuses_leaves_nothing_waiting(world: World) -> None:
    world.refuses = True
    with pytest.raises(ParcelRefused):
        await world.go()
    assert world.waiting == []


async def test_stopped_run_uses_what_was_checked_in_the_time_that_is_left(world: World) -> None:
    async def stop(parcel: Parcel) -> None:
        world.stop.set()
        await asyncio.sleep(0.01)

    world.sender.during = stop
    await world.go()
    assert world.sender.kills == ["v1"]
    assert world.taken == [1]


async def test_crawler_is_called_back_when_nothing_more_can_wait(world: World) -> None:
    async def look(parcel: Parcel) -> None:
        await asyncio.sleep(0.02)

    world.sender.during = look
    await world.go(room=Quarantine(world.folder / "waiting", most_bytes=10))
    assert world.sender.kills == ["v1"]
    assert world.taken == [1]


# -- after a restart -------------------------------------------------------------------------------------


async def killed_after(world: World, count: int) -> None:
    """A run that is killed when so many parcels have come."""

    async def die(parcel: Parcel) -> None:
        if parcel.number == count:
            raise asyncio.CancelledError

    world.sender.during = die
    with pytest.raises(asyncio.CancelledError):
        await world.go()
    world.sender.during = do_nothing


async def test_what_waited_when_home_was_killed_is_not_asked_for_again(world: World) -> None:
    await killed_after(world, 3)
    assert world.waiting == ["v1"]
    assert await world.go(resume_from=1) is Out.RETURNED
    assert [first for _, first in world.sender.asked] == [0, 4]
    assert world.taken == [1, 2, 3, 4, 5]
    assert world.score.good == 5.0
    assert world.waiting == []


MAP, LATER = (Target(f"{SITE}/{name}.xml", 0, kind="sitemap") for name in ("map", "later"))


async def test_sitemaps_that_were_found_before_home_was_killed_may_be_done_after_it(world: World) -> None:
    first = world.sender.parcels[0]
    found = replace(first, checkpoint=Checkpoint(found=(MAP, LATER, Target(f"{SITE}/x"))))
    world.sender.parcels[:2] = [
        found,
        replace(world.sender.parcels[1], checkpoint=Checkpoint(done=(fingerprint(MAP.url),))),
    ]
    await killed_after(world, 3)
    await world.go(resume_from=1)
    assert world.sender.waiting == [LATER]


async def test_trusted_host_may_be_done_with_what_the_ledger_says_was_found(world: World) -> None:
    world.ledger.trust.set(TRUSTED)
    world.ledger.seed([Target(f"{SITE}/"), MAP], now=NOW)
    await world.go()
    assert world.sender.waiting == []
    await world.go(resume_from=3)
    assert world.sender.waiting == [MAP]


@pytest.mark.parametrize("is_held", [False, True])
async def test_rules_of_a_resumed_visit_are_judged_from_the_state_before_what_came_since(
    world: World, is_held: bool
) -> None:
    if not is_held:
        world.ledger.trust.set(TRUSTED)
    rules = (Source("r.clp", "(defrule a (page) => (assert (seen)))"),)
    state = State(((1, b"before"),), b"memory")
    start = visit(crawler=Crawler(program=Program(rules=rules)), state=state)
    room = Quarantine(world.folder / "waiting")
    if is_held:
        (await room.open(start.id)).close()
    since = State(((2, b"since"),), b"later")
    world.ledger.set_state(SITE, since)
    inquiry = await world.inquiries(room=room).open(start, OFFER, is_resumed=True)
    inquiry.witness.see(plain_parcel(3, page(1)))
    assert inquiry.witness.runs
    assert inquiry.witness.runs.run
    assert inquiry.witness.runs.run.state == (state if is_held else since)
    if inquiry.held:
        inquiry.held.close()


async def test_lies_that_waited_when_home_was_killed_are_found(world: World) -> None:
    world.sender.parcels = told(altered=60)
    await killed_after(world, 3)
    world.sender.parcels = told(altered=60)
    with pytest.raises(HostGone, match="lied"):
        await world.go(resume_from=1)
    assert world.taken == []


async def test_home_killed_while_it_stores_what_was_checked_goes_on_there(world: World) -> None:
    class Killed(BaseException):
        pass

    async def take(parcel: Parcel) -> None:
        if parcel.number == 3:
            raise Killed
        world.taken.append(parcel.number)

    with pytest.raises(Killed):
        await world.go(deliver=take)
    assert (world.taken, world.waiting) == ([1, 2], ["v1"])
    await world.go(resume_from=3)
    assert [first for _, first in world.sender.asked] == [0]  # its end was proven: the host need not be asked
    assert world.taken == [1, 2, 3, 4, 5]


# -- hosts that are believed -----------------------------------------------------------------------------


async def test_trusted_host_is_checked_after_its_results_are_used(world: World) -> None:
    world.ledger.trust.set(TRUSTED)

    async def at_once(parcel: Parcel) -> None:
        assert world.taken[-1] == parcel.number

    world.sender.during = at_once
    await world.go()
    assert 1 <= len(world.here.asked) <= 2
    assert world.score.good > TRUSTED.good - 1


def _noting(noted: list[tuple[str, float]], site: str, *, since: float, now: float) -> int:
    noted.append((site, since))
    return 1


async def test_trusted_host_that_lies_loses_all_and_what_it_brought_is_visited_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back: list[tuple[str, float]] = []
    world.ledger.trust.set(TRUSTED)
    put = partial(_noting, put_back)
    monkeypatch.setattr(world.ledger.trust, "put_back", put)
    world.sender.parcels = told(altered=PAGES)
    with pytest.raises(HostGone, match="lied"):
        await world.go()
    assert put_back == [(SITE, NOW)]
    assert (world.score.good, world.score.until > world.clock.time) == (0.0, True)


async def test_new_key_must_earn_trust_again(world: World) -> None:
    world.ledger.trust.set(TRUSTED)
    await world.go(offer=replace(OFFER, key="ed25519:new"))
    assert len(world.here.asked) == 5
    assert (world.score.key, world.score.good) == ("ed25519:new", 5.0)


async def test_strict_check_believes_nobody(world: World) -> None:
    world.ledger.trust.set(TRUSTED)

    async def nothing_yet(parcel: Parcel) -> None:
        assert world.taken == []

    world.sender.during = nothing_yet
    await world.go(is_strict=True)
    assert len(world.here.asked) == 2 * 59  # also as a browser
    assert world.taken == [1, 2, 3, 4, 5]
