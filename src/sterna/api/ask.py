"""`sterna.ask`: a query that crawls. Rows come as soon as the pages that give them are stored."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from sterna.api.background import Wait, wait_for
from sterna.api.crawl import gather_options, send
from sterna.api.query import ledger_tables, open_collection
from sterna.archive.manifest import Batch
from sterna.archive.rows import page_table
from sterna.crawler.compiler import compile_query
from sterna.crawler.grammar import describe
from sterna.crawler.pack import PackedCrawler
from sterna.crawler.sql.plan import plan_query
from sterna.errors import UsageError
from sterna.home.crawl import Run
from sterna.home.folder import CollectionFolder, path_of
from sterna.home.options import given_options
from sterna.home.progress import Summary
from sterna.model import Page, Parcel
from sterna.query.engine import Engine, Result
from sterna.query.output import distinct

CRAWLER = "ask"  # the name of the crawler that is sent out
Row = tuple[Any, ...]


def ask(
    sql: str,
    *urls: str,
    into: Path | str | None = None,
    only_matching_urls: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Crawls from `urls`, and returns the rows that a SELECT over `page` gives.

    The collection is kept in the folder `into`, or else deleted. With `only_matching_urls` the crawler passes
    only through URLs that meet the query's conditions on `url`. `options` are those of `sterna.crawl`.
    """
    question = Question(sql, only_matching_urls=only_matching_urls)
    rows: list[Row] = []
    with question_folder(path_of("into", into) if into is not None else None) as folder:
        chosen = gather_options(folder, urls, flags=given_options(options))
        run = question.run(rows.append)

        def crawl(wait: Wait[Summary]) -> Summary:
            return wait(send(folder, chosen, run=run))

        wait_for(crawl, stop=run.stop)
        if not question.is_streamable:
            with open_collection(folder) as engine:
                rows.extend(engine.run(question.home_sql).rows)
    names = distinct(question.columns)
    return [dict(zip(names, row, strict=True)) for row in rows]


class Question:
    """A query that crawls: the crawler that it becomes, and the rows that pages give."""

    def __init__(self, sql: str, *, only_matching_urls: bool = False) -> None:
        """Raises QueryError for a query that cannot be answered by crawling."""
        plan = plan_query(sql)
        if only_matching_urls:
            plan = msgspec.structs.replace(plan, prune=plan.prunable)
        self._plan = plan
        self._errand = PackedCrawler(crawler=compile_query(plan, CRAWLER))
        self.is_streamable = plan.is_streamable
        self.home_sql = plan.home_sql
        # In words, which URLs are not even fetched.
        self.passed_over = f"not ({describe(plan.prune)})" if plan.prune else ""
        # Running the query over no pages shows a mistake in it before the crawl.
        self.columns = _run(plan.stream_sql if plan.is_streamable else plan.home_sql, ()).columns
        # Both are counted down by _rows_of().
        self._left = None if plan.limit is None else plan.limit + plan.offset
        self._to_skip = plan.offset

    @property
    def is_enough(self) -> bool:
        """True once the query's LIMIT is reached."""
        return self._left == 0

    def run(self, put: Callable[[Row], None]) -> Run:
        """A run that calls `put` with each row as its page is stored, and ends when there are enough."""

        def take(parcels: tuple[Parcel, ...]) -> bool:
            for row in self._rows_of(parcels):
                put(row)
            return self.is_enough

        return Run(stop=asyncio.Event(), errand=self._errand, on_parcels=take)

    def _rows_of(self, parcels: Sequence[Parcel]) -> Iterator[Row]:
        """The rows of pages that were just stored; none if the query needs all pages first."""
        pages = [(parcel, page) for parcel in parcels for page in parcel.pages if page.is_kept]
        if not self.is_streamable or not pages:
            return
        for row in _run(self._plan.stream_sql, pages).rows:
            if self.is_enough:
                return
            if self._left is not None:
                self._left -= 1
            if self._to_skip:
                self._to_skip -= 1
            else:
                yield row


@contextmanager
def question_folder(folder: Path | None) -> Iterator[CollectionFolder]:
    """The collection of one question: in an empty folder, or in a temporary one."""
    if folder:
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"--into {folder} is not empty: a question needs a folder of its own")
        yield CollectionFolder(folder)
        return
    with tempfile.TemporaryDirectory(prefix="sterna-ask-") as work:
        yield CollectionFolder(Path(work) / "collection")


def _run(sql: str, pages: Sequence[tuple[Parcel, Page]]) -> Result:
    """The rows of these pages; all of them are read before the engine is closed."""
    visits = tuple(parcel.visit for parcel, _ in pages)
    batch = Batch(number=0, crawler=CRAWLER, visits=visits, again=(False,) * len(pages))
    rows = page_table([(parcel.site, page) for parcel, page in pages], batch)
    with Engine({}, pages=rows, extra=ledger_tables((), ())) as engine:
        result = engine.run(sql)
        return Result(result.columns, iter(list(result.rows)))
