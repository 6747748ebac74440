"""Reader processes: what they bring back, and what becomes of those that break."""

import asyncio
import errno
import gzip
import os
import signal
import socket
import zlib
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import brotli
import msgspec
import pytest
import uvloop
import webencodings
import zstandard
from msgspec.structs import replace
from tests.runtime import obedient
from tests.runtime.cell.obeying import parent_of

from sterna.errors import JailError, ReadError
from sterna.model import Keep, Predicate, Selector
from sterna.runtime import reader
from sterna.runtime import readers as readers_module
from sterna.runtime.cell import pool, seccomp, workers
from sterna.runtime.cell.jail import JailLimits, protection
from sterna.runtime.cell.pool import Cell, Forker
from sterna.runtime.reader import MAX_OUTCOME_BYTES, MAX_TASK_BYTES, Outcome
from sterna.runtime.readers import HeavyDocument, Readers, read_outcome
from sterna.runtime.sieve import Sift
from sterna.web.document import MAX_DOCUMENT_BYTES, Document, Fetched, Manner, read_document

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
    """The wrapper and the warm parent that this process started, and the readers, as long as they run."""
    found, parents = set(), {os.getpid()}
    states = dict(filter(None, map(_state_of, Path("/proc").glob("[0-9]*/stat"))))
    for _ in range(3):
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
def others(own_processes: None) -> Iterator[set[int]]:
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


HTML = """<!doctype html><html lang=en><title>Terns</title><meta name=description content="Far."><h1>Far</h1>
<script>if (a<b) c()</script><p class=x>Arctic terns fly far, and terns return. <a href="/b?é">on</a>
<table><tr><td>1<td>2</table>&eacute;&#128038; 🐦 Küste 鴎 арк"""
SITEMAP = "<urlset><url><loc>https://a.test/a</loc></url></urlset>"
EVERYTHING = Manner(
    wants=("title", "description", "text", "keywords", "headings", "html", "language", "links"),
    selectors=(Selector("far", "p.x:not(.y) > a, tr:nth-child(odd)"), Selector("to", "a[href]", "href")),
    least_change=0.1,
).encoded()
SIFT = msgspec.msgpack.encode(
    Sift(
        select=Predicate(
            "or",
            parts=(
                Predicate("regexp", "text", ("arct.c",)),
                Predicate("any", "", ("terns", "gulls")),
                Predicate("like", "lower(title)", ("%tern_",)),
            ),
        ),
        keep=Keep(fields=("title", "text", "keywords")),
    )
)


def all_kinds() -> Iterator[Fetched]:
    """A response of each charset, content coding and kind of document, good and broken."""
    html, labels = HTML.encode(), sorted(set(webencodings.LABELS.values()))
    for label in labels:
        codec = None if label in ("replacement", "x-user-defined") else webencodings.lookup(label)
        body = codec.codec_info.encode(HTML, "replace")[0] if codec else html
        yield answer(body, content_type=f"text/html; charset={label}", manner=EVERYTHING)
    packed = {
        "gzip": gzip.compress(html),
        "deflate": zlib.compress(html),
        "br": brotli.compress(html),
        "zstd": zstandard.compress(html),
    }
    for coding, body in packed.items():
        yield answer(body, content_encoding=coding, manner=EVERYTHING, sift=SIFT)
        yield answer(body[:-9], content_encoding=coding)
        yield answer(body + b"more", content_encoding=f"{coding}, identity", kind="robots")
    for kind in ("", "text/plain; charset=shift_jis", "application/xhtml+xml", "image/png"):
        yield answer(html, content_type=kind, manner=EVERYTHING, sift=SIFT)
    for body in (SITEMAP.encode(), gzip.compress(SITEMAP.encode()), b"https://a.test/a\n", b"no sitemap"):
        yield answer(body, kind="sitemap")
    feed = f'<?xml version="1.0" encoding="euc-jp"?><!DOCTYPE x [<!ENTITY y "z">]>{SITEMAP}&y;'
    yield answer(feed.encode(), kind="sitemap")
    yield answer(f"<!-- x -->{feed}&eacute;\0<url><loc>/&amp;&z;".encode(), kind="sitemap")
    for codes in (b"\xad\xa1\xfc\xe2\xff", b"\x1b$B-!\x1b(I1\x1b(B"):
        for label in ("euc-jp", "iso-2022-jp"):
            yield answer(codes, content_type=f"text/plain; charset={label}", manner=EVERYTHING)
    yield answer(b"<p>" + b" " * 2000 + b"<meta charset=koi8-r>\xc1", content_type="*/*", manner=EVERYTHING)
    yield answer(gzip.compress(html)[:-8] + b"\0" * 8, content_encoding="gzip", manner=EVERYTHING)
    for body in (b"User-agent: *\nDisallow: /b", "Disallow: /é".encode("utf-16"), b"\xff\x00\xfe"):
        yield answer(body, kind="robots")
    yield answer(b"<p>" * 100_000 + b"<b>" * 9_000 + b"<p x=1>" * 9_000, manner=EVERYTHING)
    yield answer(html, known_likeness=b"12345678", content_language="de", x_robots="sterna: nofollow")


