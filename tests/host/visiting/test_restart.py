"""Visits survive a restart of their host: they go on with the next parcel, or wait for their home."""

import asyncio
import errno
import os
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from tests.host.knocking import (
    SITE,
    GatedSite,
    Home,
    Stream,
    open_home,
    problem_in,
    send,
    until,
)

from sterna.errors import StorageError, UsageError, WireError
from sterna.host.config import HostConfig
from sterna.host.policy.policy import DayCaps, HostLimits, Policy
from sterna.host.service import Service
from sterna.host.visiting import leftovers, logbook, overseer, room
from sterna.host.visiting.leftovers import ASIDE
from sterna.host.visiting.logbook import LOG, TALLY, Logbook
from sterna.model import (
    Budget,
    Crawler,
    Known,
    Parcel,
    Program,
    Source,
    Validator,
)
from sterna.web.clock import SystemClock
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint
from sterna.wire.keys import Identity
from sterna.wire.known import pack_known
from sterna.wire.merkle import Tree, leaf_of
from sterna.wire.orders import Kill, Look, Resume
from sterna.wire.stream import ParcelCame

PAGES = {"/", *(f"/{number}" for number in range(12))}


def open_site(pages: int = 12) -> GatedSite:
    """A site that lets everything through."""
    site = GatedSite(pages)
    site.let(10**4)
    return site


async def begin(home: Home, **fields: Any) -> Stream:
    order = send(**fields)
    reply, session = await home.order(order)
    return Stream(reply, session, order.visit)


async def work(home: Home, site: GatedSite, *, pages: int, **fields: Any) -> Stream:
    """A visit whose home has received so many pages, and then went away."""
    stream = await begin(home, **fields)
    site.let(pages)
    async with asyncio.timeout(20):
        while len(stream.pages) < pages + 1:
            await stream.read(until=ParcelCame)
    await stream.close()
    return stream


@asynccontextmanager
async def killed(folder: Path, home: Home, **fields: Any) -> AsyncIterator[Home]:
    """The host as it is after kill -9 and a new start: all it has is what is on the disk now."""
    at = folder.with_name(f"{folder.name}-later")
    shutil.copytree(folder, at)
    async with open_home(at, before=home, **fields) as later:
        yield later


async def rest(home: Home, earlier: Stream, visit: str = "v1") -> Stream:
    """What comes after the parcels that home has."""
    return await home.visit(Resume(visit, earlier.numbers[-1] + 1))


def together(*streams: Stream) -> Counter[str]:
    return Counter(path for stream in streams for parcel in stream.parcels for path in paths_of(parcel))


def paths_of(parcel: Parcel) -> list[str]:
    return [page.url.removeprefix(SITE) for page in parcel.pages]


def assert_proven(home: Home, *streams: Stream) -> None:
    """The signed end covers all pages, also those that were sent before the restart."""
    tree, ending = Tree(), streams[-1].ending
    for stream in streams:
        for parcel in stream.parcels:
            for page in parcel.pages:
                tree.add(leaf_of(page))
    ending.check(home.host.public)
    assert (ending.pages, ending.root) == (tree.count, tree.root())
    assert ending.parcels == sum(len(stream.numbers) for stream in streams)


# -- visits at work ----------------------------------------------------------------------------------------


async def test_visit_goes_on_after_its_host_was_killed(tmp_path: Path) -> None:
    folder, site = tmp_path / "host", GatedSite()
    async with open_home(folder, site=site) as home:
        first = await work(home, site, pages=3)
        async with killed(folder, home, site=open_site()) as later:
            second = await rest(later, first)
            assert together(first, second) == Counter(PAGES)
            assert second.ending.ended == "finished"
            assert_proven(later, first, second)


async def test_visit_goes_on_after_its_host_was_stopped(tmp_path: Path) -> None:
    site = GatedSite()
    async with open_home(tmp_path, site=site) as home:
        first = await work(home, site, pages=3)
        home.service.stop()
        site.let(12)
    async with open_home(tmp_path, site=(again := open_site()), before=home) as later:
        second = await rest(later, first)
        assert together(first, second) == Counter(PAGES)
        assert_proven(later, first, second)
    # What was under way when the host was told to stop is in its last parcel, and not fetched again.
    assert not set(site.asked[:5]) & set(again.asked) - {"/robots.txt"}


