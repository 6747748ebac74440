"""A real site that was crawled, changed and crawled again, and all that is stored of it as plain Python."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from tests.crawl.running import crawl_here, segment_paths
from tests.servers.nginx import real_site, serve

Row = dict[str, Any]
CHANGED, REMOVED, ADDED = "lang_select.html", "autoinc.html", "brand-new.html"


class RealCollection(NamedTuple):
    folder: Path
    origin: str
    history: list[Row]  # every version of every page, oldest first
    pages: dict[str, Row]  # the newest versions by their URLs
    links: list[Row]  # of the newest versions


@contextmanager
def sqlite_docs(folder: Path) -> Iterator[RealCollection]:
    """SQLite's documentation; between two visits one page changes, one goes and one comes."""
    root = folder / "site"
    shutil.copytree(real_site("sqlite3-doc"), root, ignore=shutil.ignore_patterns("*.gz", "images", "*.pdf"))
    with serve(root, folder=folder / "nginx") as server:
        crawl_here(folder / "c", f"{server.url}/index.html")
        _change(root)
        crawl_here(folder / "c", f"{server.url}/index.html", refresh=0.0)
    yield _read(folder / "c", server.url)


def _change(root: Path) -> None:
    page = root / CHANGED
    page.write_text(page.read_text().replace("</title>", " for terns</title>", 1))
    (root / REMOVED).unlink()
    (root / ADDED).write_text(f"<title>New</title><p>A tern. <a href={REMOVED}>gone</a>")
    index = root / "index.html"
    index.write_text(index.read_text().replace("<body>", f"<body><a href={ADDED}>new</a>", 1))


def _read(folder: Path, origin: str) -> RealCollection:
    history = sorted(_rows(folder, "page"), key=lambda row: (row["fetched"], row.get("batch") or 0))
    pages = {row["url"]: row for row in history}
    links = [row for row in _rows(folder, "link") if row["fetched"] == pages[row["from_url"]]["fetched"]]
    return RealCollection(folder, origin, history, pages, links)


def _rows(folder: Path, table: str) -> list[Row]:
    return [row for path in segment_paths(folder, table) for row in pq.read_table(path).to_pylist()]
