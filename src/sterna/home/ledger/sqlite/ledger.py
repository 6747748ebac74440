"""The ledger on SQLite, composed of its concerns; `ledger.interface.Ledger` documents the methods."""

from contextlib import suppress
from pathlib import Path

from sterna.errors import StorageError
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.database import Database
from sterna.home.ledger.sqlite.memory import Memory
from sterna.home.ledger.sqlite.outbox import Outbox
from sterna.home.ledger.sqlite.pages import Commit, Manifest, Pages
from sterna.home.ledger.sqlite.retries import Retries
from sterna.home.ledger.sqlite.sites import Sites
from sterna.home.ledger.sqlite.status import Status
from sterna.home.ledger.sqlite.trust import SqliteTrustBook


class SqliteLedger(Sites, Retries, Pages, Memory, Outbox, Manifest, Status):
    """The writer is one connection; readers open their own."""

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        self._database = Database(path, is_reader=is_reader)
        self._unwritten = {}
        self.trust = SqliteTrustBook(self._database)

    def commit(self, change: Change, *, now: float) -> None:
        with self._database.transaction() as db:
            Commit(db, self._database.lookup, now=now).store(change)
            self._write_hosts(db)

    def close(self) -> None:
        if self._unwritten:
            # If this fails, the sites are only asked once more.
            with suppress(StorageError), self._database.transaction() as db:
                self._write_hosts(db)
        self._database.close()