async def test_visit_goes_on_without_its_home(tmp_path: Path) -> None:
    folder, site = tmp_path / "host", GatedSite()
    async with open_home(folder, site=site) as home:
        first = await work(home, site, pages=3)
        async with killed(folder, home, site=open_site()) as later:
            await until(lambda: later.service.status().visits[0].state == "finished")
            assert together(first, await rest(later, first)) == Counter(PAGES)


async def test_parcels_that_home_has_not_acknowledged_come_again(tmp_path: Path) -> None:
    folder, site = tmp_path / "host", GatedSite()
    async with open_home(folder, site=site) as home:
        first = await work(home, site, pages=3)
        async with killed(folder, home, site=open_site()) as later:
            whole = await later.visit(Resume("v1", 1))
            assert together(whole) == Counter(PAGES)
            assert whole.parcels[: len(first.parcels)] == first.parcels


async def test_acknowledged_parcels_stay_gone_and_count(tmp_path: Path) -> None:
    folder, site = tmp_path / "host", GatedSite()
    async with open_home(folder, site=site) as home:
        first = await work(home, site, pages=3)
        await home.acknowledge(first.session, "v1", first.numbers[-1])
        async with killed(folder, home, site=open_site()) as later:
            reply, _ = await later.order(Resume("v1", 1))
            assert problem_in(reply).name == "gone"
            second = await rest(later, first)
            assert together(first, second) == Counter(PAGES)
            assert_proven(later, first, second)


async def test_acknowledged_parcels_that_a_loss_of_power_brought_back_are_deleted(tmp_path: Path) -> None:
    """The deletion of files is not synced: some of them may be undone, in any order."""
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        first = await work(home, site, pages=3)
        (folder,) = (tmp_path / "state" / "visits").iterdir()
        parcel = (folder / "1").read_bytes()
        await home.acknowledge(first.session, "v1", last := first.numbers[-1])
        assert last > 1
    (folder / "1").write_bytes(parcel)
    async with open_home(tmp_path, site=open_site(), before=home) as later:
        assert not (folder / "1").exists()
        assert (await later.report(Look("v1"))).acknowledged == last
        assert together(first, await rest(later, first)) == Counter(PAGES)


async def test_three_restarts_are_borne(tmp_path: Path) -> None:
    folder, streams = tmp_path / "host", list[Stream]()
    site = GatedSite()
    async with open_home(folder, site=site) as home:
        streams.append(await work(home, site, pages=2))
        shutil.copytree(folder, tmp_path / "0")
    for number in range(3):
        site = GatedSite()
        async with open_home(tmp_path / str(number), site=site, before=home) as home:
            reply, session = await home.order(Resume("v1", streams[-1].numbers[-1] + 1))
            stream = Stream(reply, session)
            site.let(2)
            while len(stream.pages) < 2:
                await stream.read(until=ParcelCame)
            streams.append(stream)
            shutil.copytree(tmp_path / str(number), tmp_path / str(number + 1))
    async with open_home(tmp_path / "3", site=open_site(), before=home) as home:
        streams.append(await rest(home, streams[-1]))
        assert together(*streams) == Counter(PAGES)
        assert_proven(home, *streams)


async def test_log_that_is_rewritten_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logbook, "REWRITE_BYTES", -(10**9))  # with every parcel
    folder, site = tmp_path / "host", GatedSite()
    async with open_home(folder, site=site) as home:
        first = await work(home, site, pages=3)
        async with killed(folder, home, site=open_site()) as later:
            second = await rest(later, first)
            assert together(first, second) == Counter(PAGES)
            assert_proven(later, first, second)


async def test_pages_that_home_sent_as_fingerprints_are_not_lost(tmp_path: Path) -> None:
    """Home is not told of them when they are found, because it knows them: only the host's log has them."""
    body = f"<title>/11</title>{'tern ' * 200}".encode()
    known = Known(validators=(Validator(fingerprint(f"{SITE}/11"), digest=digest_of(body)[:5]),))
    folder, site = tmp_path / "host", GatedSite()
    async with open_home(folder, site=site) as home:
        first = await begin(home, known=pack_known(known))
        await first.read(until=ParcelCame)
        async with killed(folder, home, site=(again := open_site())) as later:
            reply, session = await later.order(Resume("v1", 1))
            await Stream(reply, session).read()
            assert "/11" in again.asked
            assert Counter(again.asked)["/11"] == 1


