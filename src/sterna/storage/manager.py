"""The archive manager (Fiedler-Hammer 4.7.3): applies a collection's storage rules while crawlers come home.

Each database has a worker with a thread of its own, so that one that does not answer delays no other.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Self

from sterna.archive.manifest import Snapshot
from sterna.errors import ConfigError, JailError, SternaError, UsageError
from sterna.runtime.cell.confined import Confined
from sterna.storage import config
from sterna.storage.commands import Functions
from sterna.storage.config import Config, ConfigFile
from sterna.storage.connections import Database, Fault, FaultKind, fault_of
from sterna.storage.position import PositionMoved, delay
from sterna.storage.sink import Sink, Stopped
from sterna.storage.status import NAME as STATUS_NAME
from sterna.storage.status import Board, Standing

LOOK_SECONDS = 0.5  # between two checks for new batches
FIRST_SECONDS = 0.5
LONGEST_SECONDS = 60.0
HANGS_SECONDS = 20.0  # without progress, after which a database counts as hanging
_MOST_DEATHS = 3
_FRESH_SECONDS = 20.0  # age of a snapshot, whose files compaction may remove after two minutes
_LEAVE_SECONDS = 5.0


@dataclass(eq=False, repr=False)
class Manager:
    """Applies the rules in `storage.toml`, which it reads again when it changes."""

    folder: Path
    _: KW_ONLY
    collection: str
    segments: Path  # the folder of what is stored
    take: Callable[[], Snapshot]  # gives a new snapshot of the collection
    environ: Mapping[str, str]
    warn: Callable[[str], None] = lambda _text: None
    only: str = ""  # the one rule to apply, if any

    def __post_init__(self) -> None:
        self._file = ConfigFile(self.folder / config.NAME)
        self._board = Board(self.folder / STATUS_NAME)
        self._functions = Functions()
        self._confined = Confined(self.segments)
        # Changed by the thread that calls catch_up().
        self._workers: list[Worker] = []
        self._left: list[Worker] = []  # asked to end, possibly still in a transaction
        self._wanted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all work; the next run stores what is not committed."""
        self._leave_all()
        for worker in self._left:
            worker.join(_LEAVE_SECONDS)
        self._confined.close()
        self._board.write(is_last=True)

    @property
    def batch(self) -> int:
        """The batch that all rules have reached, apart from those in trouble."""
        reached = [batch for worker in self._workers if (batch := worker.batch()) is not None]
        return min(reached, default=self._wanted)

    def standings(self) -> list[Standing]:
        return self._board.standings()

    def catch_up(self, snapshot: Snapshot, *, stop: threading.Event) -> None:
        """Returns when each database has the whole snapshot or is in trouble, or when `stop` is set."""
        self._wanted = max(self._wanted, snapshot.batch)
        while not stop.is_set():
            self._look()
            for worker in self._workers:
                worker.report_if_hanging(self._wanted)
            self._board.write()
            if all(worker.is_settled(self._wanted) for worker in self._workers):
                return
            stop.wait(LOOK_SECONDS / 10)

    def is_left(self, batch: int) -> bool:
        """Whether a rule has not reached this batch, which may be because of its database."""
        return any(sink.position.batch < batch for worker in self._workers for sink in worker.sinks)

    def forget(self) -> None:
        """Resets the rules, so that everything is stored again."""
        self._file.look()
        if self._file.fault:
            raise ConfigError(self._file.fault)
        for sink in self._make_sinks(self._file.config):
            sink.forget()
            sink.database.close()

    def _look(self) -> None:
        """Starts new workers if the file changed; a malformed file changes nothing."""
        is_first = not self._workers and not self._left
        if not self._file.look() and not is_first:
            return
        self._board.fault = self._file.fault
        if self._file.fault:
            if is_first:
                raise ConfigError(self._file.fault)
            self.warn(f"storage: {self._file.fault}: the previous rules stay in force")
            return
        self._leave_all()
        sinks = self._make_sinks(self._file.config)
        self._board.keep_only({(sink.name, sink.database.name) for sink in sinks})
        for database in dict.fromkeys(sink.database for sink in sinks):
            of_it = [sink for sink in sinks if sink.database is database]
            worker = Worker(database, of_it, take=self.take, board=self._board, warn=self.warn)
            self._workers.append(worker)

    def _leave_all(self) -> None:
        for worker in self._workers:
            worker.close()
        self._left = [worker for worker in self._left if worker.is_alive()] + self._workers
        self._workers = []

    def _make_sinks(self, config: Config) -> list[Sink]:
        """A sink for each rule and database; those of one database share its connection."""
        if self.only and self.only not in config.rules:
            known = ", ".join(config.rules) or "none"
            raise UsageError(f"{self._file.path} has no rule {self.only!r} (defined: {known})")
        databases = {
            name: Database(name, spec, folder=self.folder, environ=self.environ)
            for name, spec in config.connections.items()
        }
        make = partial(
            Sink,
            collection=self.collection,
            folder=self.folder,
            functions=self._functions,
            confined=self._confined,
        )
        return [
            make(rule, config, databases[connection])
            for rule in ([self.only] if self.only else config.rules)
            for connection in config.connections_of(rule)
        ]


# -- one database ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rest:
    """The pause after failures; changed by the worker's thread."""

    until: float = 0.0  # by the monotonic clock
    failures: int = 0
    deaths: int = 0  # in a row, of the process that reads: the rows are read again at once


