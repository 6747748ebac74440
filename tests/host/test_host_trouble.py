"""What a host does when its owner stops it, its audit log or its disk fails, or a home never comes back."""

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
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

from sterna.errors import Refused
from sterna.host import files
from sterna.host.owner.audit import AUDIT, REFUSALS_A_MINUTE, Audit, Notes
from sterna.host.owner.control import Closure, Doors
from sterna.host.owner.verification import verify
from sterna.host.policy.policy import Policy
from sterna.host.state import open_state
from sterna.host.visiting import overseer, visits
from sterna.model import Budget, Crawler, Program, Source
from sterna.transport.interface import Call
from sterna.web.clock import SystemClock
from sterna.wire.keys import Identity
from sterna.wire.orders import Kill, Look, Resume

CLOSURE = Closure("it reads too much")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(visits, "SWEEP_SECONDS", 0.05)


@pytest.fixture
def site() -> GatedSite:
    return GatedSite()


@pytest.fixture
async def home(tmp_path: Path, site: GatedSite) -> AsyncIterator[Home]:
    async with open_home(tmp_path, site=site) as opened:
        yield opened


async def begun(home: Home, site: GatedSite, **fields: Any) -> tuple[Stream, asyncio.Task[None]]:
    """A visit at work, and who reads its stream."""
    reply, session = await home.order(send(**fields))
    stream = Stream(reply, session)
    reading = asyncio.create_task(stream.read())
    await until(lambda: len(site.asked) > 2)
    return stream, reading


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "state" / AUDIT).read_text().splitlines()]


# -- what is written down ----------------------------------------------------------------------------------


async def test_audit_log_tells_a_visit_from_its_coming_to_its_end(
    home: Home, site: GatedSite, tmp_path: Path
) -> None:
    site.let(100)
    stream = await home.visit(send(crawler=Crawler(name="\x1b[31mhealth")))
    await until(lambda: events(tmp_path)[-1]["event"] == "visit-ended")
    taken, began, ended = events(tmp_path)
    assert [taken["event"], began["event"]] == ["visit-taken", "visit-began"]
    for line in (taken, began, ended):
        assert (line["visit"], line["home"], line["key"]) == ("v1", "ada", home.identity.public.text)
        assert line["crawler"] == "\x1b[31mhealth"
    assert (ended["ended"], ended["pages"], ended["requests"]) == ("finished", 13, 14)
    assert ended["root"] == stream.ending.root.hex()
    assert ended["read_bytes"] > 1000
    assert b"\x1b" not in (tmp_path / "state" / AUDIT).read_bytes()
    assert verify(tmp_path / "state" / AUDIT).is_whole


async def test_refusals_are_written_down_but_not_without_end(home: Home, tmp_path: Path) -> None:
    stranger = Home(home.service, home.host, Identity.new())
    for _ in range(REFUSALS_A_MINUTE + 20):
        reply = await home.service.answer(Call("hello", stranger.greeting().body))
        assert problem_in(reply).name == "unknown-home"
    lines = events(tmp_path)
    assert len(lines) == REFUSALS_A_MINUTE
    assert lines[0]["problem"] == "unknown-home"
    assert lines[0]["key"] == stranger.identity.public.text
    await home.service.close()
    assert events(tmp_path)[-1]["count"] == 20


async def test_processes_that_see_one_request_each_write_a_refusal_a_second(tmp_path: Path) -> None:
    for _ in range(10):
        async with open_home(tmp_path, is_live_only=True) as home:
            stranger = Home(home.service, home.host, Identity.new())
            await home.service.answer(Call("hello", stranger.greeting().body))
    assert 1 <= len(events(tmp_path)) <= 5


def test_window_of_refusals_opens_again(tmp_path: Path) -> None:
    now = [0.0]
    notes = Notes(Audit(tmp_path / AUDIT, clock=SystemClock()), now=lambda: now[0])
    for _ in range(2):
        for _ in range(REFUSALS_A_MINUTE + 5):
            notes.refusal(Refused("busy", "full"))
        now[0] += 61.0
    lines = [json.loads(line) for line in (tmp_path / AUDIT).read_text().splitlines()]
    assert len(lines) == 2 * REFUSALS_A_MINUTE + 1
    assert [line["count"] for line in lines if "count" in line] == [5]


# -- an audit log that cannot be written -------------------------------------------------------------------


