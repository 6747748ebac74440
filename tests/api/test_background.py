"""A crawl beside the caller's event loop: awaited, or read page by page."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.cli.test_commands import A
from tests.making import page, parcel
from tests.servers.pages import PageServer, linking

import sterna
from sterna.api import background
from sterna.api.background import Beside
from sterna.errors import UsageError

pytestmark = pytest.mark.servers
PAGES = 60
URL = "https://www.example.org/"


@pytest.fixture
def server() -> Iterator[PageServer]:
    pages = {f"/{n}": f"<title>Page {n}</title><p>tern number {n}" for n in range(1, PAGES)}
    site = PageServer({A: {"/": linking(*pages, title="Start"), **pages}}, latency_seconds=0.005)
    with site.run_in_thread() as running:
        yield running


def test_url_is_enough(server: PageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    summary = sterna.crawl(server.url(A), delay=0, index=False)
    port = server.url(A).rstrip("/").rpartition(":")[2]
    assert (summary.ended, summary.pages, summary.collection) == ("finished", PAGES, f"crawls/{A}_{port}")
    assert sterna.Collection(summary.collection).status().counts.pages == PAGES


def test_without_a_url_the_collection_continues(server: PageServer, tmp_path: Path) -> None:
    sterna.crawl([server.url(A), f"{server.url(A)}1"], tmp_path / "c", delay=0, index=False, max_pages=2)
    assert sterna.crawl(into=tmp_path / "c", max_pages=5, index=False).total_pages == 5


def test_file_of_a_spec_is_crawled(server: PageServer, tmp_path: Path) -> None:
    file = tmp_path / "terns.toml"
    file.write_text(f'name = "terns"\nseeds = ["{server.url(A)}"]\n[scope]\npages = 3\n')
    whats: list[Path | str] = [file, str(file)]
    for number, what in enumerate(whats):
        assert sterna.crawl(what, tmp_path / f"{number}", delay=0, index=False).pages == 3


async def test_crawl_blocks_inside_a_loop_as_a_notebook_has_it(server: PageServer, tmp_path: Path) -> None:
    assert sterna.crawl(server.url(A), tmp_path / "c", delay=0, max_pages=3).pages == 3
    rows = sterna.ask("SELECT url FROM page LIMIT 2", server.url(A), delay=0)
    assert len(rows) == 2


async def test_acrawl_leaves_the_loop_to_others(server: PageServer, tmp_path: Path) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    clock = asyncio.create_task(tick())
    summary = await sterna.acrawl(server.url(A), into=tmp_path / "c", delay=0)
    clock.cancel()
    assert summary.pages == PAGES
    assert ticks > 20


async def test_cancelled_acrawl_stops_cleanly(server: PageServer, tmp_path: Path) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def note(parcels: object) -> bool:
        loop.call_soon_threadsafe(begun.set)
        return False

    crawl = asyncio.create_task(
        sterna.acrawl(server.url(A), into=tmp_path / "c", delay=0.05, index=False, on_parcels=note)
    )
    await begun.wait()
    crawl.cancel()
    with pytest.raises(asyncio.CancelledError):
        await crawl
    again = await sterna.acrawl(into=tmp_path / "c", delay=0, index=False)
    assert (again.ended, again.total_pages) == ("finished", PAGES)


async def test_pages_come_as_they_are_stored_each_once(server: PageServer, tmp_path: Path) -> None:
    urls = [each.url async for each in sterna.pages(server.url(A), into=tmp_path / "c", delay=0, index=False)]
    assert len(urls) == len(set(urls)) == PAGES
    assert sterna.Collection(tmp_path / "c").status().counts.pages == PAGES


async def test_who_leaves_the_loop_ends_the_crawl(server: PageServer, tmp_path: Path) -> None:
    pages = sterna.pages(server.url(A), into=tmp_path / "c", delay=0.05, index=False)
    async for each in pages:
        assert each.title
        break
    await cast("AsyncGenerator[sterna.Page]", pages).aclose()
    stored = sterna.Collection(tmp_path / "c").status().counts.pages
    assert 1 <= stored < PAGES
    assert (await sterna.acrawl(into=tmp_path / "c", delay=0, index=False)).total_pages == PAGES


async def test_crawl_waits_for_a_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MOST_AHEAD", 4)
    stream, ahead = background.PageStream(), []
    two = (parcel(number=1, pages=(page("/1"), page("/2"))),)

    async def crawl() -> None:
        for _ in range(PAGES // 2):
            stream.put(two)
            await stream.drain()
            ahead.append(len(stream))

    def begin() -> Beside[None]:
        return Beside(lambda wait: wait(crawl()), stop=asyncio.Event())

    read = [each.url async for each in stream.read(begin)]
    assert len(read) == PAGES
    assert max(ahead) < 4


async def test_errors_of_the_crawl_are_raised_in_the_loop(server: PageServer, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("not a collection")
    with pytest.raises(sterna.SternaError, match="other files"):
        async for _ in sterna.pages(server.url(A), into=tmp_path, delay=0):
            pass


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        (URL, {"delay": -1}, "--delay -1 is invalid: seconds, 0 to 86400"),
        (URL, {"delay": "soon"}, "--delay soon is invalid: a number, 0 to 86400"),
        (URL, {"max_pages": "10"}, "--max-pages 10 is invalid: a whole number, 1 or more"),
        (URL, {"max_page": 10}, "'max_page' is not an option of a crawl: did you mean 'max_pa"),
        (URL, {"stay": "here"}, "--stay here is invalid: site, domain or any"),
        (URL, {"warc": "yes"}, "--warc yes is invalid: True or False"),
        (URL, {"refresh_seconds": "7d"}, "refresh_seconds '7d' is invalid: seconds, such as 7 * 86_400"),
        (URL, {"into": 5}, "into 5 is invalid: a path, as a text or a Path"),
        (URL, {"folder": 5}, "folder 5 is invalid: a path"),
        (URL, {"max_seconds": 0}, "--max-seconds 0 is invalid: seconds, more than 0"),
        (URL, {"subtrees": "docs"}, "--subtree docs is invalid: write the beginning"),
        ("www", {}, "'www' is not a web address: write it like https://www.example.org/"),
        ("spec.yaml", {}, "there is no file spec.yaml, and no site is called so: a spec ends in .toml"),
        (7, {}, "7 cannot be crawled: give a URL, several, a Spec or the file of one"),
        ((), {}, "no URL to start from: sterna crawl https://www.example.org/"),
    ],
)  # fmt: skip
def test_wrong_values_give_the_words_of_the_command(
    what: str, options: dict[str, object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        sterna.crawl(what, **{"into": tmp_path / "c"} | options)  # type: ignore[arg-type]
    assert str(error.value).startswith(words)


def test_all_three_take_the_same_parameters() -> None:
    for function in (sterna.acrawl, sterna.pages):
        assert [*inspect.signature(function).parameters][:2] == ["what", "into"]
