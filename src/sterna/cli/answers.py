"""The rows of a query that crawls, written as its pages come home."""

import queue
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from sterna.api.query import ask, ledger_tables, open_collection
from sterna.archive.manifest import Batch
from sterna.archive.rows import page_table
from sterna.crawler.sql.plan import QueryPlan
from sterna.home.folder import Collection
from sterna.model import Page, Parcel
from sterna.query.engine import Engine, Result
from sterna.query.formats import TextFormat
from sterna.query.output import write

CRAWLER = "ask"  # the name of the crawler that is sent out
_Row = tuple[Any, ...]


class Answers:
    """Writes rows in a thread of its own; a query that needs all pages waits for them."""

    def __init__(self, plan: QueryPlan, *, form: TextFormat, out: TextIO) -> None:
        self._plan = plan
        self._form: TextFormat = form
        self._out = out
        self._rows: queue.SimpleQueue[_Row | None] = queue.SimpleQueue()
        self._left = None if plan.limit is None else plan.limit + plan.offset
        self._to_skip = plan.offset
        self._thread: threading.Thread | None = None

    @property
    def is_enough(self) -> bool:
        """True if the query wants no more rows."""
        return self._left == 0

    def __enter__(self) -> Self:
        if not self._plan.is_streamable:
            _run(self._plan.home_sql, ())  # a mistake in it shows now, and not after the crawl
        else:
            columns = _run(self._plan.stream_sql, ()).columns
            result = Result(columns, iter(self._rows.get, None))
            self._thread = threading.Thread(target=self._write, args=(result,), daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def take(self, parcels: Sequence[Parcel]) -> bool:
        """Writes what pages that were just stored give; True if no more are wanted."""
        if self._thread is None:
            return False
        pages = [(parcel, page) for parcel in parcels for page in parcel.pages if page.is_kept]
        for row in _run(self._plan.stream_sql, pages).rows if pages else ():
            if self.is_enough:
                break
            self._add(row)
        return self.is_enough

    def finish(self, collection: Collection) -> None:
        """Writes the rest: all rows, if the query needed all pages."""
        self._end()
        if not self._plan.is_streamable:
            with open_collection(collection) as engine:
                ask(engine, self._plan.home_sql, form=self._form)

    def _add(self, row: _Row) -> None:
        if self._left is not None:
            self._left -= 1
        if self._to_skip:
            self._to_skip -= 1
        else:
            self._rows.put(row)

    def _write(self, result: Result) -> None:
        write(result, format=self._form, out=self._out, is_live=True)

    def _end(self) -> None:
        if self._thread:
            self._rows.put(None)
            self._thread.join()
            self._thread = None


def _run(sql: str, pages: Sequence[tuple[Parcel, Page]]) -> Result:
    """The rows of these pages; all of them are read before the engine is closed."""
    visits = tuple(parcel.visit for parcel, _ in pages)
    batch = Batch(number=0, crawler=CRAWLER, visits=visits, again=(False,) * len(pages))
    rows = page_table([(parcel.site, page) for parcel, page in pages], batch)
    with Engine({}, pages=rows, extra=ledger_tables((), ())) as engine:
        result = engine.run(sql)
        return Result(result.columns, iter(list(result.rows)))