@pytest.mark.skipif(bool(seccomp.why_not()), reason="this machine has no seccomp")
async def test_jailed_reader_reads_every_charset_coding_and_kind_as_outside(others: set[int]) -> None:
    asked = list(all_kinds())
    async with Readers(1, is_jailed=True) as readers:
        await readers.start()
        pid = reader_pid(others)
        results = await asyncio.gather(*map(readers.read, asked), return_exceptions=True)
        assert reader_pid(others) == pid, "none of them may need what a jail forbids"
    for task, result in zip(asked, results, strict=True):
        expected = reader.read(task)
        if expected.document is None:
            assert isinstance(result, ReadError)
            assert (result.kind, str(result)) == (expected.kind, f"{expected.kind}: {expected.detail}")
        else:
            assert isinstance(result, Document)
            assert replace(result, cpu_seconds=0.0) == replace(expected.document, cpu_seconds=0.0)


async def test_document_beyond_the_bound_of_a_frame_is_an_error_and_the_reader_goes_on(
    others: set[int],
) -> None:
    async with Readers(1) as readers:
        await readers.start()
        pid = reader_pid(others)
        text = gzip.compress(b"<p>" + b"x" * MAX_OUTCOME_BYTES)
        assert await kind_of(readers, answer(text, content_encoding="gzip", max_bytes=2**26)) == "too_large"
        assert await kind_of(readers, answer(bytes(MAX_TASK_BYTES))) == "too_large"
        assert (await readers.read(page("after"))).title == "after"
        assert reader_pid(others) == pid


