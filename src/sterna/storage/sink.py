"""One rule at one database: what came is stored batch after batch, each row exactly once."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

from sqlalchemy import Connection

from sterna.archive.manifest import Snapshot
from sterna.storage import position
from sterna.storage.chunks import Piece, pieces
from sterna.storage.commands import Command, command_of
from sterna.storage.config import Config
from sterna.storage.connections import Database
from sterna.storage.faults import Fault, Kind
from sterna.storage.functions import Functions
from sterna.storage.position import Key, Position, Waiting, WaitingRow
from sterna.storage.postgres import NotThisWay
from sterna.storage.rows import Row, as_json, from_json

MAX_WAITING = 10_000  # rows of a rule: with more of them something else is wrong, and the rule stands still
_QUICK_SECONDS = 1.0
_SLOW_SECONDS = 5.0
_FIRST_BATCHES = 8
_MOST_BATCHES = 4_096

Versions = list[tuple[int, ...]]


class Stopped(Exception):
    """Whoever asked for the work does not want it any more."""


class _TooMany(Fault):
    """So many rows were refused that something else must be wrong."""

    def __init__(self, error: str) -> None:
        super().__init__(Kind.BROKEN, f"more than {MAX_WAITING:,} rows were refused: {error}")


class Strand:
    """The steps of a rule that go into one database; only its worker's thread uses it."""

    def __init__(
        self,
        name: str,
        config: Config,
        database: Database,
        *,
        collection: str,
        folder: Path,
        functions: Functions,
    ) -> None:
        self.name = name
        self.database = database
        # As last seen: how far it has come, and the rows that were refused.
        self.position = Position()
        self.waiting = Waiting()
        self._rule = config.rules[name]
        self._key = Key(collection, name)
        self._steps = _steps(name, config, database.name, folder=folder, functions=functions)
        self._versions = _Versions(name, config, folder=folder, functions=functions)
        # What is known of the database; None: to be read there.
        self._known: Position | None = None
        self._has_tables = False
        self._batches = _FIRST_BATCHES  # how many to take in one transaction: as many as go in about a second
        self._seen: Versions | None = None  # of functions, when refused rows were tried with them
        self._is_strict = False  # deferred constraints are checked at once: it shows which row is refused

    def advance(self, snapshot: Snapshot, *, stop: threading.Event) -> bool:
        """Stores what comes next in one transaction; False if there is nothing more."""
        known = self._read()
        if known.batch > snapshot.batch:
            raise Fault(
                Kind.BROKEN,
                f"the database has batch {known.batch} of a collection that has only {snapshot.batch}: was it"
                f" restored from an older copy? 'sterna storage replay DIR {self.name} --again' begins anew",
            )
        if known.batch == snapshot.batch:
            return False
        if self.waiting.count >= MAX_WAITING:
            text = f"{self.waiting.count:,} rows were refused, the last one: {self.waiting.error}"
            raise Fault(Kind.BROKEN, text)
        self._take_next(known, snapshot, stop=stop)
        return True

    def retry(self, *, stop: threading.Event) -> bool:
        """Tries rows again that were refused, if their time has come; False if there is none."""
        known, versions = self._read(), self._versions.now()
        is_new = versions != self._seen
        if not self.waiting.count or not (is_new or time.time() >= self.waiting.next_try):
            self._seen = versions if not self.waiting.count else self._seen
            return False
        with self.database.connect() as connection:
            position.claim(connection, self._key, known)
            if is_new:
                position.retry_at_once(connection, self._key)
            due = position.due(connection, self._key, at=time.time())
            stored = [row for row in due if self._is_stored_now(connection, row, stop=stop)]
            position.drop_waiting(connection, self._key, [row.id for row in stored])
            position.move(connection, self._key, batch=known.batch, stored=len(stored))
        self._known, self._seen = None, versions
        self._read()
        return bool(due)

    def forget(self) -> None:
        """Lets everything be stored again."""
        self._make_tables()
        with self.database.connect() as connection:
            position.forget(connection, self._key)
        self._known = None

    def look_again(self) -> None:
        """What is known of the database may no longer hold."""
        self._known = None

    # -- how far it is -------------------------------------------------------------------------------------

    def _read(self) -> Position:
        if self._known is None:
            self._make_tables()
            with self.database.connect(is_reader=True) as connection:
                self._known = self.position = position.read(connection, self._key)
                self.waiting = position.waiting(connection, self._key)
        return self._known

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
            # Another runner made them at the same moment.
        self._has_tables = True

    # -- what comes next -----------------------------------------------------------------------------------

    def _take_next(self, known: Position, snapshot: Snapshot, *, stop: threading.Event) -> None:
        upto = min(snapshot.batch, max(known.batch, 0) + self._batches)  # there may be nothing in batch 0
        began = time.monotonic()
        answers = pieces(
            self._rule,
            list(self._steps),
            snapshot=snapshot,
            after=known.batch,
            upto=upto,
            in_columns=self._steps_in_columns(),
        )
        try:
            with closing(answers):
                stored, refused = self._store_all(answers, known, upto=upto, stop=stop)
        except Fault as fault:
            is_one = upto - max(known.batch, 0) == 1
            self._batches = 1
            if isinstance(fault, _TooMany) and not is_one:
                return
            # Rows are set aside before the commit: what it refuses is a constraint that was deferred.
            if fault.kind is not Kind.REFUSED or self.database.kind != "postgresql" or self._is_strict:
                raise
            self._is_strict = True
            return
        self.position = Position(upto, known.stored + stored, time.time())
        self._known = None if refused else self.position
        self._adapt(time.monotonic() - began)

    def _steps_in_columns(self) -> list[int]:
        """The steps whose rows nobody needs one by one as long as none is refused."""
        if self.database.kind != "postgresql":
            return []
        return [step for step, commands in self._steps.items() if all(each.is_plain for each in commands)]

    def _store_all(
        self, answers: Iterator[Piece], known: Position, *, upto: int, stop: threading.Event
    ) -> tuple[int, int]:
        """How many rows were stored and refused, in one transaction."""
        first = next(answers, None)  # before the transaction: nobody waits for the query with a lock
        stored = refused = 0
        with self.database.connect() as connection:
            position.claim(connection, self._key, known)
            if self._is_strict:
                connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
            for piece in chain([first] if first else [], answers):
                if stop.is_set():
                    raise Stopped
                aside = self._store(connection, piece)
                position.keep_waiting(connection, self._key, aside)
                stored += len(piece.rows) - len(aside)
                refused += len(aside)
                if refused > MAX_WAITING:
                    raise _TooMany(aside[-1].error if aside else "")
            position.move(connection, self._key, batch=upto, stored=stored)
        return stored, refused

    def _store(self, connection: Connection, piece: Piece) -> list[WaitingRow]:
        """The rows that were refused."""
        refused = _refused(
            self._steps[piece.step], connection, piece.columns, piece.rows, database=self.database
        )
        return [
            WaitingRow(
                id="",
                step=piece.step,
                batch=piece.batch,
                row_json=as_json(dict(zip(piece.columns, row, strict=True))),
                error=error,
            )
            for row, error in refused
        ]

    def _is_stored_now(self, connection: Connection, row: WaitingRow, *, stop: threading.Event) -> bool:
        if stop.is_set():
            raise Stopped
        values = from_json(row.row_json)
        columns, commands = tuple(values), self._steps.get(row.step, [])
        error = "" if commands else f"the rule has no store {row.step + 1} any more"
        try:
            # A row of an earlier query may lack what the command asks for now: only this one waits on.
            for command in commands:
                command.check(columns)
        except Fault as fault:
            error = str(fault)
        else:
            rows = [tuple(values.values())]
            for _, reason in _refused(commands, connection, columns, rows, database=self.database):
                error = reason
        if error:
            position.wait_longer(connection, self._key, row, error=error)
        return not error

    def _adapt(self, seconds: float) -> None:
        if seconds < _QUICK_SECONDS:
            self._batches = min(self._batches * 4, _MOST_BATCHES)
        elif seconds > _SLOW_SECONDS:
            self._batches = max(self._batches // 2, 1)


class _Versions:
    """What differs when the file of one of a rule's functions was changed."""

    def __init__(self, rule: str, config: Config, *, folder: Path, functions: Functions) -> None:
        names = {name for store in config.rules[rule].store for name in store.commands}
        self._calls = [
            (spec.call, folder / spec.folder)
            for name in sorted(names)
            if (spec := config.commands[name]).call
        ]
        self._functions = functions

    def now(self) -> Versions:
        return [self._functions.version(call, folder) for call, folder in self._calls]


def _steps(
    rule: str, config: Config, connection: str, *, folder: Path, functions: Functions
) -> dict[int, list[Command]]:
    """The commands of each step that go into one database; steps that have none are left out."""
    steps = {
        number: [
            command_of(name, spec, folder=folder, functions=functions)
            for name in store.commands
            if (spec := config.commands[name]).connection == connection
        ]
        for number, store in enumerate(config.rules[rule].store)
    }
    return {number: commands for number, commands in steps.items() if commands}


def _refused(
    commands: Sequence[Command],
    connection: Connection,
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    database: Database,
) -> Iterator[tuple[Row, str]]:
    """Stores the rows; those that the database refuses, each with its reason, leave nothing behind."""
    savepoint = connection.begin_nested()
    try:
        for command in commands:
            command.run(connection, columns, rows)
        savepoint.commit()
        return
    except NotThisWay:
        savepoint.rollback()
        yield from _refused(commands, connection, columns, rows, database=database)
        return
    except Exception as error:
        fault = database.fault_of(error, connection)
        if fault.kind is not Kind.REFUSED:
            raise fault from error
        savepoint.rollback()
    if len(rows) == 1:
        yield rows[0], str(fault)
        return
    middle = len(rows) // 2
    for half in (rows[:middle], rows[middle:]):
        yield from _refused(commands, connection, columns, half, database=database)
