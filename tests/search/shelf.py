"""An archive that a test fills row by row, and what its index should hold by DuckDB's reading of it."""

import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from tantivy import Index, Query

from sterna.archive.manifest import Snapshot
from sterna.archive.parquet import write_segment
from sterna.archive.rows import SCHEMAS
from sterna.search import generations, schema
from sterna.search.indexer import Indexer
from sterna.search.results import Found
from sterna.search.searcher import Searcher

SITE = "http://www.example.org"

# The last row of each URL that says something of the page, if it says that the page is good.
_NEWEST_GOOD = """
    WITH told AS (
        SELECT url, digest, status, coalesce(batch, 0) AS number,
            CASE WHEN coalesce(batch, 0) = 0 THEN fetched END AS early, filename, file_row_number AS place
        FROM read_parquet({paths!r}, filename = true, file_row_number = true)
        WHERE status IN (404, 410) OR (status BETWEEN 200 AND 299 AND error IS NULL)
    )
    SELECT url, digest FROM told
    QUALIFY status BETWEEN 200 AND 299 AND digest IS NOT NULL AND 1 = row_number() OVER (
        PARTITION BY url ORDER BY number DESC, early DESC, filename DESC, place DESC
    )
"""


def page(path: str, text: Any = "", **fields: Any) -> dict[str, Any]:
    """A good page, unless its fields say otherwise; a path of its own makes it a page of its own."""
    url = path if "://" in path else f"{SITE}/{path}"
    body = f"{fields.get('title', '')}\n{text}\n{url}"
    return {
        "url": url,
        "site": url[: url.index("/", 8)],
        "status": 200,
        "text": text or None,
        "digest": blake2b(body.encode(), digest_size=16).hexdigest(),
        "again": False,
        **fields,
    }


class Shelf:
    """Segments of one archive, batch after batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "segments"
        self.folder.mkdir(parents=True)
        self.index_folder = folder / "index"
        self.batch = 0
        self._files: dict[str, list[Path]] = {"page": [], "link": [], "fact": []}

    def add(
        self,
        pages: Sequence[Mapping[str, Any]],
        links: Sequence[tuple[str, str]] = (),
        *,
        batch: int | None = -1,
    ) -> None:
        """One batch more; None: rows that know no batch, from before there were any."""
        number = len(self._files["page"]) + 1
        if batch == -1:
            self.batch += 1
            batch = self.batch
        fetched = 1_700_000_000_000_000 + 1_000_000 * number
        rows = [{"fetched": fetched, "batch": batch, **each} for each in pages]
        self._write("page", rows, number)
        ends = [{"from_url": begin, "to_url": end} for begin, end in links]
        if ends:
            self._write("link", [{"fetched": fetched, "batch": batch, **each} for each in ends], number)

    def _write(self, table: str, rows: list[dict[str, Any]], number: int) -> None:
        fields = SCHEMAS[table]
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in fields]
        name = f"{number:08d}.{table}.parquet"
        write_segment(self.folder, name, rows=[pa.table(columns, schema=fields)], schema=fields)
        self._files[table].append(self.folder / name)

    def snapshot(self) -> Snapshot:
        """What is committed."""
        return Snapshot(
            tables={table: tuple(paths) for table, paths in self._files.items()}, batch=self.batch
        )

    def index(self, *, is_anew: bool = False) -> None:
        """Brings the index up to date."""
        with Indexer(self.index_folder, is_anew=is_anew) as indexer:
            indexer.catch_up(self.snapshot(), stop=threading.Event())
            if is_anew:
                indexer.publish()

    def search(self, words: str, **window: int) -> Found:
        """A search by somebody who has just come."""
        with Searcher(self.index_folder) as searcher:
            return searcher.search(words, **window)

    def found(self, words: str) -> list[str]:
        """The URLs of the hits, without the site."""
        return [hit.url.removeprefix(f"{SITE}/") for hit in self.search(words).hits]

    def expected(self) -> list[tuple[str, str]]:
        """URL and digest of each page that should be found, sorted."""
        return newest_good(self._files["page"])

    def held(self) -> list[tuple[str, str]]:
        """URL and digest of each page that is in the index, sorted; who is there twice comes twice."""
        return held_in(self.index_folder)


def newest_good(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """What DuckDB says that an index of these segments holds; of a digest the first half."""
    if not paths:
        return []
    sql = _NEWEST_GOOD.format(paths=[str(path) for path in paths])
    with duckdb.connect() as db:
        return sorted((url, digest[:16]) for url, digest in db.execute(sql).fetchall())


def held_in(folder: Path) -> list[tuple[str, str]]:
    """What an index holds."""
    generation = generations.current(folder)
    assert generation is not None
    index = Index.open(str(generation))
    searcher = index.searcher()
    every = Query.exists_query(schema.NUMBER)
    hits = searcher.search(every, limit=searcher.num_docs + 1).hits
    addresses = [address for _, address in hits]
    digests = searcher.fast_field_values(schema.DIGEST, addresses)
    urls = [searcher.doc(address).get_first(schema.URL) for address in addresses]
    return sorted((str(url), f"{int(digest or 0):016x}") for url, digest in zip(urls, digests, strict=True))