@pytest.fixture
async def unwritable(tmp_path: Path, site: GatedSite) -> AsyncIterator[tuple[Home, Path]]:
    """A host whose audit log is in a folder that a test can take away."""
    folder = tmp_path / "log"
    serving = {"audit": Audit(folder / AUDIT, clock=SystemClock())}
    async with open_home(tmp_path, site=site, serving=serving) as opened:
        yield opened, folder


def break_log(folder: Path) -> None:
    if folder.exists():
        folder.rename(folder.with_name("away"))
    folder.write_text("a file where a folder should be")


def mend_log(folder: Path) -> None:
    folder.unlink()
    if folder.with_name("away").exists():
        folder.with_name("away").rename(folder)


async def test_nothing_is_taken_while_the_audit_log_cannot_be_written(
    unwritable: tuple[Home, Path], site: GatedSite, caplog: pytest.LogCaptureFixture
) -> None:
    home, folder = unwritable
    break_log(folder)
    with caplog.at_level(logging.ERROR):
        problem = problem_in((await home.order(send()))[0])
    assert (problem.name, problem.detail) == ("internal", "the host cannot write its audit log")
    assert re.search(r"cannot write audit log .*audit\.jsonl", caplog.text)
    again = await home.service.answer(Call("hello", home.greeting().body))
    assert problem_in(again).detail == "the host cannot write its audit log"
    assert site.asked == []
    mend_log(folder)
    site.let(100)
    assert (await home.visit(send(visit="v2"))).ending.ended == "finished"
    lines = [json.loads(line)["event"] for line in (folder / AUDIT).read_text().splitlines()]
    assert lines[:2] == ["notes-lost", "notes-resumed"]


async def test_visit_under_way_ends_softly_when_the_audit_log_fails(
    unwritable: tuple[Home, Path], site: GatedSite
) -> None:
    home, folder = unwritable
    stream, reading = await begun(home, site)
    break_log(folder)
    await home.order(send(visit="v2"))  # the first that notices
    await until(lambda: any("audit log" in line for line in stream.lines))
    site.let(100)
    await asyncio.wait_for(reading, 20)
    assert stream.ending.ended == "budget"


# -- the owner's hand --------------------------------------------------------------------------------------


async def test_closed_doors_end_all_visits_and_let_nobody_in(
    home: Home, site: GatedSite, tmp_path: Path
) -> None:
    stream, reading = await begun(home, site)
    Doors(tmp_path / "state").close("moving house")
    await asyncio.sleep(0.2)
    site.let(100)
    await asyncio.wait_for(reading, 20)
    assert stream.ending.ended == "stopped"
    refused = problem_in(await home.service.answer(Call("hello", home.greeting().body)))
    assert (refused.name, refused.detail, refused.retry_after) == ("stopped", "moving house", 3600)
    stranger = Home(home.service, home.host, Identity.new())
    told = problem_in(await home.service.answer(Call("hello", stranger.greeting().body)))
    assert told.name == "unknown-home"
    stopped = [line for line in events(tmp_path) if line["event"] == "owner-stopped"]
    assert [(line["count"], line["why"]) for line in stopped] == [(1, "moving house")]
    Doors(tmp_path / "state").open()
    assert (await home.visit(send(visit="v2"))).ending.ended == "finished"


async def test_doors_that_close_after_the_greeting_close_to_the_order(home: Home, tmp_path: Path) -> None:
    session = await home.greet()
    Doors(tmp_path / "state").close("")
    assert problem_in((await home.order(send(), session))[0]).name == "stopped"


async def test_owner_stops_one_crawler_and_then_all(home: Home, site: GatedSite) -> None:
    first, reading = await begun(home, site)
    second, also_reading = await begun(home, site, visit="v2")
    wanted, _ = home.service.status().visits
    assert not await home.service.stop_visits([msgspec.structs.replace(wanted, visit="v9")], CLOSURE)
    stopping = asyncio.create_task(home.service.stop_visits([wanted], CLOSURE))
    await asyncio.sleep(0.05)
    site.let(8)
    assert await stopping == (wanted,)
    await reading
    assert first.ending.ended == "stopped"
    assert (await home.report(Look("v2"))).state == "running"
    stopping_all = asyncio.create_task(home.service.stop_all())
    await asyncio.sleep(0.05)
    site.let(8)
    assert await stopping_all == 1
    await also_reading
    assert second.ending.ended == "stopped"


