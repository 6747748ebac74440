"""Named connections to the user's databases, whose secrets are never shown, and their errors as faults."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError

from sterna.errors import SternaError
from sterna.query.terminal import harmless
from sterna.storage.config import ConnectionSpec

CONNECT_SECONDS = 10
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_HIDDEN = "***"
_IN_CALL = "sterna_in_call"  # in the info of a connection that a user's function holds
_IS_READER = "sterna_is_reader"

# -- faults ------------------------------------------------------------------------------------------------

_MAX_TEXT_CHARS = 300

# Classes of SQLSTATE. Of a row: invalid value (22), constraint (23, 44), too large for an index (54), raised
# by a trigger (P0). Of the server: connection (08), conflict (40), resources (53), a lock that was not had in
# the time that the user sets (55), shutdown (57).
_OF_ROWS = ("22", "23", "44", "54", "P0")
_OF_SERVER = ("08", "40", "53", "55", "57")
_WRONG_TYPE = "42804"  # of one value: that of another row may fit
_SQLITE_OF_SERVER = ("BUSY", "LOCKED", "FULL", "IOERR", "CANTOPEN", "READONLY", "NOMEM", "PROTOCOL")


class FaultKind(StrEnum):
    """What a fault concerns, which decides what to do."""

    DOWN = "down"  # the database: wait, it recovers by itself
    BROKEN = "broken"  # the rule: the user must correct a query, command or table
    REFUSED = "refused"  # one row: set it aside


class Fault(SternaError):
    """Why rows were not stored; one line."""

    def __init__(self, text: str, *, kind: FaultKind = FaultKind.BROKEN) -> None:
        super().__init__(text)
        self.kind = kind


class CallFailed(Exception):
    """A user's function raised an exception, which the text names."""


def fault_of(error: BaseException, *, hide: Callable[[str], str] = str, is_lost: bool = False) -> Fault:
    """The fault for an error; `is_lost` if the connection to the database is broken."""
    if isinstance(error, Fault):
        return error
    return Fault(hide(text_of(error)), kind=FaultKind.DOWN if is_lost else _kind(error))


