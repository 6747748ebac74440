"""Crawling from Python, as the documentation shows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.nginx import NginxServer, serve

import sterna
from sterna.errors import UsageError
from sterna.search.searcher import Searcher

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxServer]:
    root = tmp_path_factory.mktemp("site")
    (root / "index.html").write_text("<title>Start</title><a href=clinic.html>on</a>")
    (root / "clinic.html").write_text("<title>Clinic</title><p>A clinic.</p>")
    with serve(root, folder=tmp_path_factory.mktemp("nginx")) as server:
        yield server


def test_spec_in_python_is_sent_out(tmp_path: Path, server: NginxServer) -> None:
    (tmp_path / "r.clp").write_text("(defrule see (page (title ?title)) => (emit saw ?title))")
    spec = sterna.Spec(
        name="clinics",
        seeds=(f"{server.url}/",),
        select=sterna.Select(keywords_any=("clinic",)),
        rules=("r.clp",),
    )

    summary = sterna.crawl(spec, into=tmp_path / "collection", folder=tmp_path, delay=0, index=False)

    assert (summary.ended, summary.pages, summary.kept, summary.rows) == ("finished", 2, 1, 2)


def test_same_call_goes_on_where_it_ended(tmp_path: Path, server: NginxServer) -> None:
    spec = sterna.Spec(name="all", seeds=(f"{server.url}/",))
    first = sterna.crawl(spec, into=tmp_path / "collection", delay=0, index=False, max_pages=1)

    second = sterna.crawl(spec, into=tmp_path / "collection", delay=0, index=False, max_pages=10)

    assert (first.pages, second.pages, second.total_pages) == (1, 1, 2)


def test_whoever_watches_can_end_it(tmp_path: Path, server: NginxServer) -> None:
    spec = sterna.Spec(name="all", seeds=(f"{server.url}/",))

    summary = sterna.crawl(
        spec, into=tmp_path / "collection", delay=0, index=False, on_parcels=lambda parcels: True
    )

    assert summary.ended == "stopped"


def test_option_that_cannot_be_is_refused(tmp_path: Path) -> None:
    spec = sterna.Spec(name="all", seeds=("https://www.example.org/",))

    with pytest.raises(UsageError, match="delay"):
        sterna.crawl(spec, into=tmp_path, delay=-1)


def test_pages_can_be_searched_when_it_returns(tmp_path: Path, server: NginxServer) -> None:
    spec = sterna.Spec(name="all", seeds=(f"{server.url}/",))

    sterna.crawl(spec, into=tmp_path / "collection", delay=0)

    with Searcher(tmp_path / "collection" / "index") as searcher:
        assert [hit.url for hit in searcher.search("clinic").hits] == [f"{server.url}/clinic.html"]
