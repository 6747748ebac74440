"""The ledger, composed of its concerns. Every call is one transaction: all or nothing."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sterna.errors import StorageError
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.database import Database
from sterna.home.ledger.sqlite.memory import Memory
from sterna.home.ledger.sqlite.outbox import Outbox
from sterna.home.ledger.sqlite.pages import Commit, Manifest, Pages
from sterna.home.ledger.sqlite.sites import Sites
from sterna.home.ledger.sqlite.status import Status
from sterna.home.ledger.sqlite.trust import TrustBook

T = TypeVar("T")


class SqliteLedger(Sites, Pages, Memory, Outbox, Manifest, Status):
    """What home knows of every site and URL: one writer, and any number of readers beside it."""

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        self._database = Database(path, is_reader=is_reader)
        self._unwritten = {}
        self.trust = TrustBook(self._database)

    def commit(self, change: Change, *, now: float) -> None:
        """Stores the parcels that are new; raises ValueError if its batch does not follow the last one."""
        with self._database.transaction() as db:
            Commit(db, self._database.lookup, now=now).store(change)
            self._write_hosts(db)

    def close(self) -> None:
        if self._unwritten:
            # If this fails, the sites are only asked once more.
            with suppress(StorageError), self._database.transaction() as db:
                self._write_hosts(db)
        self._database.close()


@dataclass(frozen=True, slots=True)
class LedgerDesk:
    """The ledger as the event loop uses it: all calls run in the one thread that owns the connection."""

    ledger: SqliteLedger
    thread: Executor

    async def do(self, call: Callable[[SqliteLedger], T]) -> T:
        """The result of `call`, which is given the ledger."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, call, self.ledger)