async def test_rules_go_on_with_their_facts(tmp_path: Path) -> None:
    rules = """
    (defglobal ?*count* = 0)
    (deftemplate seen (slot url))
    (defrule note (page (url ?url)) => (bind ?*count* (+ ?*count* 1)) (assert (seen (url ?url)))
      (emit count ?*count*))
    """
    crawler = Crawler(program=Program(rules=(Source("notes.clp", rules),)))
    folder, site = tmp_path / "host", GatedSite()
    async with open_home(folder, site=site) as home:
        first = await work(home, site, pages=3, crawler=crawler)
        async with killed(folder, home, site=open_site()) as later:
            second = await rest(later, first)
    rows = [row for stream in (first, second) for parcel in stream.parcels for row in parcel.rows]
    facts = [fact for stream in (first, second) for parcel in stream.parcels for fact in parcel.state.added]
    assert (len(rows), len(set(rows))) == (13, 13)  # the count went on
    assert (len(facts), len(dict(facts))) == (13, 13)


# -- limits ------------------------------------------------------------------------------------------------


async def test_budget_is_not_granted_twice(tmp_path: Path) -> None:
    folder, site = tmp_path / "host", GatedSite()
    async with open_home(folder, site=site) as home:
        first = await work(home, site, pages=3, budget=Budget(pages=8))
        async with killed(folder, home, site=open_site()) as later:
            second = await rest(later, first)
            assert len(together(first, second)) == 8
            assert (second.ending.ended, second.ending.usage.pages) == ("budget", 8)


async def test_ration_of_a_day_is_not_given_twice(tmp_path: Path) -> None:
    folder, site = tmp_path / "host", GatedSite()
    policy = Policy(day=DayCaps(pages=100, visits=1))
    async with open_home(folder, site=site, policy=policy) as home:
        first = await work(home, site, pages=3)
        async with killed(folder, home, site=open_site(), policy=policy) as later:
            await rest(later, first)
            reply, _ = await later.order(send(visit="v2"))
            assert "visits" in problem_in(reply).detail


async def test_visit_that_was_killed_is_not_gone_on_with(tmp_path: Path) -> None:
    folder, site = tmp_path / "host", GatedSite()
    async with open_home(folder, site=site) as home:
        first = await work(home, site, pages=3)
        asked = asyncio.create_task(home.report(Kill("v1")))
        await until(lambda: b"killed" in _log_states(folder))
        async with killed(folder, home, site=(again := open_site())) as later:
            second = await rest(later, first)
            assert second.ending.ended == "stopped"
            assert (await later.report(Look("v1"))).state == "killed"
        site.let(12)
        await asked
    assert set(again.asked) <= {"/robots.txt"}


def _log_states(folder: Path) -> bytes:
    (visit,) = (folder / "state" / "visits").iterdir()
    return b"killed" if Logbook(visit).read().verdict.is_killed else b""


async def test_visit_that_failed_is_not_gone_on_with(tmp_path: Path) -> None:
    async with open_home(tmp_path, root=tmp_path / "nowhere") as home:
        assert (await home.visit(send())).problem.name == "internal"
    async with open_home(tmp_path, site=(site := open_site()), before=home) as later:
        assert (await later.report(Look("v1"))).state == "killed"
        assert (await later.visit(Resume("v1", 1))).problem.name == "internal"
    assert site.asked == []


# -- visits that are over, or wait -------------------------------------------------------------------------


async def test_finished_visit_waits_for_its_home(tmp_path: Path) -> None:
    async with open_home(tmp_path, site=open_site()) as home:
        whole = await home.visit(send())
    async with open_home(tmp_path, site=(site := open_site()), before=home) as later:
        report = await later.report(Look("v1"))
        again = await later.visit(Resume("v1", 1))
        assert (report.state, report.parcels) == ("finished", len(whole.numbers))
        assert (again.parcels, again.ending) == (whole.parcels, whole.ending)
    assert site.asked == []


