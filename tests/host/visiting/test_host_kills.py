"""A host is killed again and again while a home follows its visit: each page comes home, and none twice."""

import asyncio
import os
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.home.away.outings import PlainCourier
from tests.home.away.test_trips_to_a_service import visit
from tests.host.knocking import NAME, SITE, until
from tests.host.visiting.dying_host import FATAL, HALF, PAGES, PORT
from tests.killing import Parent, kill, warm

from sterna.errors import LineBroken
from sterna.home.away.patience import Patience
from sterna.home.away.trip import Trip
from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.host.policy.policy import DayCaps
from sterna.host.state import Rations, open_state
from sterna.model import Ended, Parcel
from sterna.transport.http import HttpConfig, HttpTransport
from sterna.web.clock import SystemClock
from sterna.wire.discovery import Offer

ALL = Counter({"/", *(f"/{number}" for number in range(PAGES))})
STUBBORN = Patience(silence_seconds=20.0, tries=200, pause_seconds=0.02, longest_pause_seconds=0.1)
# In the order in which they come within a visit; one host after the other dies of them.
STEPS = ["admitted:1", "rationed:2", "parcel-written:2", "entry-appended:2", f"{HALF}:2", "piece-sent:3",
         "acknowledged:1", "log-rewritten:1", "finished:1", "receipt-kept:1"]  # fmt: skip


class _Local:
    async def resolve(self, hostname: str) -> tuple[str, ...]:
        return ("127.0.0.1",)

    def prefer(self, hostname: str, address: str) -> None:
        pass


class Follower:
    """A home that stores what comes; a new one may go on where another ended."""

    def __init__(self, folder: Path, port: int) -> None:
        keyring = Keyring(folder / "keys")
        self.identity = keyring.make("home")
        allow(folder / "keys" / ALLOWED, self.identity.public, NAME)
        key = keyring.make("host").public.text
        self.offer = Offer(site=SITE, key=key, endpoint=f"http://127.0.0.1:{port}/sterna")
        self.parcels: list[Parcel] = []

    @property
    def next(self) -> int:
        """The parcel to go on with; 0 before the first."""
        return self.parcels[-1].number + 1 if self.parcels else 0

    async def go(self, *, resume_from: int = 0) -> Trip:
        transport = HttpTransport(HttpConfig(), resolver=_Local(), clock=SystemClock())
        transport.let_private("127.0.0.1")
        courier = PlainCourier(transport, clock=SystemClock(), identity=self.identity, patience=STUBBORN)
        try:
            async with asyncio.timeout(60):
                return await self._until_taken(courier, resume_from)
        finally:
            await transport.close()

    async def _until_taken(self, courier: PlainCourier, resume_from: int) -> Trip:
        while True:
            try:
                return await courier.carry(
                    visit(), self.offer, deliver=self._deliver, resume_from=resume_from
                )
            except LineBroken:  # at the greeting: nothing was sent
                await asyncio.sleep(0.05)

    async def _deliver(self, parcel: Parcel) -> None:
        self.parcels.append(parcel)

    def assert_whole(self) -> None:
        paths = (page.url.removeprefix(SITE) for parcel in self.parcels for page in parcel.pages)
        assert Counter(paths) == ALL
        assert [parcel.number for parcel in self.parcels] == list(range(1, len(self.parcels) + 1))
        assert self.parcels[-1].ended is Ended.FINISHED
        assert sum(parcel.usage.pages for parcel in self.parcels) == PAGES + 1


@contextmanager
def grounds(folder: Path) -> Iterator[tuple[Parent, Follower]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / PORT).write_text(str(port))
    follower = Follower(folder, port)
    with warm("tests.host.visiting.dying_host") as parent:
        yield parent, follower


@asynccontextmanager
async def hosts(parent: Parent, folder: Path, fates: list[str]) -> AsyncIterator[list[str]]:
    """Hosts that die of these fates, one after the other, and then one that lives; yields what they met."""
    met: list[str] = []
    task = asyncio.create_task(_succeed(parent, folder, fates, met))
    try:
        yield met
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _succeed(parent: Parent, folder: Path, fates: list[str], met: list[str]) -> None:
    host = 0
    try:
        for fate in fates:
            (folder / FATAL).write_text(fate)
            host = await asyncio.to_thread(parent.start, folder)
            while _is_alive(host):  # noqa: ASYNC110 - nobody tells a test of it
                await asyncio.sleep(0.005)
            met.append(fate)
        (folder / FATAL).unlink(missing_ok=True)
        host = await asyncio.to_thread(parent.start, folder)
        await asyncio.Event().wait()
    finally:
        if _is_alive(host):
            kill(host)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_host_that_is_killed_at_every_step_loses_nothing(tmp_path: Path) -> None:
    with grounds(tmp_path) as (parent, home):
        async with hosts(parent, tmp_path, STEPS) as met:
            trip = await home.go()
            assert met == STEPS
    home.assert_whole()
    assert (trip.is_proven, trip.receipt) == (True, "signed")
    left = Rations(open_state(tmp_path / "state")).left(home.identity.public.id, DayCaps(pages=1000), _day())
    assert left.pages <= 1000 - PAGES - 1  # what was lost and fetched again counts too


def _day() -> str:
    return datetime.now(UTC).date().isoformat()


async def test_host_that_is_killed_at_random_while_home_comes_and_goes_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    with grounds(tmp_path) as (parent, home):
        while not (home.parcels and home.parcels[-1].ended):
            host = await asyncio.to_thread(parent.start, tmp_path)
            seen, going = len(home.parcels), asyncio.create_task(home.go(resume_from=home.next))
            await until(lambda: len(home.parcels) > seen or going.done())  # noqa: B023 - in this round
            await asyncio.sleep(chance.random() * 0.2)
            kill(host)
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
    home.assert_whole()
