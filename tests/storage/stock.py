"""A collection into which a test puts batches as a crawl does, and its rules."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import making

from sterna.archive.manifest import Batch, FactRow
from sterna.archive.segments import SegmentStore
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Link, Links, Page
from sterna.query.engine import Engine
from sterna.storage.manager import Manager
from sterna.storage.status import Standing

SITE = "https://www.example.org"
_NEVER = threading.Event()


def page(number: int, *, status: int = 200, title: str = "", text: str = "", **fields: Any) -> Page:
    return making.page(
        f"/{number}",
        fetched=making.NOW + number,
        status=status,
        title=title or f"Title {number}",
        text=text or f"text of page {number}",
        size=number,
        links=Links.of(Link(f"{SITE}/")),
        **fields,
    )


def pages(first: int, count: int) -> list[Page]:
    return [page(number) for number in range(first, first + count)]


class Stock:
    """The collection; its ledger is open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.collection = CollectionFolder(folder)
        with self.collection.open_for_crawl():
            self.ledger = SqliteLedger(self.collection.ledger_path)
        self.segments = SegmentStore(self.collection.segments_folder)
        self._batch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ledger.close()

    def put(self, found: Sequence[Page], *, crawler: str = "health", facts: Sequence[FactRow] = ()) -> None:
        """Commits one batch."""
        self._batch += 1
        batch = Batch(
            number=self._batch,
            crawler=crawler,
            visits=tuple("v" for _ in found),
            again=tuple(False for _ in found),
        )
        written = self.segments.write_pages([(SITE, each) for each in found], facts=facts, batch=batch)
        self.ledger.commit(Change(parcels=(), segments=tuple(written), batch=self._batch), now=time.time())

    def rules(self, text: str) -> None:
        """Puts the file of rules in place of the one before."""
        path = self.folder / "storage.toml"
        begun = path.with_suffix(".new")
        begun.write_text(text)
        begun.replace(path)

    def manager(self, *, environ: Mapping[str, str] | None = None, only: str = "") -> Manager:
        return Manager(
            self.folder,
            collection=self.collection.id(),
            segments=self.collection.segments_folder,
            take=self.collection.snapshot,
            environ=environ or {},
            only=only,
        )

    def store(self, *, environ: Mapping[str, str] | None = None) -> list[Standing]:
        """Lets all rules catch up, once."""
        with self.manager(environ=environ) as manager:
            self.catch_up(manager)
        return manager.standings()

    def catch_up(self, manager: Manager) -> None:
        manager.catch_up(self.collection.snapshot(), stop=_NEVER)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """The archive's own answer, over all batches."""
        with Engine(self.collection.snapshot().tables) as engine:
            return list(engine.run(sql).rows)


def fact(template: str, data: str, *, crawler: str = "health") -> FactRow:
    return FactRow(crawler=crawler, site=SITE, visit="v", template=template, data=data, received=1.0)
