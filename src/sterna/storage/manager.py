"""The archive manager (Fiedler-Hammer 4.7.3): a collection's storage rules, applied as crawlers come home."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from sterna.archive.manifest import Snapshot
from sterna.errors import ConfigError, UsageError
from sterna.storage import config_file
from sterna.storage.config import Config
from sterna.storage.config_file import ConfigFile
from sterna.storage.connections import Database
from sterna.storage.functions import Functions
from sterna.storage.sink import Strand
from sterna.storage.status import NAME as STATUS_NAME
from sterna.storage.status import Board, Standing
from sterna.storage.worker import LOOK_SECONDS, Worker

_LEAVE_SECONDS = 5.0


def _silently(_text: str) -> None:
    pass


class Manager:
    """Applies the rules in `storage.toml`, which it reads again whenever it changes."""

    def __init__(
        self,
        folder: Path,
        *,
        collection: str,
        take: Callable[[], Snapshot],
        environ: Mapping[str, str],
        warn: Callable[[str], None] = _silently,
        only: str = "",
    ) -> None:
        """`take` gives a new snapshot of the collection with that id; with `only` just that rule counts."""
        self._folder = folder
        self._collection = collection
        self._take = take
        self._environ = environ
        self._warn = warn
        self._only = only
        self._file = ConfigFile(folder / config_file.NAME)
        self._board = Board(folder / STATUS_NAME)
        self._functions = Functions()
        # Changed by the one thread that calls catch_up().
        self._workers: list[Worker] = []
        self._left: list[Worker] = []  # asked to end, perhaps still in a transaction
        self._wanted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all work; what is not committed is left for another time."""
        self._leave_all()
        for worker in self._left:
            worker.join(_LEAVE_SECONDS)
        self._board.write(is_last=True)

    @property
    def batch(self) -> int:
        """Up to which all rules have caught up but those that cannot now."""
        reached = [batch for worker in self._workers if (batch := worker.batch()) is not None]
        return min(reached, default=self._wanted)

    def standings(self) -> list[Standing]:
        """How each rule stands."""
        return self._board.standings()

    def catch_up(self, snapshot: Snapshot, *, stop: threading.Event) -> None:
        """Returns when each database has all of the snapshot or cannot take it now, or when `stop` is set."""
        self._wanted = max(self._wanted, snapshot.batch)
        while not stop.is_set():
            self._look()
            self._board.write()
            if all(worker.is_settled(self._wanted) for worker in self._workers):
                return
            stop.wait(LOOK_SECONDS / 10)

    def forget(self) -> None:
        """Lets all that the rules ever stored be stored again."""
        for strand in self._strands(self._read()):
            strand.forget()
            strand.database.close()

    def _read(self) -> Config:
        self._file.look()
        if self._file.fault:
            raise ConfigError(self._file.fault)
        return self._file.config

    def _look(self) -> None:
        """Begins anew where the file changed; one that is broken changes nothing."""
        is_first = not self._workers and not self._left
        if not self._file.look() and not is_first:
            return
        self._board.note_fault(self._file.fault)
        if self._file.fault:
            if is_first:
                raise ConfigError(self._file.fault)
            self._warn(f"storage: {self._file.fault}: the rules from before still hold")
            return
        self._leave_all()
        strands = self._strands(self._file.config)
        self._board.keep_only({(strand.name, strand.database.name) for strand in strands})
        for database in dict.fromkeys(strand.database for strand in strands):
            of_it = [strand for strand in strands if strand.database is database]
            worker = Worker(database, of_it, take=self._take, board=self._board, warn=self._warn)
            self._workers.append(worker)
            worker.start()

    def _leave_all(self) -> None:
        for worker in self._workers:
            worker.close()
        self._left = [worker for worker in self._left if worker.is_alive()] + self._workers
        self._workers = []

    def _strands(self, config: Config) -> list[Strand]:
        """A strand for each rule and database; those of one database share it."""
        if self._only and self._only not in config.rules:
            known = ", ".join(config.rules) or "none"
            raise UsageError(f"there is no rule {self._only!r} in {self._file.path}: there is {known}")
        databases = {
            name: Database(name, spec, folder=self._folder, environ=self._environ)
            for name, spec in config.connections.items()
        }
        return [
            Strand(
                rule,
                config,
                databases[connection],
                collection=self._collection,
                folder=self._folder,
                functions=self._functions,
            )
            for rule in ([self._only] if self._only else config.rules)
            for connection in config.connections_of(rule)
        ]