async def test_text_that_is_wide_in_memory_is_too_large_though_it_is_short_on_the_way() -> None:
    def bird(size_bytes: int, **fields: int) -> Fetched:
        text = "\N{BIRD}".encode() + b"x" * size_bytes
        plain = answer(brotli.compress(text), content_type="text/plain", content_encoding="br")
        return replace(plain, **fields)

    async with Readers(1) as readers:
        assert await kind_of(readers, bird(MAX_DOCUMENT_BYTES // 4)) == "too_large"
        assert len((await readers.read(bird(MAX_DOCUMENT_BYTES // 4 - 10))).text) > 5_000_000
        with pytest.raises(HeavyDocument) as heavy:
            await readers.read(bird(1_000_000, most_bytes=512 * 1024))
        assert heavy.value.weight == 4 * 1_000_001


@pytest.mark.parametrize("field", ["urls", "sitemaps", "headings", "keywords", "extracts"])
def test_list_of_millions_is_refused_before_it_is_decoded(field: str) -> None:
    many: tuple[Any, ...] = (("a", ("b",)),) if field == "extracts" else ("a",)
    listed: dict[str, Any] = {field: many * 60_000}
    document = Document(digest=b"", size=0, content_type="", **listed)
    with pytest.raises(ValueError, match=r"malformed message.*length <= "):
        read_outcome(msgspec.msgpack.encode(Outcome(document)))


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
        asked = [answer(b"<p>" + bytes([65 + n]) * 2**21) for n in range(6)]
        documents = await asyncio.wait_for(asyncio.gather(*map(readers.read, asked)), 60)
    assert [(document.text[:1], len(document.text)) for document in documents] == [
        (chr(65 + n), 2**21) for n in range(6)
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


@pytest.mark.skipif(bool(seccomp.why_not()), reason="this machine has no seccomp")
async def test_parser_that_got_loose_dies_of_its_first_forbidden_call(tmp_path: Path) -> None:
    secret = tmp_path / "home.key"
    secret.write_text("a key")
    async with OBEDIENT(1) as readers:
        for words in ("open", "signal"):
            asked = answer(f"please {words}".encode(), url=str(secret))
            with pytest.raises(ReadError, match="it made a system call that the jail forbids"):
                await readers.read(asked)
        assert (await readers.read(page("after"))).title == "after"


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
        assert await kind_of(readers, answer(b"<p>" * 2**20)) == "parser"
        assert (await readers.read(page("after"))).title == "after"
        assert 0 < readers.peak_memory_bytes() < 2 * obedient.LIMITS.memory_bytes


class Failing:
    """A forker that can be told to fail."""

    def __init__(self, forker: Forker) -> None:
        self._forker = forker
        self.is_failing = False

    async def start(self, *, limits: JailLimits, is_jailed: bool | None) -> Cell:
        if self.is_failing:
            raise JailError("no memory")
        return await self._forker.start(limits=limits, is_jailed=is_jailed)


async def test_reader_that_cannot_be_replaced_is_an_error_and_no_hang(
    others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "RESTART_SECONDS", 0.0)
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


async def test_reader_that_cannot_be_replaced_for_lack_of_descriptors_is_an_error_and_no_hang(
    others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(workers, "RESTART_SECONDS", 0.0)
    async with Forker(readers_module.ENTRY, wrapper=()) as forker, Readers(1, starter=forker) as readers:
        await readers.read(page("before"))
        with monkeypatch.context() as full:
            full.setattr(socket, "socketpair", refuse)
            os.kill(reader_pid(others), signal.SIGKILL)
            assert [await kind_of(readers, page("during")) for _ in range(2)] == ["parser"] * 2
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


async def test_stopped_warm_parent_is_replaced_and_costs_no_page(
    others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("START_SECONDS", "WAIT_SECONDS", "CLOSE_SECONDS"):
        monkeypatch.setattr(pool, name, 1.0)
    async with Readers(1) as readers:
        await readers.read(page("before"))
        pid = reader_pid(others)
        os.kill(parent_of(pid), signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        assert (await asyncio.wait_for(readers.read(page("after")), 20)).title == "after"


OLD_KERNEL = """
from sterna.runtime.reader import serve, warm
from sterna.runtime.cell import seccomp
seccomp.why_not = lambda: "the kernel has no filter"
"""


async def test_without_seccomp_own_pages_are_read_and_those_of_strangers_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "old_reader.py").write_text(OLD_KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    async with Readers(2, entry="old_reader:serve", is_jailed=True) as readers:
        with pytest.raises(JailError, match="cannot sandbox a process: the kernel has no filter"):
            await readers.read(page("a stranger's"))
    async with Readers(2, entry="old_reader:serve") as readers:
        assert (await readers.read(page("own"))).title == "own"
    assert [record.getMessage() for record in caplog.records] == [
        "pages are read, and rules run, without a jail: cannot sandbox a process: the kernel has no filter;"
        " see `sterna doctor`"
    ]


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
    counts, is_wrapped = [], protection().has_bubblewrap

    async def start_and_close() -> None:
        async with OBEDIENT(3) as readers:
            assert children() <= others, "nothing has to be read yet"
            await readers.start()
            assert len(children() - others) == 3 + 1 + is_wrapped  # and the warm parent
            waiting = [asyncio.create_task(readers.read(page("please hang"))) for _ in range(6)]
            await asyncio.sleep(0)
        await asyncio.wait(waiting, timeout=5)
        assert all(each.cancelled() for each in waiting)
        assert children() <= others

    for _ in range(2):  # the first round also opens what the process keeps
        run(start_and_close())
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[1] <= counts[0]
