"""Archives as tests of queries need them: batches of pages written as segments, old ones among them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests import making

from sterna.archive.manifest import Batch, FactRow
from sterna.archive.parquet import fact_tables, merged, tables_of
from sterna.archive.rows import MORE, PAGE_SCHEMA
from sterna.model import Page
from sterna.query.engine import Engine

SITE = "https://www.example.org"
CAME = ("visit", "crawler", "batch", "again")  # how rows came, which earlier Sternas did not note
SitePages = Sequence[tuple[str, Page]]


def page(name: str, day: int, **fields: Any) -> tuple[str, Page]:
    fetched = datetime(2026, 1, day, tzinfo=UTC).timestamp()
    return SITE, making.page(f"/{name}", fetched=fetched, **fields)


def fact(data: str, **fields: Any) -> FactRow:
    known: dict[str, Any] = {"crawler": "health", "site": SITE, "visit": "v1", "received": 1_700_000_000.0}
    return FactRow(**{**known, "template": "clinic", "data": data, **fields})


class Archive:
    """Files as intake writes them, a batch at a time; `tables` is what the engine takes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.tables: dict[str, list[Path]] = {"page": [], "link": [], "fact": []}
        self._folder = folder
        self._seen: set[str] = set()
        self._batch = 0
        self._files = 0

    def add(
        self,
        pages: SitePages = (),
        *,
        facts: Sequence[FactRow] = (),
        visit: str = "v1",
        crawler: str = "health",
    ) -> int:
        """One more batch; tells its number."""
        self._batch += 1
        batch = Batch(
            number=self._batch, crawler=crawler, visits=(visit,) * len(pages), again=self._note(pages)
        )
        self._write(_tables(pages, facts, batch))
        return self._batch

    def add_old(self, pages: SitePages = (), *, facts: Sequence[FactRow] = ()) -> None:
        """As an earlier Sterna wrote them: nothing says how they came."""
        self._note(pages)
        self._write(_tables(pages, facts))

    def merge(self, table: str, begin: int, end: int) -> None:
        """Compaction of some files of a table: one after them has all their rows, in order."""
        group = self.tables[table][begin:end]
        if len(group) > 1:
            _, rows = merged(table, group)
            kept = self.tables[table][:begin] + self.tables[table][end:]
            self.tables[table] = kept
            self._write({table: pa.concat_tables(rows)})

    def _note(self, pages: SitePages) -> tuple[bool, ...]:
        again = []
        for _, each in pages:
            again.append(each.url in self._seen)
            self._seen.add(each.url)
        return tuple(again)

    def _write(self, tables: dict[str, pa.Table]) -> None:
        for name, rows in tables.items():
            self._files += 1
            path = self._folder / f"{self._files:06}.{name}.parquet"
            pq.write_table(rows, path)
            self.tables[name].append(path)


def early(folder: Path, name: str) -> Path:
    """The file of a page as a version wrote it that knew fewer columns."""
    schema = pa.schema([field for field in PAGE_SCHEMA if field.name not in (*MORE, *CAME)])
    row = {"url": f"{SITE}/{name}", "title": name, "fetched": datetime(2026, 1, 1, tzinfo=UTC)}
    path = folder / f"{name}.page.parquet"
    pq.write_table(pa.Table.from_pylist([row], schema=schema), path)
    return path


def stored(folder: Path, *batches: SitePages, facts: Sequence[FactRow] = ()) -> dict[str, list[Path]]:
    """The files of these batches, and of facts that came last."""
    archive = Archive(folder)
    for pages in batches:
        archive.add(pages)
    if facts:
        archive.add(facts=facts)
    return archive.tables


def rows(engine: Engine, sql: str, **parameters: object) -> list[tuple[Any, ...]]:
    return list(engine.run(sql, parameters).rows)


def _tables(pages: SitePages, facts: Sequence[FactRow], batch: Batch | None = None) -> dict[str, pa.Table]:
    _, rows = fact_tables(facts, batch)
    return tables_of(pages, batch) | ({"fact": pa.concat_tables(rows)} if facts else {})