async def test_status_shows_each_visit_against_its_limits(home: Home, site: GatedSite) -> None:
    assert home.service.status().visits == ()
    rules = (Source("a.clp", "(defrule a (page) => (keep))"),)
    crawler = Crawler(name="health", program=Program(rules=rules))
    _, reading = await begun(home, site, crawler=crawler, budget=Budget(pages=9))
    site.let(3)
    await until(lambda: home.service.status().visits[0].pages >= 4)
    status = home.service.status()
    (visit,) = status.visits
    assert (visit.visit, visit.name, visit.crawler, visit.state) == ("v1", "ada", "health", "running")
    assert visit.limits.pages == 9
    assert visit.requests >= 5
    assert visit.read_bytes > 100
    assert visit.memory_bytes > 1_000_000  # of its engine
    assert (status.crawlers, status.most_crawlers, status.queue) == (1, 4, 0)
    assert status.memory_bytes > 10_000_000
    site.let(100)
    await reading
    (visit,) = home.service.status().visits
    assert (visit.state, visit.pages, visit.memory_bytes) == ("finished", 9, 0)


# -- the disk ----------------------------------------------------------------------------------------------


async def test_full_disk_ends_a_visit_in_clear_words_and_leaves_nothing(
    tmp_path: Path, site: GatedSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.let(100)
    full = os.open("/dev/full", os.O_WRONLY)  # the kernel's own: there is never room in it
    async with open_home(tmp_path, site=site) as home:
        with monkeypatch.context() as patch:
            opened = files.open_private
            patch.setattr(
                files,
                "open_private",
                lambda path, flags: os.dup(full) if path.name == "1.new" else opened(path, flags),
            )
            stream = await home.visit(send())
        os.close(full)
        assert not list((tmp_path / "state" / "visits").glob("*/1*"))
        assert (stream.problem.name, stream.problem.detail) == (
            "internal",
            "the host cannot write to its disk",
        )
        assert re.search(r"cannot write .*/1: No space left on device", caplog.text)
        assert home.service.status().visits[0].kept_bytes == 0
        assert (await home.visit(send(visit="v2"))).ending.ended == "finished"


async def test_ration_that_cannot_be_written_lets_nobody_work(tmp_path: Path, site: GatedSite) -> None:
    site.let(100)
    policy = msgspec.convert({"day": {"pages": 100}}, Policy)
    async with open_home(tmp_path, site=site, policy=policy) as home:
        with open_state(tmp_path / "state").transaction() as db:
            db.execute("DROP TABLE ration")
        reply = await home.service.answer(Call("hello", home.greeting().body))
        assert problem_in(reply).detail == "the host cannot write to its disk"
        assert site.asked == []


async def test_state_that_is_damaged_is_said_in_one_line(
    home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_state(tmp_path / "state").transaction() as db:
        db.execute("DROP TABLE session")
    reply = await home.service.answer(Call("hello", home.greeting().body))
    assert (problem_in(reply).name, reply.status) == ("internal", 500)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.startswith("call hello failed: the state of the host")


# -- a home that never comes back --------------------------------------------------------------------------


async def test_home_that_never_fetches_its_parcels_is_forgotten_and_so_are_they(
    tmp_path: Path, site: GatedSite
) -> None:
    site.let(100)
    clock = FastClock()
    async with open_home(tmp_path, site=site, clock=clock) as home:
        reply, _ = await home.order(send())
        assert reply.status == 200  # its stream is never read
        await until(lambda: home.service.status().kept_bytes > 0)
        await until(lambda: home.service.status().visits[0].state == "finished")
        clock.ahead_seconds += limits_of().kept_seconds + 1
        await until(lambda: not home.service.status().visits)
        assert home.service.status().kept_bytes == 0
        assert problem_in((await home.order(Resume("v1", 1)))[0]).name == "gone"


async def test_visit_that_waits_for_its_hours_can_be_killed(tmp_path: Path, site: GatedSite) -> None:
    week = {"zone": "UTC", "hours": ["Mon 00:00-00:01"], "outside_hours": "keep"}
    serving = {"wall": lambda: SystemClock().now() // 604_800 * 604_800}  # the epoch was a Thursday
    policy = msgspec.convert(week, Policy)
    async with open_home(tmp_path, site=site, policy=policy, serving=serving) as home:
        session = await home.greet(now=serving["wall"]())
        reply, _ = await home.order(send(), session)
        stream = Stream(reply, session)
        reading = asyncio.create_task(stream.read())
        await until(lambda: bool(stream.lines))
        session = await home.greet(now=serving["wall"]())
        async with asyncio.timeout(3):
            await home.order(Kill("v1"), session)
        await reading
        assert stream.problem.name == "gone"
        assert home.service.status().visits[0].state == "killed"