def text_of(error: BaseException) -> str:
    """The error in one harmless line, without the statement and the values of the row."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines()
    text = harmless(" ".join((lines[0] if lines else "").split()))[:_MAX_TEXT_CHARS]
    return text if isinstance(cause, SternaError | CallFailed) else text or type(cause).__name__


def _kind(error: BaseException) -> FaultKind:
    cause: object = error
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return FaultKind.DOWN
        cause = error.orig
    if state := getattr(cause, "sqlstate", None):
        if state.startswith(_OF_ROWS) or state == _WRONG_TYPE:
            return FaultKind.REFUSED
        return FaultKind.DOWN if state.startswith(_OF_SERVER) else FaultKind.BROKEN
    if any(part in getattr(cause, "sqlite_errorname", "") for part in _SQLITE_OF_SERVER):
        return FaultKind.DOWN
    if isinstance(error, SternaError | SQLAlchemyError) and not isinstance(error, IntegrityError | DataError):
        return FaultKind.BROKEN
    # Drivers refuse some values with errors of Python's own: NUL, lone surrogates, numbers out of range.
    return FaultKind.REFUSED


# -- databases ---------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Database:
    """One database by its name; nothing is opened before the first connection."""

    name: str
    spec: ConnectionSpec
    _: KW_ONLY
    folder: Path
    environ: Mapping[str, str]
    connect_seconds: int = CONNECT_SECONDS
    # Both are made with the first connection.
    _engine: Engine | None = None
    _secrets: Sequence[str] = ()

    @property
    def kind(self) -> str:
        """The kind of database: postgresql, sqlite ..."""
        return self._open().dialect.name

    def shown(self) -> str:
        """Its address without secrets."""
        try:
            url, _ = self._url()
        except Fault:
            return _VARIABLE.sub(_HIDDEN, re.sub(r"//[^/@]*@", f"//{_HIDDEN}@", self.spec.url))
        return url.set(query={}).render_as_string(hide_password=True)

    @contextmanager
    def connect(self, *, is_reader: bool = False) -> Iterator[Connection]:
        """A connection in a transaction, which the end of the block commits and an error rolls back."""
        engine = self._open()
        try:
            connection = engine.connect().execution_options(**{_IS_READER: is_reader})
            connection.begin()
        except (DBAPIError, OSError) as error:
            raise fault_of(error, hide=self._hide, is_lost=True) from error
        with connection:
            try:
                yield connection
                connection.commit()
            except BaseException as error:
                fault = self.fault_of(error, connection)
                _give_up(connection)
                if isinstance(error, SQLAlchemyError):
                    raise fault from error
                raise

    def fault_of(self, error: BaseException, connection: Connection) -> Fault:
        return fault_of(error, hide=self._hide, is_lost=is_lost(connection))

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _open(self) -> Engine:
        if self._engine is None:
            url, secrets = self._url()
            forms = {form for secret in secrets for form in (secret, quote(secret, safe=""))}
            self._secrets = sorted(forms, key=len, reverse=True)
            try:
                self._engine = _engine(url, connect_seconds=self.connect_seconds)
            except ImportError as error:
                text = f"the driver of {url.drivername} is not installed: pip install {error.name}"
                raise Fault(text) from error
            except SQLAlchemyError as error:
                text = f"{str(error).splitlines()[0]}: see SQLAlchemy's list of drivers"
                raise Fault(self._hide(text)) from error
        return self._engine

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    def _url(self) -> tuple[URL, list[str]]:
        text, values = self._filled()
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            raise Fault(
                f"the url of connection {self.name!r} is malformed: "
                "write it like postgresql+psycopg://user:${PASSWORD}@host/database",
            ) from None
        if url.get_backend_name() == "sqlite":
            if url.database in (None, "", ":memory:"):
                raise Fault(f"connection {self.name!r} has no file: write it like sqlite:///pages.db")
            url = url.set(database=str(self.folder.absolute() / str(url.database)))
        of_query = [str(value) for value in url.query.values() if any(each in str(value) for each in values)]
        return url, [secret for secret in (url.password, *of_query) if secret]

    def _filled(self) -> tuple[str, list[str]]:
        """The address with its variables replaced from the environment, and their values."""
        values = []
        whole = _VARIABLE.fullmatch(self.spec.url)

        def fill(variable: re.Match[str]) -> str:
            value = self.environ.get(variable[1])
            if value is None:
                raise Fault(f"connection {self.name!r} needs the environment variable {variable[1]}: set it")
            values.append(value)
            # A password may contain characters with a meaning in addresses; a whole address is one already.
            return value if whole else quote(value, safe="")

        return _VARIABLE.sub(fill, self.spec.url), values


def is_lost(connection: Connection) -> bool:
    """True if the connection to the database is broken."""
    if connection.closed or connection.invalidated:
        return True
    driver: Any = connection.connection.driver_connection
    return bool(getattr(driver, "broken", False) or getattr(driver, "closed", False) is True)


@contextmanager
def in_call(connection: Connection) -> Iterator[None]:
    """While a user's function holds the connection: it must not end the transaction."""
    connection.info[_IN_CALL] = True
    try:
        yield
    finally:
        if not connection.invalidated:
            connection.info.pop(_IN_CALL, None)


def _give_up(connection: Connection) -> None:
    """Rolls everything back, whatever state the connection is in."""
    transaction = connection.get_transaction()
    if transaction is None or not transaction.is_active or is_lost(connection):
        connection.invalidate()
        return
    try:
        transaction.rollback()
    except SQLAlchemyError:
        connection.invalidate()


def _engine(url: URL, *, connect_seconds: int) -> Engine:
    backend = url.get_backend_name()
    arguments: dict[str, object] = {}
    if backend == "postgresql":
        # For each refused row it would log that the rest of the pipeline was not run.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
        arguments = {"connect_timeout": connect_seconds, "application_name": "sterna"}
    elif backend == "sqlite":
        # Python's own transactions for SQLite begin too late to protect what was read before.
        arguments = {"timeout": connect_seconds, "isolation_level": None}
    engine = create_engine(url, hide_parameters=True, pool_size=1, connect_args=arguments)
    if backend == "sqlite":
        event.listen(engine, "begin", _begin_at_once)
    for name in ("commit", "rollback"):
        event.listen(engine, name, _guard)
    return engine


def _begin_at_once(connection: Connection) -> None:
    is_reader = connection.get_execution_options().get(_IS_READER, False)
    connection.exec_driver_sql("BEGIN" if is_reader else "BEGIN IMMEDIATE")


def _guard(connection: Connection) -> None:
    if not connection.invalidated and connection.info.get(_IN_CALL):
        raise Fault("a function must neither commit nor roll back: Sterna ends the transaction")