async def test_visit_that_waits_for_its_hours_waits_on(tmp_path: Path) -> None:
    begins = (time.time() + 30) // 60 * 60 + 60
    slot = "-".join(time.strftime("%H:%M", time.gmtime(at)) for at in (begins, begins + 1800))
    policy = msgspec.convert({"zone": "UTC", "hours": [f"daily {slot}"], "outside_hours": "keep"}, Policy)
    ahead = 0.0
    serving = {"wall": lambda: time.time() + ahead}
    async with open_home(tmp_path, site=open_site(), policy=policy, serving=serving) as home:
        await (await begin(home)).close()
        assert (await home.report(Look("v1"))).state == "waiting"
    site = open_site()
    async with open_home(tmp_path, site=site, policy=policy, serving=serving, before=home) as later:
        assert (await later.report(Look("v1"))).state == "waiting"
        assert site.asked == []
        ahead = begins - time.time() + 1
        assert together(await later.visit(Resume("v1", 1))) == Counter(PAGES)


async def test_visit_in_the_queue_keeps_its_place(tmp_path: Path) -> None:
    limits = HostLimits(readers=1, crawlers_at_once=1)
    async with open_home(tmp_path, site=(site := GatedSite()), limits=limits) as home:
        await (await begin(home, visit="v1")).close()
        await (await begin(home, visit="w2")).close()
        await until(lambda: len(site.asked) > 2)
    async with open_home(tmp_path, site=open_site(), limits=limits, before=home) as later:
        for name in ("v1", "w2"):
            assert together(await later.visit(Resume(name, 1))) == Counter(PAGES)


async def test_visit_that_ends_before_it_goes_on_is_not_said_to_have_never_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        first = await work(home, site, pages=3)
    weekday = time.strftime("%a", time.gmtime(time.time() + 3 * 24 * 3600))
    rules = {"zone": "UTC", "hours": [f"{weekday} 00:00-01:00"], "outside_hours": "keep"}
    policy = msgspec.convert(rules | {"crawlers": ["f" * 32]}, Policy)
    async with open_home(tmp_path, site=open_site(), policy=policy, before=home) as later:
        await until(lambda: later.service.status().visits[0].state == "killed")
    async with open_home(tmp_path, site=open_site(), before=home) as later:
        problem = (await rest(later, first)).problem
        assert (problem.name, problem.detail[:23]) == ("gone", "the visit was ended: th")


# -- damage ------------------------------------------------------------------------------------------------


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def _cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def _name_more(folder: Path) -> None:
    """As if the log had lost its last entry: a parcel was sent that it does not know."""
    data = bytearray((folder / TALLY).read_bytes())
    data[24:32] = (99).to_bytes(8, "big")
    (folder / TALLY).write_bytes(data)


def _make_another_version(folder: Path) -> None:
    """A log whose entries are whole, but of a form that this version does not know."""
    payload = zstandard.compress(msgspec.msgpack.encode(["admission", "of another version"]))
    digest = blake2b(payload, digest_size=16).digest()
    (folder / LOG).write_bytes(len(payload).to_bytes(4, "big") + digest + payload)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "log is gone": lambda folder: (folder / LOG).unlink(),
    "log is empty": lambda folder: (folder / LOG).write_bytes(b""),
    "log begins with something else": lambda folder: _flip(folder / LOG, 100),
    "log lost its end": _name_more,
    "log is of another version": _make_another_version,
    "parcel is missing": lambda folder: (folder / "2").unlink(),
}


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_visit_costs_itself_only_and_is_set_aside(
    tmp_path: Path, damage: str, caplog: Any
) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        await work(home, site, pages=3)
        await work(home, site, pages=0, visit="w2")  # the others wait at the gate
    (broken,) = (tmp_path / "state" / "visits").glob("*-v1")
    DAMAGES[damage](broken)
    before = _files(broken)
    async with open_home(tmp_path, site=open_site(), before=home) as later:
        lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(lines) == 1
        assert "v1 is lost" in lines[0]
        assert not broken.exists()
        place = tmp_path / "state" / ASIDE / broken.name
        assert str(place) in lines[0]
        assert _files(place) == before
        reply, _ = await later.order(Look("v1"))
        assert problem_in(reply).name == "gone"
        assert together(await later.visit(Resume("w2", 1))) == Counter(PAGES)


def _put_folder(folder: Path) -> None:
    (folder / LOG).rename(folder / "kept")
    (folder / LOG).mkdir()


def _take_folder_away(folder: Path) -> None:
    (folder / LOG).rmdir()
    (folder / "kept").rename(folder / LOG)


