"""An owner who stops a crawler, or closes the host, tells its home why and until when; and it stays away."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.host.knocking import GatedSite, Home, Stream, open_home, problem_in, send, until

from sterna.errors import StorageError
from sterna.host.keyring import ALLOWED, allow
from sterna.host.owner.control import CLOSED_BYTES, Closure, ControlRequest, Doors, ask, open_control
from sterna.host.policy.policy import Policy
from sterna.host.state import NAME, Stop, Stops, open_state
from sterna.host.visiting import overseer
from sterna.model import Crawler
from sterna.transport.interface import Call
from sterna.wire.orders import Resume
from sterna.wire.problems import decode_problem
from sterna.wire.stream import TAKES_STOPS, Ending, ParcelCame, StoppedCame

WHY = Closure("it reads too much", until=4e9)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)


async def begin(home: Home, *, understands: tuple[str, ...] = (TAKES_STOPS,), **fields: Any) -> Stream:
    session = await home.greet(understands=understands)
    reply, _ = await home.order(send(**fields), session)
    return Stream(reply, session)


async def stop(home: Home, site: GatedSite, closure: Closure = WHY) -> None:
    stopping = asyncio.create_task(home.service.stop_visits(home.service.status().visits, closure))
    await asyncio.sleep(0.05)
    site.let(100)
    assert await stopping


async def test_home_is_told_why_and_until_when_with_its_results(tmp_path: Path) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        stream = await begin(home)
        await until(lambda: len(site.asked) > 2)
        await stop(home, site)
        await stream.read()
        *before, last, ending = stream.came
        assert isinstance(last, ParcelCame)  # home has heard of the stop before it frees the site
        (told,) = (each for each in before if isinstance(each, StoppedCame))
        assert isinstance(ending, Ending)
        problem = decode_problem(told.json)
        assert (problem.name, problem.detail, problem.until) == ("stopped", "it reads too much", 4e9)
        assert ending.ended == "stopped"
        assert ending.pages == len(stream.pages) > 0


async def test_home_that_knows_no_stops_gets_the_end_alone(tmp_path: Path) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        stream = await begin(home, understands=())
        await until(lambda: len(site.asked) > 2)
        await stop(home, site)
        await stream.read()
        assert stream.ending.ended == "stopped"
        assert not any(isinstance(each, StoppedCame) for each in stream.came)


async def test_stopped_crawler_is_refused_until_the_owner_opens_again(tmp_path: Path) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        await begin(home)
        await until(lambda: len(site.asked) > 2)
        await stop(home, site, Closure("no more"))
        refused = problem_in((await home.order(send(visit="v2")))[0])
        assert (refused.name, refused.detail, refused.until) == ("stopped", "no more", None)
        other = await home.visit(send(visit="v3", crawler=Crawler(name="other")))
        assert other.ending.ended == "finished"
    site = GatedSite()
    site.let(100)
    async with open_home(tmp_path, site=site, before=home) as later:  # it survives a restart
        assert problem_in((await later.order(send(visit="v4")))[0]).name == "stopped"
        assert isinstance((await later.visit(Resume("v1", 1))).ending, Ending)  # its results are still here
        with closing(open_state(tmp_path / "state")) as database:
            assert Stops(database).lift() == 1
        assert (await later.visit(send(visit="v5"))).ending.ended == "finished"


async def test_stop_ends_when_its_time_is_over(tmp_path: Path) -> None:
    now = time.time()
    async with open_home(tmp_path, site=(site := GatedSite()), serving={"wall": lambda: now}) as home:
        await begin(home)
        await until(lambda: len(site.asked) > 2)
        await stop(home, site, Closure("later", until=now + 60))
        assert problem_in((await home.order(send(visit="v2")))[0]).until == now + 60
        now += 61
        assert (await home.visit(send(visit="v3"))).ending.ended == "finished"


async def test_stop_that_cannot_be_stored_ends_the_visit_all_the_same(tmp_path: Path) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        stream = await begin(home)
        await until(lambda: len(site.asked) > 2)
        with open_state(tmp_path / "state").transaction() as db:
            full = "SELECT RAISE(ABORT, 'database or disk is full')"
            db.execute(f"CREATE TRIGGER full BEFORE INSERT ON stop BEGIN {full}; END")
        with pytest.raises(StorageError, match=r"'default' is stopped, but may come again .* is full"):
            await stop(home, site)
        await stream.read()
        assert (stream.ending.ended, len(site.asked) < 14) == ("stopped", True)


async def test_stop_by_name_spares_the_visit_of_another_home_with_the_same_id(tmp_path: Path) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        other = Home(home.service, home.host)
        allow(tmp_path / "keys" / ALLOWED, other.identity.public, "other")
        stream = await begin(home, crawler=Crawler(name="greedy"))
        spared = await begin(other, crawler=Crawler(name="modest"))
        await until(lambda: len(site.asked) > 4)
        async with open_control(home.service, tmp_path / "state"):
            asking = asyncio.to_thread(ask, tmp_path / "state", ControlRequest("stop", "greedy"))
            stopping = asyncio.create_task(asking)
            await stream.read(until=StoppedCame)
            site.let(100)
            assert (await stopping).count == 1
        await asyncio.gather(stream.read(), spared.read())
        assert (stream.ending.ended, spared.ending.ended) == ("stopped", "finished")


async def test_closed_host_says_until_when_at_the_greeting(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        later = round(time.time()) + 1000.0
        Doors(tmp_path / "state").close("back on Monday", until=later)
        refused = problem_in(await home.service.answer(Call("hello", home.greeting().body)))
        assert (refused.name, refused.detail, refused.until) == ("stopped", "back on Monday", later)


def test_doors_open_by_themselves_when_the_time_is_over(tmp_path: Path) -> None:
    doors = Doors(tmp_path)
    doors.close("a minute", until=(soon := round(time.time() + 60)))
    assert doors.closure() == Closure("a minute", soon)
    doors.close("a minute ago", until=time.time() - 60)
    assert doors.closure() is None


@pytest.mark.parametrize("length", range(190, 201))
def test_end_of_a_closure_is_read_whole_whatever_letters_its_reason_has(tmp_path: Path, length: int) -> None:
    Doors(tmp_path).close("\N{BIRD}" * length, until=4e9)
    closure = Doors(tmp_path).closure()
    assert closure
    assert (len(closure.reason), closure.until) == (length, 4e9)


@pytest.mark.parametrize("cut", range(20))
def test_end_of_a_closure_that_is_cut_off_opens_nothing(tmp_path: Path, cut: int) -> None:
    """A file that somebody made by hand may be longer than what is read."""
    ending = "\nuntil 4000000000\n"
    (tmp_path / "closed").write_text("y" * (CLOSED_BYTES - cut) + ending)
    closure = Doors(tmp_path).closure()
    assert closure
    assert closure.until == (4e9 if cut >= len(ending) else None)


@pytest.mark.parametrize("text", ["why\nuntil soon\n", "why\nuntil\n", "why\nuntil -5\n", "why\nuntil 1e9\n"])
def test_doors_with_a_malformed_time_stay_closed(tmp_path: Path, text: str) -> None:
    (tmp_path / "closed").write_text(text)
    assert Doors(tmp_path).closure() is not None


async def test_home_is_told_the_paths_that_are_closed_to_it(tmp_path: Path) -> None:
    policy = msgspec.convert(
        {"closed": ["/intranet/"], "homes": {"ada": {"closed": ["/drafts"]}, "eve": {"closed": ["/x"]}}},
        Policy,
    )
    async with open_home(tmp_path, policy=policy) as home:
        assert (await home.greet()).closed == ("/intranet/", "/drafts")


async def test_too_many_closed_paths_do_not_break_the_greeting(tmp_path: Path) -> None:
    policy = Policy(closed=("/" + "x" * 600, *(f"/{number}-{'y' * 400}" for number in range(1000))))
    async with open_home(tmp_path, policy=policy) as home:
        closed = (await home.greet()).closed
        assert (len(closed), closed[0][:3]) == (100, "/0-")


def test_state_of_version_1_is_taken_over(tmp_path: Path) -> None:
    open_state(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.executescript("DROP TABLE stop; PRAGMA user_version = 1;")
    with closing(open_state(tmp_path)) as database:
        Stops(database).add(Stop("key", "health", "why"))
        assert Stops(database).all(now=0.0) == [Stop("key", "health", "why")]
