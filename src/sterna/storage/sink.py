"""One rule at one database: stores what comes in, batch after batch, each row exactly once."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from pathlib import Path

from sqlalchemy import Connection

from sterna.archive.manifest import Snapshot
from sterna.runtime.cell.confined import Confined
from sterna.storage import position
from sterna.storage.chunks import Chunk
from sterna.storage.commands import Command, Functions, command_of
from sterna.storage.config import Config
from sterna.storage.confined import read_chunks
from sterna.storage.connections import Database, Fault, FaultKind
from sterna.storage.position import Key, Position, RefusedRow, RefusedRows
from sterna.storage.postgres import NotApplicable
from sterna.storage.rows import Row, as_json, from_json

MAX_REFUSED = 10_000  # rows of a rule; with more of them something else is wrong, and the rule stops
_FAST_SECONDS = 1.0
_SLOW_SECONDS = 5.0
_FIRST_BATCHES = 8
_MOST_BATCHES = 4_096


class Stopped(Exception):
    """The caller asked to stop; the transaction is rolled back."""


class _TooMany(Fault):
    """The database refused so many rows that something else must be wrong."""


@dataclass(eq=False, repr=False)
class Sink:
    """The steps of a rule that go into one database; used by the thread of its worker alone."""

    name: str
    config: Config
    database: Database
    _: KW_ONLY
    collection: str
    folder: Path
    functions: Functions
    confined: Confined  # reads the archive

    def __post_init__(self) -> None:
        # As last read from the database; changed by the worker's thread.
        self.position = Position()
        self.refused = RefusedRows()
        self._is_known = False  # False: both must be read again
        self._rule = self.config.rules[self.name]
        self._key = Key(self.collection, self.name)
        self._calls: list[tuple[str, Path]] = []  # of the rule
        self._steps: dict[int, list[Command]] = {}  # the commands that go into this database
        for number, store in enumerate(self._rule.store):
            for each in store.commands:
                spec = self.config.commands[each]
                if spec.call:
                    self._calls.append((spec.call, self.folder / spec.folder))
                if spec.connection == self.database.name:
                    command = command_of(each, spec, folder=self.folder, functions=self.functions)
                    self._steps.setdefault(number, []).append(command)
        self._has_tables = False
        self._batches = _FIRST_BATCHES  # per transaction: as many as take about a second
        # The versions of the functions with which refused rows were tried last.
        self._seen: list[tuple[int, ...]] | None = None
        self._is_strict = False  # check deferred constraints at once, which shows the refused row

    def advance(self, snapshot: Snapshot, *, stop: threading.Event) -> bool:
        """Stores the next batches in one transaction; False if there are none."""
        known = self._read()
        if known.batch > snapshot.batch:
            raise Fault(
                f"the database has batch {known.batch}, the collection ends at {snapshot.batch}: if it was"
                f" restored from an older copy, run 'sterna storage replay DIR {self.name} --again'",
            )
        if known.batch == snapshot.batch:
            return False
        if self.refused.count >= MAX_REFUSED:
            raise Fault(
                f"the database refused {self.refused.count:,} rows, the last one: {self.refused.error}"
            )
        self._take_next(known, snapshot, stop=stop)
        return True

    def retry(self, *, stop: threading.Event) -> bool:
        """Tries refused rows again that are due; False if there are none."""
        known = self._read()
        versions = [self.functions.version(*call) for call in self._calls]
        is_new = versions != self._seen
        if not self.refused.count or not (is_new or position.is_due(self.refused.next_try, at=time.time())):
            self._seen = versions if not self.refused.count else self._seen
            return False
        with self.database.connect() as connection:
            position.claim(connection, self._key, known)
            if is_new:
                position.retry_at_once(connection, self._key)
            due = position.due(connection, self._key, at=time.time())
            stored = [row for row in due if self._is_stored_now(connection, row, stop=stop)]
            position.drop_refused(connection, self._key, [row.id for row in stored])
            position.move(connection, self._key, batch=known.batch, stored=len(stored))
        self._is_known, self._seen = False, versions
        self._read()
        return bool(due)

    def forget(self) -> None:
        """Resets the position, so that everything is stored again."""
        self._make_tables()
        with self.database.connect() as connection:
            position.forget(connection, self._key)
        self._is_known = False

    def refresh(self) -> None:
        """Reads the position from the database before the next step."""
        self._is_known = False

    # -- its position --------------------------------------------------------------------------------------

    def _read(self) -> Position:
        if not self._is_known:
            self._make_tables()
            with self.database.connect(is_reader=True) as connection:
                self.position = position.read(connection, self._key)
                self.refused = position.refused(connection, self._key)
            self._is_known = True
        return self.position

    def _make_tables(self) -> None:
        if self._has_tables:
            return
        try:
            with self.database.connect() as connection:
                position.make_tables(connection)
        except Fault as fault:
            with self.database.connect(is_reader=True) as connection:
                if not position.has_tables(connection):
                    raise fault from None
            # Another runner created them at the same moment.
        self._has_tables = True

    # -- storing -------------------------------------------------------------------------------------------

    def _take_next(self, known: Position, snapshot: Snapshot, *, stop: threading.Event) -> None:
        upto = min(snapshot.batch, max(known.batch, 0) + self._batches)  # batch 0 may be empty
        began = time.monotonic()
        is_postgres = self.database.kind == "postgresql"
        # They store whole columns as long as no row is refused.
        plain = [step for step, commands in self._steps.items() if all(each.is_plain for each in commands)]
        chunks = read_chunks(
            self.confined,
            self._rule,
            list(self._steps),
            snapshot=snapshot,
            after=known.batch,
            upto=upto,
            in_columns=plain if is_postgres else (),
        )
        try:
            with closing(chunks):
                stored, refused = self._store_all(chunks, known, upto=upto, stop=stop)
        except Fault as fault:
            self._batches = 1
            if isinstance(fault, _TooMany) and upto - max(known.batch, 0) > 1:
                return
            # Refused rows were set aside before the commit, so this is a deferred constraint.
            if fault.kind is not FaultKind.REFUSED or not is_postgres or self._is_strict:
                raise
            self._is_strict = True
            return
        self.position = Position(upto, known.stored + stored, time.time())
        self._is_known = not refused
        seconds = time.monotonic() - began
        if seconds < _FAST_SECONDS:
            self._batches = min(self._batches * 4, _MOST_BATCHES)
        elif seconds > _SLOW_SECONDS:
            self._batches = max(self._batches // 2, 1)

    def _store_all(
        self, chunks: Iterator[Chunk], known: Position, *, upto: int, stop: threading.Event
    ) -> tuple[int, int]:
        """The number of rows stored and refused, in one transaction."""
        first = next(chunks, None)  # before the transaction: the lock is not held while the query runs
        stored = refused = 0
        with self.database.connect() as connection:
            position.claim(connection, self._key, known)
            if self._is_strict:
                connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
            for chunk in chain([first] if first else [], chunks):
                if stop.is_set():
                    raise Stopped
                commands = self._steps[chunk.step]
                aside = [
                    RefusedRow(
                        step=chunk.step,
                        batch=chunk.batch,
                        row_json=as_json(dict(zip(chunk.columns, row, strict=True))),
                        error=error,
                    )
                    for row, error in self._store(commands, connection, chunk.columns, chunk.rows)
                ]
                position.set_aside(connection, self._key, aside)
                stored += len(chunk.rows) - len(aside)
                refused += len(aside)
                if refused > MAX_REFUSED:
                    text = f"the database refused more than {MAX_REFUSED:,} rows: {aside[-1].error}"
                    raise _TooMany(text)
            position.move(connection, self._key, batch=upto, stored=stored)
        return stored, refused

    def _is_stored_now(self, connection: Connection, row: RefusedRow, *, stop: threading.Event) -> bool:
        if stop.is_set():
            raise Stopped
        values = from_json(row.row_json)
        columns, commands = tuple(values), self._steps.get(row.step, [])
        error = "" if commands else f"the rule no longer has a store {row.step + 1}"
        try:
            # A row of an earlier query may lack what the command needs now; only this row keeps waiting.
            for command in commands:
                command.check(columns)
        except Fault as fault:
            error = str(fault)
        else:
            for _, reason in self._store(commands, connection, columns, [tuple(values.values())]):
                error = reason
        if error:
            position.wait_longer(connection, self._key, row, error=error)
        return not error

    def _store(
        self, commands: Sequence[Command], connection: Connection, columns: Sequence[str], rows: Sequence[Row]
    ) -> Iterator[tuple[Row, str]]:
        """Stores the rows; gives those that the database refuses, with the reason."""
        savepoint = connection.begin_nested()
        try:
            for command in commands:
                command.run(connection, columns, rows)
            savepoint.commit()
            return
        except NotApplicable:
            savepoint.rollback()
            yield from self._store(commands, connection, columns, rows)
            return
        except Exception as error:
            fault = self.database.fault_of(error, connection)
            if fault.kind is not FaultKind.REFUSED:
                raise fault from error
            savepoint.rollback()
        if len(rows) == 1:
            yield rows[0], str(fault)
            return
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            yield from self._store(commands, connection, columns, half)
