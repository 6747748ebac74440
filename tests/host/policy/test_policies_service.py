"""An owner's policy as homes meet it at the service: hours, rations, promises, and changes while it runs."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from tests.clocks import Wall
from tests.host.knocking import GatedSite, Home, Stream, limits_of, open_home, problem_in, send, until

from sterna.crawler.pack import program_digest
from sterna.host.policy.permission import why_not_permitted
from sterna.host.policy.policy import Policy, read_policy
from sterna.host.policy.terms import Terms
from sterna.host.visiting import hosted, overseer, visits
from sterna.model import Budget, Crawler, Program, Source
from sterna.transport.interface import Call
from sterna.wire.discovery import decode_offer
from sterna.wire.keys import Identity
from sterna.wire.orders import Look, Resume
from sterna.wire.stream import AliveCame, LineCame

VIENNA = ZoneInfo("Europe/Vienna")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=VIENNA).timestamp()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(visits, "SWEEP_SECONDS", 0.05)


@pytest.fixture
def wall() -> Wall:
    return Wall(at("2026-11-16 01:00"))  # a Monday


@pytest.fixture
def site() -> GatedSite:
    site = GatedSite()
    site.let(10_000)
    return site


def policy(**fields: Any) -> Policy:
    return msgspec.convert({"zone": "Europe/Vienna"} | fields, Policy)


async def problem_of_greeting(home: Home, wall: Wall, **fields: Any) -> Any:
    reply = await home.service.answer(Call("hello", home.greeting(now=wall(), **fields).body))
    return None if reply.status == 200 else problem_in(reply)


async def sent(home: Home, wall: Wall, **fields: Any) -> Stream:
    """The stream of an order, not read yet."""
    session = await home.greet(now=wall())
    reply, _ = await home.order(send(**fields), session)
    return Stream(reply, session)


async def visited(home: Home, wall: Wall, **fields: Any) -> Stream:
    stream = await sent(home, wall, **fields)
    await asyncio.wait_for(stream.read(), 20)
    return stream


async def fetched(home: Home, wall: Wall) -> int:
    """Makes a visit and acknowledges it, so that nothing of it is kept; the count of its pages."""
    stream = await visited(home, wall)
    await home.acknowledge(stream.session, "v1", stream.numbers[-1])
    return stream.ending.pages


def at_service(home: Home, identity: Identity) -> Home:
    return Home(home.service, home.host, identity)


# -- hours -------------------------------------------------------------------------------------------------


async def test_engine_a_on_mondays_b_on_tuesdays_and_c_never(
    tmp_path: Path, wall: Wall, site: GatedSite
) -> None:
    """The example of Fiedler-Hammer 4.4.3."""
    identities = {name: Identity.new() for name in ("a", "b", "c")}
    tables: dict[str, dict[str, object]] = {
        "a": {"hours": ["Mon 00:00-04:00"]},
        "b": {"hours": ["Tue 00:00-04:00"]},
        "c": {"never": True},
    }
    homes = {f"engine-{name}": tables[name] | {"key": identities[name].public.text} for name in tables}
    async with open_home(tmp_path, site=site, policy=policy(homes=homes), serving={"wall": wall}) as opened:
        a, b, c = (at_service(opened, identities[name]) for name in ("a", "b", "c"))

        assert await fetched(a, wall) == 13
        refused = await problem_of_greeting(b, wall)
        assert (refused.name, refused.status, refused.retry_after) == ("closed-now", 503, 23 * 3600)
        assert "which begin Tue 17 Nov 00:00 CET" in refused.detail
        assert (await problem_of_greeting(c, wall)).name == "refused"

        wall.time = at("2026-11-17 03:59")
        assert (await problem_of_greeting(a, wall)).retry_after == 6 * 24 * 3600 - 4 * 3600 + 60
        assert await fetched(b, wall) == 13
        assert (await problem_of_greeting(c, wall)).name == "refused"

        wall.time = at("2026-11-18 02:00")
        answers = [await problem_of_greeting(each, wall) for each in (a, b, c)]
        assert [answer.name for answer in answers] == ["closed-now", "closed-now", "refused"]


async def test_order_is_judged_again_when_its_hours_have_ended_since_the_greeting(
    tmp_path: Path, wall: Wall, site: GatedSite
) -> None:
    rules = policy(hours=["Mon 00:00-04:00"])
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        session = await home.greet(now=wall())
        wall.time = at("2026-11-16 04:00")
        reply, _ = await home.order(send(), session)
        assert problem_in(reply).name == "closed-now"


async def test_visit_whose_hours_end_ends_softly_and_home_goes_on_later(tmp_path: Path, wall: Wall) -> None:
    site = GatedSite()
    rules = policy(hours=["Mon 00:00-04:00"])
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        stream = await sent(home, wall)
        reading = asyncio.create_task(stream.read())
        await until(lambda: len(site.asked) > 2)
        wall.time = at("2026-11-16 04:00")
        await asyncio.sleep(0.2)
        site.let(100)
        await asyncio.wait_for(reading, 20)
        assert stream.ending.ended == "budget"  # which home takes as: go on with it when you may
        assert 1 <= len(stream.pages) < 13
        assert any("outside its hours" in line for line in stream.lines)


async def test_crawler_outside_its_hours_is_kept_and_run_when_they_begin(
    tmp_path: Path, wall: Wall, site: GatedSite
) -> None:
    rules = policy(hours=["Tue 00:00-04:00"], outside_hours="keep")
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        stream = await sent(home, wall)
        await stream.read(until=LineCame)
        assert stream.lines == ["paused: outside its hours, which begin Tue 17 Nov 00:00 CET"]
        session = await home.greet(now=wall())  # who has a visit here may ask for it outside its hours
        report = await home.order(Look("v1"), session)
        assert report[0].status == 200
        assert home.service.status().visits[0].state == "waiting"
        assert site.asked == []
        reading = asyncio.create_task(stream.read())
        wall.time = at("2026-11-17 00:00")
        await asyncio.wait_for(reading, 20)
        assert stream.ending.ended == "finished"
        assert len(stream.pages) == 13


async def test_parcels_of_a_kept_crawler_wait_for_a_home_that_has_gone(
    tmp_path: Path, wall: Wall, site: GatedSite
) -> None:
    rules = policy(hours=["Tue 00:00-04:00"], outside_hours="keep")
    limits = limits_of(kept_seconds=0.2, deferred_seconds=6.0)
    async with open_home(tmp_path, site=site, policy=rules, limits=limits, serving={"wall": wall}) as home:
        stream = await sent(home, wall)
        await stream.read(until=LineCame)
        await stream.close()
        await asyncio.sleep(0.5)
        assert home.service.status().visits[0].state == "waiting"
        wall.time = at("2026-11-17 00:00")
        await until(lambda: home.service.status().visits[0].state == "finished")
        await asyncio.sleep(0.5)  # longer than a visit is kept whose home was there when it ran
        wall.time = at("2026-11-18 12:00")
        session = await home.greet(now=wall())
        reply, _ = await home.order(Resume("v1", 1), session)
        fetched = Stream(reply, session)
        await fetched.read()
        assert (fetched.ending.ended, len(fetched.pages)) == ("finished", 13)
        await until(lambda: not home.service.status().visits)  # and not for ever
        assert not list((tmp_path / "state" / "visits").iterdir())


async def test_visit_whose_hours_end_rests_until_they_begin_again_if_it_is_kept(
    tmp_path: Path, wall: Wall
) -> None:
    site = GatedSite()
    rules = policy(homes={"ada": {"hours": ["daily 00:00-04:00"], "outside_hours": "keep"}})
    limits = limits_of(crawlers_at_once=1)
    async with open_home(tmp_path, site=site, policy=rules, limits=limits, serving={"wall": wall}) as home:
        stream = await sent(home, wall)
        reading = asyncio.create_task(stream.read())
        await until(lambda: len(site.asked) > 2)
        wall.time = at("2026-11-16 04:00")
        await until(lambda: bool(home.service.status().visits[0].paused))
        asked = len(site.asked)
        site.let(100)
        other = at_service(home, Identity.new())
        (tmp_path / "keys" / "allowed").open("a").write(f"{other.identity.public.text} bob\n")
        assert (await visited(other, wall)).ending.ended == "finished"  # it has the place meanwhile
        assert home.service.status().visits[0].requests <= asked
        wall.time = at("2026-11-17 00:00")
        await asyncio.wait_for(reading, 20)
        assert (stream.ending.ended, stream.ending.pages) == ("finished", 13)


async def test_so_many_crawlers_and_no_more_wait_for_their_hours(
    tmp_path: Path, wall: Wall, site: GatedSite
) -> None:
    rules = policy(hours=["Tue 00:00-04:00"], outside_hours="keep")
    limits = limits_of(deferred=2, crawlers_at_once=1, queue=0)
    async with open_home(tmp_path, site=site, policy=rules, limits=limits, serving={"wall": wall}) as home:
        streams = [await sent(home, wall, visit=name) for name in ("v1", "v2")]
        session = await home.greet(now=wall())
        problem = problem_in((await home.order(send(visit="v3"), session))[0])
        assert (problem.name, problem.retry_after) == ("closed-now", 23 * 3600)
        wall.time = at("2026-11-17 01:00")
        await asyncio.gather(*(stream.read() for stream in streams))
        assert [stream.ending.ended for stream in streams] == ["finished", "finished"]


async def test_crawlers_that_wait_are_bounded_in_bytes(tmp_path: Path, wall: Wall, site: GatedSite) -> None:
    rules = policy(hours=["Tue 00:00-04:00"], outside_hours="keep")
    async with open_home(
        tmp_path, site=site, policy=rules, limits=limits_of(deferred_bytes=100), serving={"wall": wall}
    ) as home:
        session = await home.greet(now=wall())
        assert problem_in((await home.order(send(), session))[0]).name == "closed-now"


async def test_host_that_keeps_nothing_refuses_instead(tmp_path: Path, wall: Wall) -> None:
    rules = policy(hours=["Tue 00:00-04:00"], outside_hours="keep")
    async with open_home(tmp_path, policy=rules, is_live_only=True, serving={"wall": wall}) as home:
        assert (await problem_of_greeting(home, wall)).name == "closed-now"


async def test_clock_that_jumps_moves_hours_but_no_durations(tmp_path: Path, wall: Wall) -> None:
    """Hours go by what the machine shows; what a visit may take goes by what has passed."""
    site = GatedSite()
    rules = policy(hours=["Mon 00:00-04:00"], outside_hours="keep")
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        stream = await sent(home, wall, budget=Budget(seconds=30.0))
        reading = asyncio.create_task(stream.read())
        await until(lambda: len(site.asked) > 2)
        wall.time = at("2031-06-02 02:00")  # years later, on a Monday too
        await asyncio.sleep(0.1)
        assert not home.service.status().visits[0].paused
        wall.time = at("1999-01-01 12:00")
        await until(lambda: bool(home.service.status().visits[0].paused))
        wall.time = at("2026-11-16 02:00")
        await until(lambda: not home.service.status().visits[0].paused)
        site.let(100)
        await asyncio.wait_for(reading, 20)
        assert (stream.ending.ended, stream.ending.pages) == ("finished", 13)


async def test_home_is_told_now_and_then_that_it_is_not_forgotten(
    tmp_path: Path, wall: Wall, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(hosted, "SAY_PAUSED_SECONDS", 0.2)
    rules = policy(hours=["Tue 00:00-04:00"], outside_hours="keep")
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        stream = await sent(home, wall)
        reading = asyncio.create_task(stream.read())
        await until(lambda: sum(line.startswith("paused:") for line in stream.lines) >= 3)
        assert sum(isinstance(each, AliveCame) for each in stream.came) >= 3  # for all the looks in between
        wall.time = at("2026-11-17 01:00")
        await reading
        assert stream.ending.ended == "finished"


# -- who, and how much -------------------------------------------------------------------------------------


async def test_host_that_is_open_to_everybody_takes_a_stranger(
    tmp_path: Path, wall: Wall, site: GatedSite
) -> None:
    rules = policy(open="everybody", budget={"pages": 5})
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        stranger = at_service(home, Identity.new())
        assert (await visited(stranger, wall)).ending.pages == 5


async def test_day_gives_so_many_pages_to_a_home_and_then_the_next_day(
    tmp_path: Path, wall: Wall, site: GatedSite
) -> None:
    rules = policy(day={"pages": 16})
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        assert (await visited(home, wall)).ending.pages == 13
        assert (await home.greet(now=wall())).grants.pages == 2000  # it may have come for what is here
        assert (await visited(home, wall, visit="v2")).ending.pages == 3
        session = await home.greet(now=wall())
        problem = problem_in((await home.order(send(visit="v3"), session))[0])
        assert (problem.name, problem.retry_after) == ("closed-now", 23 * 3600)
        assert "used up (pages)" in problem.detail
        wall.time = at("2026-11-17 00:00")
        assert (await visited(home, wall, visit="v4")).ending.pages == 13


async def test_day_is_not_over_with_the_process(tmp_path: Path, wall: Wall, site: GatedSite) -> None:
    rules = policy(day={"pages": 16})
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        stream = await visited(home, wall)
        await home.acknowledge(stream.session, "v1", stream.numbers[-1])  # or it may come for its parcels
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as later:
        again = at_service(later, home.identity)
        assert (await again.greet(now=wall())).grants.pages == 3


async def test_day_gives_so_many_visits(tmp_path: Path, wall: Wall, site: GatedSite) -> None:
    rules = policy(homes={"ada": {"day": {"visits": 1}}})
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        assert (await visited(home, wall)).ending.ended == "finished"
        session = await home.greet(now=wall())
        assert "(visits)" in problem_in((await home.order(send(visit="v2"), session))[0]).detail


async def test_ration_that_is_used_up_ends_a_visit_softly(tmp_path: Path, wall: Wall) -> None:
    site = GatedSite(pages=3000)
    rules = policy(day={"read_bytes": 300_000})
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        site.let(1000)
        stream = await sent(home, wall)
        reading = asyncio.create_task(stream.read())
        await until(lambda: any("ration is used up (read_bytes)" in line for line in stream.lines))
        site.let(10_000)
        await asyncio.wait_for(reading, 20)
        assert stream.ending.ended == "budget"


async def test_promise_is_granted_more_and_is_owed(tmp_path: Path, wall: Wall, site: GatedSite) -> None:
    rules = policy(budget={"pages": 2}, priority=[{"least": 5, "budget": {"pages": 8}}])
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        plain = await home.greet(now=wall(), priority=4)
        assert (plain.grants.pages, plain.priority) == (2, 0)
        session = await home.greet(now=wall(), priority=7)
        assert (session.grants.pages, session.priority) == (8, 5)
        reply, _ = await home.order(send(priority=5), session)
        stream = Stream(reply, session)
        await stream.read()
        assert stream.ending.pages == 8


@pytest.mark.parametrize(("crawlers", "mebibytes"), [(1, 256), (4, 256), (8, 128), (100, 16)])
async def test_more_crawlers_at_once_have_less_memory_each(
    tmp_path: Path, wall: Wall, crawlers: int, mebibytes: int
) -> None:
    limits = limits_of(crawlers_at_once=crawlers)
    async with open_home(tmp_path, limits=limits, policy=policy(), serving={"wall": wall}) as home:
        session = await home.greet(now=wall())
        assert session.grants.memory_bytes == mebibytes << 20
        assert session.platform["memory_bytes"] == str(mebibytes << 20)
        rules = (Source("a.clp", "(defrule a (page) => (keep))"),)
        reply, _ = await home.order(send(crawler=Crawler(program=Program(rules=rules))), session)
        stream = Stream(reply, session)
        await stream.read()
        assert (stream.ending.ended, len(stream.pages)) == ("finished", 13)


async def test_paths_are_closed_to_all_and_more_of_them_to_one(
    tmp_path: Path, wall: Wall, site: GatedSite
) -> None:
    rules = policy(closed=["/1"], homes={"ada": {"closed": ["/2"]}})
    async with open_home(tmp_path, site=site, policy=rules, serving={"wall": wall}) as home:
        pages = (await visited(home, wall)).pages
        refused = {path for path, page in pages.items() if page.error == "refused"}
        assert refused == {"/1", "/10", "/11", "/2"}
        assert not refused & set(site.asked)


# -- changes while it runs ---------------------------------------------------------------------------------


@pytest.fixture
async def changing(tmp_path: Path, wall: Wall, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator["Changing"]:
    monkeypatch.setattr("sterna.host.policy.policy.LOOK_SECONDS", 0.0)
    path = tmp_path / "policy.toml"
    path.write_text('zone = "Europe/Vienna"\n')
    site = GatedSite()
    said: list[str] = []
    async with open_home(
        tmp_path,
        site=site,
        policy=read_policy(path),
        policy_file=path,
        serving={"wall": wall, "announce": said.append},
    ) as home:
        yield Changing(path, home, site, said)


class Changing:
    """A host whose owner changes his mind."""

    def __init__(self, path: Path, home: Home, site: GatedSite, said: list[str]) -> None:
        self.path = path
        self.home = home
        self.site = site
        self.said = said

    def write(self, text: str) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(f'zone = "Europe/Vienna"\n{text}')
        stamp = self.path.stat().st_mtime_ns + 1_000_000_000
        os.utime(beside, ns=(stamp, stamp))
        beside.replace(self.path)


async def test_change_holds_at_once_for_who_comes_and_for_the_offer(changing: Changing, wall: Wall) -> None:
    home = changing.home
    assert (await home.greet(now=wall())).grants.pages == 2000
    changing.write("[budget]\npages = 7\n")
    assert (await home.greet(now=wall())).grants.pages == 7
    reply = await home.service.answer(Call("discover"))
    assert isinstance(reply.body, bytes)
    assert decode_offer(reply.body, "http://site.test").policy["pages"] == 7
    changing.write("[homes.ada]\nnever = true\n")
    assert (await problem_of_greeting(home, wall)).name == "refused"
    assert sum("is in force from now on" in line for line in changing.said) == 2


async def test_broken_change_changes_nothing_and_is_said_once(changing: Changing, wall: Wall) -> None:
    changing.write("[budget]\npages = 7\n")
    assert (await changing.home.greet(now=wall())).grants.pages == 7
    changing.write("[budget]\npages = 'many'\n")
    for _ in range(3):
        assert (await changing.home.greet(now=wall())).grants.pages == 7
    broken = [line for line in changing.said if "the previous policy stays in force" in line]
    assert len(broken) == 1
    assert "line 3, budget.pages" in broken[0]


async def test_change_reaches_visits_under_way(changing: Changing, wall: Wall) -> None:
    home, site = changing.home, changing.site
    stream = await sent(home, wall)
    reading = asyncio.create_task(stream.read())
    await until(lambda: len(site.asked) > 2)
    changing.write('closed = ["/9"]\nhours = ["Tue 00:00-04:00"]\noutside_hours = "keep"\n')
    await until(lambda: bool(home.service.status().visits[0].paused))
    changing.write('closed = ["/9"]\n')
    await until(lambda: not home.service.status().visits[0].paused)
    site.let(100)
    await asyncio.wait_for(reading, 20)
    assert stream.pages["/9"].error == "refused"
    assert stream.ending.ended == "finished"


async def test_home_that_is_not_allowed_any_more_is_sent_away_softly(changing: Changing, wall: Wall) -> None:
    stream = await sent(changing.home, wall)
    reading = asyncio.create_task(stream.read())
    await until(lambda: len(changing.site.asked) > 2)
    changing.write("[homes.ada]\nnever = true\n")
    await until(lambda: any("no longer allows it" in line for line in stream.lines))
    changing.site.let(100)
    await asyncio.wait_for(reading, 20)
    assert stream.ending.ended == "budget"


async def test_crawler_is_verified_again_only_when_the_owner_permits_others(
    changing: Changing, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    looks = 0
    look = overseer.Overseer.look

    def asking(crawler: Crawler, terms: Terms) -> str:
        asked.append(terms.crawlers)
        return why_not_permitted(crawler, terms)

    async def looking(self: overseer.Overseer) -> None:
        nonlocal looks
        await look(self)
        looks += 1

    monkeypatch.setattr(overseer, "why_not_permitted", asking)
    monkeypatch.setattr(overseer.Overseer, "look", looking)
    mine, other = program_digest(Crawler()), "f" * 32
    changing.write(f'crawlers = ["{mine}"]\n')
    stream = await sent(changing.home, wall)
    reading = asyncio.create_task(stream.read())
    await until(lambda: len(changing.site.asked) > 2)
    before = looks
    await until(lambda: looks > before + 5)
    assert asked == [(mine,)]
    changing.write(f'crawlers = ["{other}"]\n')
    await until(lambda: any("does not permit" in line for line in stream.lines))
    changing.site.let(100)
    await asyncio.wait_for(reading, 20)
    assert asked == [(mine,), (other,)]


async def test_more_crawlers_may_work_without_a_restart(changing: Changing, wall: Wall) -> None:
    changing.write("[limits]\ncrawlers_at_once = 1\n")
    home = changing.home
    streams = [await sent(home, wall, visit=name) for name in ("v1", "v2")]
    await until(lambda: len(changing.site.asked) > 2)
    assert [visit.state for visit in home.service.status().visits] == ["running", "queued"]
    changing.write("[limits]\ncrawlers_at_once = 2\n")
    await until(lambda: [visit.state for visit in home.service.status().visits] == ["running", "running"])
    changing.site.let(100)
    await asyncio.gather(*(stream.read() for stream in streams))