@pytest.mark.parametrize("number", [errno.EISDIR, errno.EMFILE, errno.EIO, errno.EACCES])
async def test_visit_that_cannot_be_read_waits_for_the_next_start(
    tmp_path: Path, number: int, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        first = await work(home, site, pages=3)
    (folder,) = (tmp_path / "state" / "visits").iterdir()
    before = _files(folder)
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path == folder / LOG:
            raise OSError(number, os.strerror(number), str(path))
        return read(path)

    with monkeypatch.context() as patch:
        if number == errno.EISDIR:
            _put_folder(folder)
        else:
            patch.setattr(Path, "read_bytes", refuse)
        async with open_home(tmp_path, site=open_site(), before=home) as later:
            reply, _ = await later.order(Resume("v1", first.numbers[-1] + 1))
            assert problem_in(reply).name == "busy"  # so that its home tries again
            reply, _ = await later.order(send())
            assert problem_in(reply).name == "busy"  # nothing is begun in its place
        if number == errno.EISDIR:
            _take_folder_away(folder)
    assert _files(folder) == before
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "v1 waits for the next start" in line
    assert os.strerror(number) in line
    async with open_home(tmp_path, site=open_site(), before=home) as later:
        assert together(first, await rest(later, first)) == Counter(PAGES)


async def test_folder_of_visits_that_cannot_be_listed_keeps_the_host_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        await work(home, site, pages=3)

    def refuse(path: Path) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(StorageError, match=r"cannot read .*visits"):
        async with open_home(tmp_path, site=open_site(), before=home):
            pass


async def test_host_of_another_site_refuses_to_start_and_touches_nothing(tmp_path: Path) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        first = await work(home, site, pages=3)
    state = tmp_path / "state"
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    config = HostConfig(site="http://other.test", state=state, keys=tmp_path / "keys")
    with pytest.raises(UsageError, match=rf"keeps visits of {SITE}, not of http://other.test: .*--state"):
        Service(config, identity=Identity.new(), clock=SystemClock())
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before
    async with open_home(tmp_path, site=open_site(), before=home) as later:
        assert together(first, await rest(later, first)) == Counter(PAGES)


async def test_visit_that_was_never_taken_on_leaves_nothing(tmp_path: Path, caplog: Any) -> None:
    async with open_home(tmp_path, site=(site := GatedSite())) as home:
        await work(home, site, pages=3)
    begun = tmp_path / "state" / "visits" / "f00-w2"
    begun.mkdir()
    (begun / f"{LOG}.new").write_bytes(b"half a l")
    async with open_home(tmp_path, site=open_site(), before=home):
        assert not begun.exists()
    assert not (tmp_path / "state" / ASIDE).exists()
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_what_is_set_aside_is_bounded_by_size_and_age(tmp_path: Path) -> None:
    places = []
    for number in range(4):
        folder = tmp_path / "visits" / f"home-v{number}"
        folder.mkdir(parents=True)
        (folder / "1").write_bytes(bytes(50_000))
        places.append(leftovers.set_aside(folder, most_bytes=120_000))
        os.utime(places[-1], (number, number))
    assert [place.exists() for place in places] == [False, False, True, True]
    leftovers.clear_aside(tmp_path, now=leftovers.ASIDE_SECONDS + 2.5)
    assert [place.exists() for place in places] == [False, False, False, True]


async def test_stream_breaks_off_without_an_end_while_a_parcel_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its home tries again; "gone" would make it give the visit up."""
    async with open_home(tmp_path, site=open_site()) as home:
        whole = await home.visit(send())

        def refuse(path: Path) -> bytes:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

        with monkeypatch.context() as patch:
            patch.setattr(room, "read_parcel", refuse)
            reply, session = await home.order(Resume("v1", 1))
            stream = Stream(reply, session)
            await stream.read()
            assert not stream.came
            with pytest.raises(WireError, match="cut off"):
                stream.check_end()
        assert (await home.visit(Resume("v1", 1))).parcels == whole.parcels


async def test_damaged_parcel_is_gone_and_the_host_goes_on(tmp_path: Path, caplog: Any) -> None:
    async with open_home(tmp_path, site=open_site()) as home:
        whole = await home.visit(send())
    (folder,) = (tmp_path / "state" / "visits").iterdir()
    _flip(folder / "1", 40)
    async with open_home(tmp_path, site=open_site(), before=home) as later:
        assert (await later.visit(Resume("v1", 1))).problem.name == "gone"
        assert "damaged" in caplog.text
        if len(whole.numbers) > 1:
            assert (await later.visit(Resume("v1", 2))).ending == whole.ending
