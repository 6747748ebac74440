"""How long a visit is kept for a home that does not call: also after a restart, and with a failing disk."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clocks import Wall
from tests.host.knocking import FastClock, GatedSite, Home, Stream, open_home, send, until

from sterna.host.policy.policy import HostLimits, Policy
from sterna.host.visiting import overseer, visits
from sterna.host.visiting.logbook import TALLY
from sterna.host.visiting.visits import Visits

KEPT_SECONDS = HostLimits().kept_seconds
DEFERRED_SECONDS = HostLimits().deferred_seconds
HOUR = 3600.0
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
AT_NIGHT = msgspec.convert({"zone": "UTC", "hours": ["daily 02:00-05:00"], "outside_hours": "keep"}, Policy)

Sweep = Callable[[], Awaitable[None]]


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Returns when the host has looked for expired visits, with all clocks as they are now."""
    count, once = 0, Visits._sweep_once

    def counting(all: Visits) -> None:
        nonlocal count
        once(all)
        count += 1

    async def wait() -> None:
        before = count
        await until(lambda: count >= before + 2)

    monkeypatch.setattr(Visits, "_sweep_once", counting)
    monkeypatch.setattr(visits, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)
    return wait


class Times:
    """The clocks of a host and of its machine, which a test puts forward together."""

    def __init__(self) -> None:
        self.clock, self.wall = FastClock(), Wall(NOON)

    def pass_(self, seconds: float) -> None:
        self.clock.ahead_seconds += seconds
        self.wall.time += seconds

    @asynccontextmanager
    async def open(self, folder: Path, before: Home | None = None, **fields: Any) -> AsyncIterator[Home]:
        serving = {"wall": self.wall}
        async with open_home(folder, before=before, clock=self.clock, serving=serving, **fields) as home:
            yield home

    async def begin(self, home: Home, **fields: Any) -> Stream:
        session = await home.greet(now=self.wall())
        reply, _ = await home.order(send(**fields), session)
        return Stream(reply, session)


@pytest.fixture
def times() -> Times:
    return Times()


def open_site() -> GatedSite:
    """A site that lets everything through."""
    site = GatedSite()
    site.let(10**4)
    return site


def kept(folder: Path) -> list[str]:
    return sorted(path.name.partition("-")[2] for path in (folder / "state" / "visits").iterdir())


async def finish(home: Home, times: Times, **fields: Any) -> None:
    """A visit that is over and was received, but not acknowledged."""
    stream = await times.begin(home, **fields)
    await stream.read()
    assert stream.ending.ended == "finished"


def break_tally(folder: Path, visit: str) -> None:
    """From now on it cannot be written."""
    (tally,) = (folder / "state" / "visits").glob(f"*-{visit}/{TALLY}")
    tally.unlink()
    tally.mkdir()


# -- after a restart ---------------------------------------------------------------------------------------


async def test_results_of_a_visit_that_waited_for_its_hours_are_kept_for_a_day_after_a_restart_too(
    tmp_path: Path, times: Times, sweep: Sweep
) -> None:
    async with times.open(tmp_path, site=open_site(), policy=AT_NIGHT) as home:
        await (await times.begin(home)).close()
        await until(lambda: home.service.status().visits[0].state == "waiting")
        times.pass_(14.5 * HOUR)
        await until(lambda: home.service.status().visits[0].state == "finished")
        times.pass_(0.5 * HOUR)
        await sweep()
    async with times.open(tmp_path, home, site=open_site(), policy=AT_NIGHT) as later:
        await sweep()
        assert kept(tmp_path) == ["v1"]
        times.pass_(KEPT_SECONDS + 60)
        await sweep()
        assert later.service.status().visits[0].state == "finished"
        times.pass_(DEFERRED_SECONDS)
        await until(lambda: not kept(tmp_path))


async def test_visit_that_rested_until_its_hours_came_again_counts_as_one_that_waited(
    tmp_path: Path, times: Times, sweep: Sweep
) -> None:
    times.pass_(17 * HOUR - 60)
    async with times.open(tmp_path, site=(site := GatedSite()), policy=AT_NIGHT) as home:
        await (await times.begin(home)).close()
        await until(lambda: len(site.asked) > 2)
        times.pass_(120)
        await until(lambda: bool(home.service.status().visits[0].paused))
    async with times.open(tmp_path, home, site=open_site(), policy=Policy()) as later:
        await until(lambda: later.service.status().visits[0].state == "finished")
        times.pass_(KEPT_SECONDS + 60)
        await sweep()
        assert kept(tmp_path) == ["v1"]


async def test_downtime_of_a_host_does_not_count_as_silence_of_a_home(
    tmp_path: Path, times: Times, sweep: Sweep
) -> None:
    async with times.open(tmp_path, site=open_site()) as home:
        await finish(home, times)
    times.pass_(100 * KEPT_SECONDS)
    async with times.open(tmp_path, home, site=open_site()):
        await sweep()
        times.pass_(KEPT_SECONDS - 60)
        await sweep()
        assert kept(tmp_path) == ["v1"]
        times.pass_(120)
        await until(lambda: not kept(tmp_path))


async def test_silence_before_a_restart_counts(tmp_path: Path, times: Times, sweep: Sweep) -> None:
    """Otherwise a host that is restarted every day would keep the results of a night for ever."""
    async with times.open(tmp_path, site=open_site()) as home:
        await finish(home, times)
        times.pass_(KEPT_SECONDS - 120)
        await sweep()
    async with times.open(tmp_path, home, site=open_site()) as later:
        times.pass_(90)
        await sweep()
        assert kept(tmp_path) == ["v1"]
    async with times.open(tmp_path, later, site=open_site()):
        times.pass_(90)
        await until(lambda: not kept(tmp_path))


async def test_clock_that_was_a_year_ahead_does_not_keep_a_visit_for_a_year(
    tmp_path: Path, times: Times, sweep: Sweep
) -> None:
    times.wall.time += 365 * 24 * HOUR
    async with times.open(tmp_path, site=open_site()) as home:
        await finish(home, times)
    times.wall.time = time.time()
    async with times.open(tmp_path, home, site=open_site()):
        times.pass_(KEPT_SECONDS + 60)
        await until(lambda: not kept(tmp_path))


# -- a tally that cannot be written ------------------------------------------------------------------------


async def test_visit_whose_tally_cannot_be_written_expires_and_so_do_the_others(
    tmp_path: Path, times: Times, sweep: Sweep
) -> None:
    async with times.open(tmp_path, site=GatedSite()) as home:
        streams = [await times.begin(home, visit=visit) for visit in ("v1", "w2")]
        reading = [asyncio.create_task(stream.read()) for stream in streams]
        await until(lambda: all(stream.came for stream in streams))
        break_tally(tmp_path, "v1")
        times.pass_(KEPT_SECONDS + 60)
        await until(lambda: not kept(tmp_path))
        await asyncio.gather(*reading)
        assert [stream.problem.detail for stream in streams] == ["the visit expired"] * 2
        assert home.service.status().kept_bytes == 0


async def test_home_can_free_space_while_the_tally_cannot_be_written(
    tmp_path: Path, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    async with times.open(tmp_path, site=open_site()) as home:
        stream = await times.begin(home)
        await stream.read()
        break_tally(tmp_path, "v1")
        with caplog.at_level(logging.WARNING):
            for number in stream.numbers:
                assert (await home.acknowledge(stream.session, "v1", number)).status == 200
        assert not list((tmp_path / "state" / "visits").glob("*/[0-9]*"))
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith("visit v1: cannot write ")
