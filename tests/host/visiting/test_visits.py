"""Visits as resources: they outlive their stream, are resumed, looked at, killed, and never fill the host."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.host.knocking import (
    FastClock,
    GatedSite,
    Home,
    Stream,
    limits_of,
    open_home,
    problem_in,
    send,
    until,
)

from sterna.host.keyring import ALLOWED, allow
from sterna.host.policy.policy import HostLimits
from sterna.host.visiting import hosted, visits
from sterna.model import Budget
from sterna.wire.keys import Identity
from sterna.wire.orders import Kill, Look, Resume
from sterna.wire.stream import AliveCame, ParcelCame

KEPT_SECONDS = HostLimits().kept_seconds


@pytest.fixture
def site() -> GatedSite:
    return GatedSite()


@pytest.fixture
async def home(tmp_path: Path, site: GatedSite) -> AsyncIterator[Home]:
    async with open_home(tmp_path, site=site) as opened:
        yield opened


async def begin(home: Home, **fields: Any) -> Stream:
    reply, session = await home.order(send(**fields))
    return Stream(reply, session)


def spooled(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("state/visits/*/*") if path.name.isdigit())


# -- after a cut -------------------------------------------------------------------------------------------


async def test_visit_goes_on_without_its_reader_and_is_resumed(home: Home, site: GatedSite) -> None:
    stream = await begin(home)
    await stream.read(until=ParcelCame)
    first = stream.numbers
    await stream.close()
    site.let(12)
    report = await home.report(Look("v1"))
    while report.state != "finished":
        await asyncio.sleep(0.02)
        report = await home.report(Look("v1"))
    assert report.parcels > first[-1]
    rest = await home.visit(Resume("v1", first[-1] + 1))
    assert rest.numbers == list(range(first[-1] + 1, report.parcels + 1))
    assert {*stream.pages, *rest.pages} == {"/", *(f"/{n}" for n in range(12))}
    assert rest.ending.pages == 13


async def test_resumed_stream_begins_anywhere_and_again(home: Home, site: GatedSite) -> None:
    site.let(12)
    whole = await home.visit(send())
    for first in whole.numbers:
        again = await home.visit(Resume("v1", first))
        assert again.numbers == whole.numbers[first - 1 :]
        assert again.ending == whole.ending
    nothing_left = await home.visit(Resume("v1", whole.numbers[-1] + 1))
    assert nothing_left.numbers == []
    assert nothing_left.ending == whole.ending


@pytest.mark.parametrize("first", [0, 99])
async def test_parcel_that_never_was_cannot_be_resumed(home: Home, site: GatedSite, first: int) -> None:
    site.let(12)
    await home.visit(send())
    reply, _ = await home.order(Resume("v1", first))
    assert problem_in(reply).name == "malformed"


async def test_new_stream_ends_the_old_one(home: Home, site: GatedSite) -> None:
    old = await begin(home)
    reading = asyncio.create_task(old.read())
    await until(lambda: bool(old.came))
    site.let(12)
    new = await home.visit(Resume("v1", 1))
    await reading
    assert new.ending.ended == "finished"
    assert old.problem.name == "gone"


async def test_acknowledged_parcels_are_deleted_and_gone(home: Home, site: GatedSite, tmp_path: Path) -> None:
    site.let(12)
    stream = await home.visit(send())
    assert spooled(tmp_path) == [str(number) for number in stream.numbers]
    assert (await home.acknowledge(stream.session, "v1", 1)).status == 200
    assert (await home.acknowledge(stream.session, "v1", 1)).status == 200  # to say it twice does no harm
    assert spooled(tmp_path) == [str(number) for number in stream.numbers[1:]]
    reply, _ = await home.order(Resume("v1", 1))
    assert problem_in(reply).name == "gone"
    assert (await home.acknowledge(stream.session, "v1", 10**6)).status == 200
    report = await home.report(Look("v1"))
    assert (spooled(tmp_path), report.acknowledged, report.kept_bytes) == ([], report.parcels, 0)


async def test_silence_is_broken_by_signs_of_life(
    home: Home, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "ALIVE_SECONDS", 0.05)
    stream = await begin(home)
    await stream.read(until=AliveCame)
    site.let(12)
    await stream.read()
    assert stream.ending.ended == "finished"


# -- who may do what ---------------------------------------------------------------------------------------


async def test_visit_of_another_home_is_gone(home: Home, site: GatedSite, tmp_path: Path) -> None:
    site.let(12)
    mine = await home.visit(send())
    mallory = Home(home.service, home.host, Identity.new())
    allow(tmp_path / "keys" / ALLOWED, mallory.identity.public, "mallory")
    for order in (Resume("v1", 1), Look("v1"), Kill("v1")):
        reply, session = await mallory.order(order)
        assert problem_in(reply).name == "gone"
        assert problem_in(await mallory.acknowledge(session, "v1", 10**6)).name == "gone"
    assert (await home.visit(Resume("v1", 1))).numbers == mine.numbers


async def test_two_homes_may_use_the_same_name(home: Home, site: GatedSite, tmp_path: Path) -> None:
    other = Home(home.service, home.host, Identity.new())
    allow(tmp_path / "keys" / ALLOWED, other.identity.public, "other")
    site.let(24)
    streams = await asyncio.gather(home.visit(send()), other.visit(send()))
    assert [len(stream.pages) for stream in streams] == [13, 13]


# -- the end before the end --------------------------------------------------------------------------------


async def test_killed_visit_keeps_what_it_found(home: Home, site: GatedSite) -> None:
    stream = await begin(home)
    reading = asyncio.create_task(stream.read())
    await until(lambda: len(site.asked) > 2)
    site.let(3)
    await until(lambda: len(site.asked) > 5)
    killing = asyncio.create_task(home.report(Kill("v1")))
    await asyncio.sleep(0.05)
    site.let(4)  # those that are under way
    report = await killing
    await reading
    assert (report.state, report.ended) == ("killed", "stopped")
    assert stream.ending.ended == "stopped"
    assert 4 <= len(stream.pages) < 13


async def test_visit_that_does_not_listen_is_killed_hard(
    home: Home, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "KILL_SECONDS", 0.2)
    stream = await begin(home)
    reading = asyncio.create_task(stream.read())
    await until(lambda: len(site.asked) > 2)
    report = await home.report(Kill("v1"))
    await reading
    assert report.state == "killed"
    assert stream.problem.name == "gone"
    kept = await home.visit(Resume("v1", 1))
    assert kept.numbers == stream.numbers


async def test_stopped_host_takes_no_more_visits_and_ends_its_streams_as_if_cut(
    home: Home, site: GatedSite
) -> None:
    stream = await begin(home)
    reading = asyncio.create_task(stream.read())
    await until(lambda: len(site.asked) > 2)
    home.service.stop()
    site.let(12)
    await reading
    assert isinstance(stream.came[-1], ParcelCame)
    assert stream.parcels[-1].ended is None
    reply, _ = await home.order(send(visit="v2"))
    assert problem_in(reply).name == "busy"


async def test_stopped_host_that_keeps_nothing_ends_its_streams_well(tmp_path: Path, site: GatedSite) -> None:
    async with open_home(tmp_path, site=site, is_live_only=True) as home:
        stream = await begin(home)
        reading = asyncio.create_task(stream.read())
        await until(lambda: len(site.asked) > 2)
        home.service.stop()
        site.let(12)
        await reading
        assert stream.ending.ended == "stopped"


async def test_session_outlives_the_process(tmp_path: Path, site: GatedSite) -> None:
    async with open_home(tmp_path, site=site) as home:
        session = await home.greet()
    async with open_home(tmp_path, pages=3) as later:
        again = Home(later.service, later.host, home.identity)
        reply, _ = await again.order(send(), session)
        stream = Stream(reply, session)
        await stream.read()
        assert len(stream.pages) == 4


# -- bounds ------------------------------------------------------------------------------------------------


async def test_more_crawlers_than_may_work_wait_or_are_sent_away(tmp_path: Path, site: GatedSite) -> None:
    limits = limits_of(crawlers_at_once=1, queue=1)
    async with open_home(tmp_path, site=site, limits=limits) as home:
        first, second = await begin(home, visit="v1"), await begin(home, visit="w2")
        await until(lambda: len(site.asked) > 2)
        assert (await home.report(Look("v1"))).state == "running"
        assert (await home.report(Look("w2"))).state == "queued"
        reply, _ = await home.order(send(visit="w3"))
        problem = problem_in(reply)
        assert (problem.name, problem.status, problem.retry_after) == ("busy", 503, 30)
        site.let(24)
        await asyncio.gather(first.read(), second.read())
        assert (first.ending.ended, second.ending.ended) == ("finished", "finished")
        assert (await home.visit(Resume("w2", 1))).ending == second.ending


async def test_queued_visit_is_killed_at_once(tmp_path: Path, site: GatedSite) -> None:
    async with open_home(tmp_path, site=site, limits=limits_of(crawlers_at_once=1)) as home:
        await begin(home, visit="v1")
        await begin(home, visit="w2")
        async with asyncio.timeout(3):
            assert (await home.report(Kill("w2"))).state == "killed"


async def test_one_home_cannot_fill_the_queue(tmp_path: Path, site: GatedSite) -> None:
    async with open_home(tmp_path, site=site, limits=limits_of(visits_of_a_home=2)) as home:
        other = Home(home.service, home.host, Identity.new())
        allow(tmp_path / "keys" / ALLOWED, other.identity.public, "other")
        await begin(home, visit="v1")
        await begin(home, visit="v2")
        reply, _ = await home.order(send(visit="v3"))
        assert problem_in(reply).name == "busy"
        site.let(100)
        assert (await other.visit(send())).ending.ended == "finished"


async def test_full_spool_holds_the_visit_and_gives_its_place_to_another(tmp_path: Path) -> None:
    site = GatedSite(pages=3000)
    site.let(10**6)
    limits = limits_of(crawlers_at_once=1, kept_bytes=30_000)
    async with open_home(tmp_path, site=site, limits=limits) as home:
        stuck = await begin(home)  # nobody reads it
        small = await begin(home, visit="w2", budget=Budget(pages=1))
        await follow(home, small, "w2")
        assert small.ending.ended == "budget"
        asked = 0
        while len(site.asked) > asked:  # one more parcel fills while the first waits
            asked = len(site.asked)
            await asyncio.sleep(0.5)
        assert asked < 1500
        report = await home.report(Look("v1"))
        assert (report.state, report.acknowledged) == ("running", 0)
        assert 0 < report.kept_bytes <= 30_000
        await follow(home, stuck, "v1")
        assert stuck.ending.pages == 2000


async def follow(home: Home, stream: Stream, visit: str) -> None:
    """Reads a stream to its end and acknowledges what comes."""
    reading = asyncio.create_task(stream.read())
    acknowledged = 0
    while not reading.done():
        await asyncio.sleep(0.02)
        came = sum(isinstance(each, ParcelCame) for each in stream.came)
        if came > acknowledged:
            acknowledged = came
            await home.acknowledge(stream.session, visit, came)


async def test_visit_without_a_sign_of_its_home_expires(
    tmp_path: Path, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "SWEEP_SECONDS", 0.02)
    clock = FastClock()
    async with open_home(tmp_path, site=site, clock=clock) as home:
        await begin(home)
        await until(lambda: bool(spooled(tmp_path)))
        clock.ahead_seconds += KEPT_SECONDS + 1
        await until(lambda: not spooled(tmp_path))
        reply, _ = await home.order(Look("v1"))
        assert problem_in(reply).name == "gone"
        site.let(24)
        assert (await home.visit(send())).ending.ended == "finished"


async def test_finished_visit_is_forgotten_in_its_time(
    tmp_path: Path, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "SWEEP_SECONDS", 0.02)
    site.let(12)
    clock = FastClock()
    async with open_home(tmp_path, site=site, clock=clock) as home:
        await home.visit(send())
        for _ in range(2):  # each look counts as a sign of its home
            assert (await home.report(Look("v1"))).state == "finished"
            clock.ahead_seconds += KEPT_SECONDS - 30
        clock.ahead_seconds += 31
        await until(lambda: not spooled(tmp_path))
        reply, _ = await home.order(Resume("v1", 1))
        assert problem_in(reply).name == "gone"


async def test_parcels_that_an_earlier_version_left_are_swept(tmp_path: Path, site: GatedSite) -> None:
    left = tmp_path / "state" / "visits" / "abc-v9"
    left.mkdir(parents=True)
    (left / "1").write_bytes(b"x" * 1000)
    site.let(12)
    async with open_home(tmp_path, site=site) as home:
        assert not left.exists()
        await home.visit(send())


@pytest.mark.usefixtures("own_processes")
async def test_processes_end_when_no_visit_comes(tmp_path: Path) -> None:
    others = children()  # servers that other tests keep

    def at_work() -> set[str]:
        return children() - others

    async with open_home(tmp_path, limits=limits_of(idle_seconds=1.0)) as home:
        await home.visit(send())
        assert at_work()
        await until(lambda: not at_work())
        assert (await home.visit(send(visit="w2"))).ending.ended == "finished"
        assert at_work()
    assert not at_work()


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{_main_thread()}/children").read_text().split())


def _main_thread() -> str:
    return Path("/proc/self").resolve().name


async def test_failure_of_the_source_is_the_visits_problem(tmp_path: Path, caplog: Any) -> None:
    async with open_home(tmp_path, root=tmp_path / "nowhere") as home:
        stream = await home.visit(send())
        assert stream.problem.name == "internal"
        assert "nowhere" not in stream.problem.detail
        assert (await home.report(Look("v1"))).state == "killed"
        assert "nowhere" in caplog.text
