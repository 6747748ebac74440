"""Reader processes: what they bring back, and what becomes of those that break."""

import asyncio
import gzip
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace
from tests.runtime import obedient

from sterna.errors import JailError, ReadError
from sterna.runtime import readers as readers_module
from sterna.runtime.cell import seccomp
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.pool import Cell, Forker
from sterna.runtime.readers import Readers
from sterna.web.document import Document, Fetched, Manner, read_document

Loop = Callable[[Coroutine[Any, Any, None]], None]
LOOPS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]
OBEDIENT = partial(Readers, entry=obedient.ENTRY, limits=obedient.LIMITS)


def answer(body: bytes, *, max_bytes: int = 2**24, **fields: object) -> Fetched:
    given = {"url": "https://a.test/", "status": 200, "content_type": "text/html"}
    manner = Manner(max_bytes=max_bytes).encoded()
    return Fetched(body=body, **({"manner": manner} | given | fields))  # type: ignore[arg-type]


def page(title: str) -> Fetched:
    return answer(f"<title>{title}</title><a href=/next>{title}</a>".encode())


async def kind_of(readers: Readers, asked: Fetched) -> str:
    with pytest.raises(ReadError) as error:
        await asyncio.wait_for(readers.read(asked), 20)
    return error.value.kind


def children() -> set[int]:
    """The warm parent that this process started, and its readers, as long as they run."""
    found, parents = set(), {os.getpid()}
    states = dict(filter(None, map(_state_of, Path("/proc").glob("[0-9]*/stat"))))
    for _ in range(2):
        parents = {pid for pid, (parent, state) in states.items() if parent in parents and state != "Z"}
        found |= parents
    return found


def _state_of(path: Path) -> tuple[int, tuple[int, str]] | None:
    try:
        state, parent = path.read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(path.parent.name), (int(parent), state)


def reader_pid(others: set[int]) -> int:
    """The one reader that was started since."""
    return max(children() - others)


@pytest.fixture
def others() -> Iterator[set[int]]:
    """Children that are there already; at the end there are no more."""
    before = children()
    yield before
    assert children() <= before


async def test_document_comes_back_as_it_was_read() -> None:
    asked = answer(b"<title>Terns</title><p>Far away. <a href='/b'>on</a>", content_language="en")
    async with Readers(1) as readers:
        document = await readers.read(asked)
    assert replace(document, cpu_seconds=0.0) == read_document(asked)
    assert document.cpu_seconds > 0
    assert document.title == "Terns"
    assert [link.url for link in document.links] == ["https://a.test/b"]


@pytest.mark.skipif(bool(seccomp.why_not()), reason="this machine has no seccomp")
async def test_jailed_reader_reads_the_same() -> None:
    wants = Manner(wants=("title", "text", "keywords", "headings")).encoded()
    asked = answer(b"<title>Terns</title><h1>Far</h1><p>Arctic terns fly far.", manner=wants)
    latin = answer("<title>Küstenseeschwalbe</title>".encode("latin-1"))
    async with Readers(1, is_jailed=True) as readers:
        documents = [await readers.read(each) for each in (asked, latin)]
    assert [replace(each, cpu_seconds=0.0) for each in documents] == [
        read_document(asked),
        read_document(latin),
    ]
    assert "terns" in documents[0].keywords


async def test_what_is_wrong_with_a_body_crosses_the_border_as_its_kind() -> None:
    bodies = {
        "encoding": answer(b"no gzip at all", content_encoding="gzip"),
        "bomb": answer(gzip.compress(bytes(2**20)), content_encoding="gzip", max_bytes=2**16),
        "sitemap": answer(b"no sitemap at all", kind="sitemap"),
    }
    async with Readers(1) as readers:
        assert {kind: await kind_of(readers, body) for kind, body in bodies.items()} == {
            kind: kind for kind in bodies
        }
        with pytest.raises(ReadError, match="more than 65536 bytes"):
            await readers.read(bodies["bomb"])


async def test_each_of_many_reads_at_once_gets_its_own_answer() -> None:
    async with Readers(3) as readers:
        asked = [page(f"Page {n}" + "x" * (n % 7) * 10_000) for n in range(200)]
        documents = await asyncio.wait_for(asyncio.gather(*map(readers.read, asked)), 60)
    assert [replace(each, cpu_seconds=0.0) for each in documents] == [read_document(each) for each in asked]


async def test_bodies_larger_than_any_pipe_pass_both_ways_at_once() -> None:
    async with Readers(1) as readers:
        asked = [answer(b"<p>" + bytes([65 + n]) * 2**22) for n in range(6)]
        documents = await asyncio.wait_for(asyncio.gather(*map(readers.read, asked)), 60)
    assert [(document.text[:1], len(document.text)) for document in documents] == [
        (chr(65 + n), 2**22) for n in range(6)
    ]


