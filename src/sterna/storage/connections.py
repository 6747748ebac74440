"""Named connections to the user's databases, made on demand; secrets are of the environment and not shown."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from sterna.storage.config import ConnectionSpec
from sterna.storage.faults import Fault, Kind, fault_of

CONNECT_SECONDS = 10
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_HIDDEN = "***"
_IN_CALL = "sterna_in_call"  # in the info of a connection that a user's function holds
_IS_READER = "sterna_is_reader"


class Database:
    """One database by its name; nothing is opened by naming it."""

    def __init__(
        self,
        name: str,
        spec: ConnectionSpec,
        *,
        folder: Path,
        environ: Mapping[str, str],
        connect_seconds: int = CONNECT_SECONDS,
    ) -> None:
        self.name = name
        self._spec = spec
        self._folder = folder
        self._environ = environ
        self._connect_seconds = connect_seconds
        # Both are made with the first connection.
        self._engine: Engine | None = None
        self._hide: Callable[[str], str] = str

    @property
    def kind(self) -> str:
        """What the database is: postgresql, sqlite ..."""
        return self._open().dialect.name

    def shown(self) -> str:
        """Its address without secrets."""
        try:
            url, _ = self._url()
        except Fault:
            return _VARIABLE.sub(_HIDDEN, re.sub(r"//[^/@]*@", f"//{_HIDDEN}@", self._spec.url))
        return url.set(query={}).render_as_string(hide_password=True)

    @contextmanager
    def connect(self, *, is_reader: bool = False) -> Iterator[Connection]:
        """A connection in a transaction, which the end of the block commits and an error rolls back."""
        connection = self._begun(is_reader=is_reader)
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
        """The fault that an error of this connection stands for."""
        return fault_of(error, hide=self._hide, is_lost=is_lost(connection))

    def close(self) -> None:
        """Ends all connections."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _begun(self, *, is_reader: bool) -> Connection:
        engine = self._open()
        try:
            connection = engine.connect().execution_options(**{_IS_READER: is_reader})
            connection.begin()
        except (DBAPIError, OSError) as error:
            raise fault_of(error, hide=self._hide, is_lost=True) from error
        return connection

    def _open(self) -> Engine:
        if self._engine is None:
            url, secrets = self._url()
            self._hide = _hider(secrets)
            try:
                self._engine = _engine(url, connect_seconds=self._connect_seconds)
            except ImportError as error:
                text = f"the driver of {url.drivername} is not installed: pip install {error.name}"
                raise Fault(Kind.BROKEN, text) from error
            except SQLAlchemyError as error:
                raise Fault(Kind.BROKEN, self._hide(_words(error))) from error
        return self._engine

    def _url(self) -> tuple[URL, list[str]]:
        text, values = self._filled()
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            raise Fault(
                Kind.BROKEN,
                f"the url of connection {self.name!r} cannot be read: "
                "write it like postgresql+psycopg://user:${PASSWORD}@host/database",
            ) from None
        if url.get_backend_name() == "sqlite":
            if url.database in (None, "", ":memory:"):
                text = f"connection {self.name!r} has no file: write it like sqlite:///pages.db"
                raise Fault(Kind.BROKEN, text)
            url = url.set(database=str(self._folder.absolute() / str(url.database)))
        of_query = [str(value) for value in url.query.values() if any(each in str(value) for each in values)]
        return url, [secret for secret in (url.password, *of_query) if secret]

    def _filled(self) -> tuple[str, list[str]]:
        """The address with what the environment has, and what that is."""
        values = []
        whole = _VARIABLE.fullmatch(self._spec.url)

        def fill(variable: re.Match[str]) -> str:
            value = self._environ.get(variable[1])
            if value is None:
                needs = f"connection {self.name!r} needs {variable[1]}"
                raise Fault(Kind.BROKEN, f"{needs}, which the environment does not have: set it")
            values.append(value)
            # A password may hold what has a meaning in an address; a whole address is one.
            return value if whole else quote(value, safe="")

        return _VARIABLE.sub(fill, self._spec.url), values


def is_lost(connection: Connection) -> bool:
    """True if the line to the database is gone."""
    if connection.closed or connection.invalidated:
        return True
    driver: Any = connection.connection.driver_connection
    return bool(getattr(driver, "broken", False) or getattr(driver, "closed", False) is True)


@contextmanager
def in_call(connection: Connection) -> Iterator[None]:
    """While a user's function has the connection: it must not end the transaction."""
    connection.info[_IN_CALL] = True
    try:
        yield
    finally:
        if not connection.invalidated:
            connection.info.pop(_IN_CALL, None)


def _give_up(connection: Connection) -> None:
    """Nothing of what was done stays, whatever state the connection is in."""
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
        # Each row that is refused makes it say that the rest of its pipeline was not run.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
        arguments = {"connect_timeout": connect_seconds, "application_name": "sterna"}
    elif backend == "sqlite":
        arguments = {"timeout": connect_seconds}
    engine = create_engine(url, hide_parameters=True, pool_size=1, connect_args=arguments)
    if backend == "sqlite":
        event.listen(engine, "connect", _leave_transactions)
        event.listen(engine, "begin", _begin_at_once)
    for name in ("commit", "rollback"):
        event.listen(engine, name, _guard)
    return engine


def _leave_transactions(driver: Any, _record: object) -> None:
    # Python's own transactions for SQLite begin too late to guard what was read before.
    driver.isolation_level = None


def _begin_at_once(connection: Connection) -> None:
    is_reader = connection.get_execution_options().get(_IS_READER, False)
    connection.exec_driver_sql("BEGIN" if is_reader else "BEGIN IMMEDIATE")


def _guard(connection: Connection) -> None:
    if not connection.invalidated and connection.info.get(_IN_CALL):
        raise Fault(Kind.BROKEN, "a function must neither commit nor roll back: Sterna ends the transaction")


def _hider(secrets: list[str]) -> Callable[[str], str]:
    written = sorted({form for secret in secrets for form in (secret, quote(secret, safe=""))}, key=len)

    def hide(text: str) -> str:
        for secret in reversed(written):
            text = text.replace(secret, _HIDDEN)
        return text

    return hide


def _words(error: SQLAlchemyError) -> str:
    return f"{str(error).splitlines()[0]}: see which drivers SQLAlchemy has"