@dataclass(eq=False, repr=False)
class Worker:
    """Runs the rules of one database in turn, in a thread of its own, until it is closed."""

    database: Database
    sinks: Sequence[Sink]
    _: KW_ONLY
    take: Callable[[], Snapshot]
    board: Board
    warn: Callable[[str], None]

    def __post_init__(self) -> None:
        self._closing = threading.Event()
        # Changed by its own thread.
        self._settled = -1  # the last batch after which nothing was left to do
        self._beat = time.monotonic()
        self._rests = {sink.name: _Rest() for sink in self.sinks}
        self._rest = _Rest()  # of the database
        self._was_reported = False  # as hanging; changed by report_if_hanging()
        self._snapshot: tuple[float, Snapshot] | None = None  # reused while there is work
        self._thread = threading.Thread(target=self._run, name=f"storage-{self.database.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Asks the thread to end; the transaction in progress is rolled back."""
        self._closing.set()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Waits for its end, at most this long: the database may hang."""
        self._thread.join(seconds)
        if not self._thread.is_alive():
            self.database.close()

    def is_settled(self, batch: int) -> bool:
        """True if this batch is stored, or cannot be stored now."""
        return self._settled >= batch or self._hangs or not self.is_alive()

    @property
    def _hangs(self) -> bool:
        return time.monotonic() - self._beat > HANGS_SECONDS

    def report_if_hanging(self, batch: int) -> None:
        """Says once that the database does not answer; its rules count as down until it does."""
        if self._was_reported or not self._hangs or self._settled >= batch:
            return
        self._was_reported = True
        why = f"no progress for {HANGS_SECONDS:g} seconds: does another session hold a lock on its tables?"
        self.warn(f"storage: connection {self.database.name!r}: {why}")
        for sink in self.sinks:
            self._note(sink, batch, state=FaultKind.DOWN, error=why)

    def batch(self) -> int | None:
        """The batch that its rules have reached, apart from those in trouble; None if all are."""
        if self._rest.failures:
            return None
        reached = [sink.position.batch for sink in self.sinks if not self._rests[sink.name].failures]
        return min(reached, default=None)

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._beat = time.monotonic()
                if not self._turn():
                    self._closing.wait(LOOK_SECONDS)
        except Exception as error:
            self.warn(f"storage: connection {self.database.name!r} ended: {type(error).__name__}: {error}")
            raise

    def _turn(self) -> bool:
        """One transaction of each rule; True if something moved."""
        now = time.monotonic()
        if self._snapshot is None or now - self._snapshot[0] > _FRESH_SECONDS:
            try:
                self._snapshot = (now, self.take())
            except SternaError as error:  # the ledger does not exist yet, or the disk fails
                self.warn(f"storage: {error}")
                return False
        snapshot = self._snapshot[1]
        moved = [self._step(sink, snapshot) for sink in self.sinks if not self._is_resting(sink)]
        if not any(moved):
            self._settled = snapshot.batch
            self._snapshot = None
        return any(moved)

    def _step(self, sink: Sink, snapshot: Snapshot) -> bool:
        if self._closing.is_set():
            return False
        try:
            is_retried = sink.retry(stop=self._closing)
            moved = sink.advance(snapshot, stop=self._closing) or is_retried
        except PositionMoved:
            sink.refresh()
            return True
        except Stopped:
            return False
        except SternaError as error:
            sink.refresh()
            if self._is_tried_again(error, sink, snapshot):
                return True
            self._note_trouble(sink, snapshot, fault_of(error))
            return False
        self._rest, self._rests[sink.name] = _Rest(), _Rest()
        self._note(sink, snapshot.batch)
        self._beat = time.monotonic()
        return moved

    def _is_tried_again(self, error: SternaError, sink: Sink, snapshot: Snapshot) -> bool:
        """True if the rows should be read again at once."""
        if self._is_outdated(snapshot):
            self._snapshot = None
            return True
        rest = self._rests[sink.name]
        rest.deaths += isinstance(error, JailError)
        return isinstance(error, JailError) and rest.deaths <= _MOST_DEATHS

    def _is_outdated(self, snapshot: Snapshot) -> bool:
        """True if compaction removed files of the snapshot: a new one names the merged files."""
        paths = {path for table in snapshot.tables.values() for path in table}
        gone = {path for path in paths if not path.exists()}
        with suppress(SternaError):  # of the ledger: the next turn reports it
            return bool(gone) and gone.isdisjoint(chain.from_iterable(self.take().tables.values()))
        return False

    def _is_resting(self, sink: Sink) -> bool:
        return max(self._rest.until, self._rests[sink.name].until) > time.monotonic()

    def _note_trouble(self, sink: Sink, snapshot: Snapshot, fault: Fault) -> None:
        is_down = fault.kind is FaultKind.DOWN
        rest = self._rest if is_down else self._rests[sink.name]
        rest.failures += 1
        seconds = delay(rest.failures, first=FIRST_SECONDS, longest=LONGEST_SECONDS)
        rest.until = time.monotonic() + seconds
        for each in self.sinks if is_down else [sink]:
            state = FaultKind.DOWN if is_down else FaultKind.BROKEN
            is_news = self._note(
                each, snapshot.batch, state=state, error=str(fault), next_try=time.time() + seconds
            )
            if is_news and each is sink:
                what = f"connection {self.database.name!r}" if is_down else f"rule {sink.name!r}"
                self.warn(f"storage: {what}: {fault}")

    def _note(
        self, sink: Sink, of: int, *, state: str = "ok", error: str = "", next_try: float = 0.0
    ) -> bool:
        return self.board.note(
            Standing(
                rule=sink.name,
                connection=self.database.name,
                state=state,
                batch=sink.position.batch,
                of=of,
                stored=sink.position.stored,
                waiting=sink.refused.count,
                error=error,
                since=time.time() if error else 0.0,
                next_try=next_try,
            )
        )