@pytest.mark.parametrize("run", LOOPS)
def test_killed_reader_costs_no_page(others: set[int], run: Loop) -> None:
    async def kill() -> None:
        async with Readers(1) as readers:
            await readers.read(page("before"))
            pid = reader_pid(others)
            os.kill(pid, signal.SIGSTOP)  # so that it cannot have answered any of these
            jobs = [asyncio.create_task(readers.read(page(f"Page {n}"))) for n in range(8)]
            await asyncio.sleep(0)
            os.kill(pid, signal.SIGKILL)
            documents = await asyncio.wait_for(asyncio.gather(*jobs), 20)
            assert pid not in children()
        assert [document.title for document in documents] == [f"Page {n}" for n in range(8)]

    run(kill())


async def test_body_that_breaks_the_reader_is_an_error_and_its_neighbours_are_read() -> None:
    async with OBEDIENT(1) as readers:
        asked = [page("one"), page("please die"), page("two"), page("please die"), page("three")]
        results = await asyncio.wait_for(
            asyncio.gather(*map(readers.read, asked), return_exceptions=True), 20
        )
    kinds = [each.title if isinstance(each, Document) else getattr(each, "kind", each) for each in results]
    assert kinds == ["one", "parser", "two", "parser", "three"]


async def test_reader_that_hangs_is_replaced_after_its_time(others: set[int]) -> None:
    async with OBEDIENT(1, seconds=0.5) as readers:
        await readers.read(page("before"))
        pid = reader_pid(others)
        hanging = asyncio.create_task(kind_of(readers, page("please hang")))
        after = asyncio.create_task(readers.read(page("after")))
        assert await hanging == "parser"
        assert (await asyncio.wait_for(after, 20)).title == "after"
        assert pid not in children()


async def test_body_beyond_the_memory_limit_is_an_error_and_the_next_is_read() -> None:
    async with OBEDIENT(1) as readers:
        assert await kind_of(readers, answer(b"<p>" * 2**21)) == "parser"
        assert (await readers.read(page("after"))).title == "after"
        assert 0 < readers.peak_memory_bytes() < 2 * obedient.LIMITS.memory_bytes


class Failing:
    """A forker that can be told to fail."""

    def __init__(self, forker: Forker) -> None:
        self._forker = forker
        self.is_failing = False

    async def start(self, *, limits: JailLimits, is_jailed: bool) -> Cell:
        if self.is_failing:
            raise JailError("no memory")
        return await self._forker.start(limits=limits, is_jailed=is_jailed)


async def test_reader_that_cannot_be_replaced_is_an_error_and_no_hang(
    others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers_module, "RESTART_SECONDS", 0.0)
    async with Forker(readers_module.ENTRY, wrapper=()) as forker:
        starter = Failing(forker)
        async with Readers(1, starter=starter) as readers:
            await readers.read(page("before"))
            starter.is_failing = True
            os.kill(reader_pid(others), signal.SIGKILL)
            assert [await kind_of(readers, page("during")) for _ in range(2)] == ["parser"] * 2
            assert readers.peak_memory_bytes() == 0
            starter.is_failing = False
            assert (await readers.read(page("after"))).title == "after"


async def test_readers_that_cannot_be_started_at_all_are_an_error_and_start_later(others: set[int]) -> None:
    async with Forker(readers_module.ENTRY, wrapper=()) as forker:
        starter = Failing(forker)
        starter.is_failing = True
        async with Readers(2, starter=starter) as readers:
            readers.begin()
            with pytest.raises(JailError):
                await readers.start()
            starter.is_failing = False
            assert (await readers.read(page("after"))).title == "after"


async def test_reader_that_died_idle_costs_no_page(others: set[int]) -> None:
    async with Readers(1) as readers:
        await readers.read(page("before"))
        pid = reader_pid(others)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(10):
            while pid in children():  # noqa: ASYNC110 - the kernel sets no event of ours
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # its pipe closes with it, and the loop hears of that
        assert (await readers.read(page("after"))).title == "after"


async def test_who_stops_waiting_does_not_disturb_the_others() -> None:
    async with Readers(1) as readers:
        jobs = [asyncio.create_task(readers.read(page(f"Page {n}"))) for n in range(6)]
        await asyncio.sleep(0)
        for job in jobs[::2]:
            job.cancel()
        rest = await asyncio.wait_for(asyncio.gather(*jobs[1::2]), 20)
    assert [document.title for document in rest] == ["Page 1", "Page 3", "Page 5"]


@pytest.mark.parametrize("run", LOOPS)
def test_close_ends_the_processes_and_cancels_who_waits(others: set[int], run: Loop) -> None:
    counts = []

    async def start_and_close() -> None:
        async with OBEDIENT(3) as readers:
            assert children() <= others, "nothing has to be read yet"
            await readers.start()
            assert len(children() - others) == 3 + 1  # the warm parent
            waiting = [asyncio.create_task(readers.read(page("please hang"))) for _ in range(6)]
            await asyncio.sleep(0)
        await asyncio.wait(waiting, timeout=5)
        assert all(each.cancelled() for each in waiting)
        assert children() <= others

    for _ in range(2):  # the first round also opens what the process keeps
        run(start_and_close())
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[1] <= counts[0]
