"""kill -9 at random moments and at every named step: nothing is lost, nothing is stored twice."""

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import crawl_here, kill, rows, start, sterna, stored_urls, summary_of
from tests.forking import Forked
from tests.servers.synthetic import SyntheticServer, SyntheticWeb
from warcio.archiveiterator import ArchiveIterator

from sterna.home.folder import CollectionFolder

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

PAGES = 250  # in six parcels
QUICKLY = ("--delay", "0", "--concurrency", "16")
STEPS = [
    "received",
    "segment-begun",
    "segment-written",
    "segment-renamed",
    "warc-written",
    "warc-synced",
    "archived",
    "committed",
]


@pytest.fixture(scope="module")
def server() -> Iterator[SyntheticServer]:
    web = SyntheticWeb(sites=1, pages_per_site=PAGES, mean_degree=6, bytes_per_page=20_000, seed=7)
    with SyntheticServer(web).run_in_thread() as running:
        yield running


@dataclass(frozen=True)
class Stored:
    """What a crawl that is over has in its files."""

    pages: list[str]
    links: list[tuple[Any, ...]]
    responses: Counter[str]


@pytest.fixture(scope="module")
def undisturbed(server: SyntheticServer, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    folder = tmp_path_factory.mktemp("undisturbed") / "c"
    crawl_here(folder, server.url(0), warc=True, concurrency=16)
    return stored(folder)


def stored(folder: Path) -> Stored:
    """What there is, after a look at what must not be there: other files, and rows of no batch."""
    named = {Path(name).name for table in ("page", "link") for name in _segments(folder, table)}
    assert {path.name for path in (folder / "segments").iterdir()} == named
    last = CollectionFolder(folder).snapshot().batch
    wrong = f"SELECT count(*) FROM t WHERE batch NOT BETWEEN 1 AND {last} OR batch IS NULL OR again"
    assert rows(folder, wrong) == [(0,)]
    links = "SELECT from_url, to_url, count(*) FROM t GROUP BY ALL ORDER BY ALL"
    return Stored(stored_urls(folder), rows(folder, links, "link"), warc_urls(folder))


def warc_urls(folder: Path) -> Counter[str]:
    """How often each URL is in the WARC files, all of which must be whole."""
    found: Counter[str] = Counter()
    assert not list((folder / "warc").glob("*.open"))
    for path in (folder / "warc").iterdir():
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                if record.rec_type == "response":
                    record.content_stream().read()
                    found[record.rec_headers["WARC-Target-URI"]] += 1
    return found


def _segments(folder: Path, table: str) -> list[str]:
    return [name for (name,) in rows(folder, "SELECT DISTINCT filename FROM t", table, with_names=True)]


def test_undisturbed_crawl_has_every_page_once(undisturbed: Stored, server: SyntheticServer) -> None:
    assert undisturbed.pages == sorted(server.expected_urls(0))
    assert sorted(undisturbed.responses.elements()) == undisturbed.pages


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments_it_resumes_to_the_same_end(
    seed: int, tmp_path: Path, server: SyntheticServer, undisturbed: Stored
) -> None:
    """Five kills in each crawl, the first of them before or during the first fifth of its pages."""
    folder = tmp_path / "c"
    source = random.Random(seed)
    command = ("crawl", server.url(0), "--into", folder, "--warc", "--json", *QUICKLY)
    for _ in range(5):
        requests = len(server.log) + source.randrange(PAGES // 5)
        process = start(*command)
        _wait_for(lambda seen=requests: (folder / "ledger.sqlite").exists() and len(server.log) >= seen)  # type: ignore[misc]
        time.sleep(source.uniform(0.0, 0.1))
        kill(process)
    result = sterna(*command)
    assert (result.returncode, result.stderr) == (0, "")
    assert summary_of(result)["total_pages"] == PAGES
    assert stored(folder) == undisturbed


# The later ones die after a parcel was committed: four commits leave some of the six for the last run.
@pytest.mark.parametrize(
    ("steps", "count"),
    [(STEPS, 1), (STEPS[::2], 2), (STEPS[1::2], 2)],
    ids=["first", "later, even", "later, odd"],
)
def test_killed_at_each_named_step_it_resumes_to_the_same_end(
    steps: list[str], count: int, tmp_path: Path, server: SyntheticServer, undisturbed: Stored
) -> None:
    folder = tmp_path / "c"
    for step in steps:
        die(folder, server, step, count)
    crawl_here(folder, server.url(0), warc=True, concurrency=16)
    assert stored(folder) == undisturbed


def die(folder: Path, server: SyntheticServer, step: str, count: int) -> None:
    """Crawls until this step was taken so often, and is killed there."""
    with Forked([sys.executable, "-m", "tests.crawl.dying", folder, server.url(0), step, str(count)]) as died:
        died.wait(60)
    assert died.returncode == -signal.SIGKILL, f"the crawl never came to {step} {count} times"


def test_at_most_the_uncommitted_parcels_are_fetched_again(tmp_path: Path, server: SyntheticServer) -> None:
    folder = tmp_path / "c"
    before = len(server.log)
    die(folder, server, "archived", 4)
    committed = len(stored_urls(folder))
    fetched = len(server.log) - before
    crawl_here(folder, server.url(0), warc=True, concurrency=16)
    again = Counter(hit.path for hit in server.log[before:])
    repeated = sum(count - 1 for path, count in again.items() if path != "/robots.txt")
    assert committed > 10
    assert repeated <= fetched - committed


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "the crawl never came so far"
        time.sleep(0.01)
