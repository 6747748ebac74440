"""Collections to export: a real site crawled once, and pages made up for a test."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import making
from tests.crawl.running import crawl_here
from tests.servers.nginx import real_site, serve

from sterna.api.export import export as run
from sterna.archive.rows import page_table
from sterna.archive.segments import SegmentStore
from sterna.export.job import ExportJob
from sterna.export.progress import ExportFormat, ExportProgress
from sterna.export.selection import Selection
from sterna.export.warc import WarcFile
from sterna.home.folder import CollectionFolder
from sterna.model import Page
from sterna.query.engine import Engine
from sterna.web.urls import site_of

SITE = "https://www.example.org"
EXPORT = (sys.executable, "-m", "sterna", "export")


def crawl_real_site(folder: Path) -> Path:
    """A collection of SQLite's documentation with raw responses, some of it visited twice."""
    with serve(real_site("sqlite3-doc"), folder=folder / "nginx") as server:
        starts = [f"{server.url}/{page}.html" for page in ("index", "lang_select")]
        crawl_here(folder / "sqlite", *starts, warc=True, max_pages=60, index=False)
        crawl_here(folder / "sqlite", *starts, warc=True, max_pages=60, index=False, refresh=0.0)
    return folder / "sqlite"


def export(folder: Path, to: ExportFormat, out: Path, *, where: str = "", **wishes: str | bool) -> Path:
    """Exports a collection quietly, in this process."""
    job = ExportJob(kind=to, place=out, **wishes)  # type: ignore[arg-type]
    run(CollectionFolder(folder), job, where=where, stdout=sys.stdout.buffer)
    return out


def page(path: str = "/", **fields: Any) -> Page:
    return making.page(path, **({"content_type": "text/html"} | fields))


@contextmanager
def source_of(
    *pages: Page,
    where: str = "",
    warcs: Sequence[WarcFile] = (),
    scratch: Path = Path(),
    progress: ExportProgress | None = None,
) -> Iterator[Selection]:
    """These pages, as a collection would give them."""
    rows = page_table([(site_of(each.url), each) for each in pages])
    with Engine({}, pages=rows) as engine:
        yield Selection(Path("made-up"), engine, tuple(warcs), where, scratch, progress or ExportProgress())


@contextmanager
def stored(folder: Path, *versions: Sequence[Page], where: str = "") -> Iterator[Selection]:
    """Pages in segments, each version of them in one of its own."""
    store = SegmentStore(folder)
    files: dict[str, list[Path]] = {}
    for pages in versions:
        for segment in store.write_pages([(SITE, each) for each in pages]):
            files.setdefault(segment.table, []).append(store.path(segment.name))
    with Engine(files) as engine:
        yield Selection(folder, engine, (), where)
