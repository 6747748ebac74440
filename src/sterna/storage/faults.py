"""How a database or a user's function says no, sorted by what is to be done: wait, mend or set aside."""

from collections.abc import Callable
from enum import StrEnum

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from sterna.errors import SternaError
from sterna.query.terminal import harmless

_TEXT_LENGTH = 300

# PostgreSQL's classes of errors: the value is wrong (22), a constraint (23, 44), too large for an index (54),
# what a trigger raises (P0); and where the server is not itself (08, 53, 57) or another was quicker (40).
_OF_ROWS = ("22", "23", "44", "54", "P0")
_OF_SERVER = ("08", "40", "53", "57")
_WRONG_TYPE = "42804"  # of one value: another row's may fit
_SQLITE_OF_SERVER = ("BUSY", "LOCKED", "FULL", "IOERR", "CANTOPEN", "READONLY", "NOMEM", "PROTOCOL")


class Kind(StrEnum):
    """Whom a fault concerns."""

    DOWN = "down"  # the database: it will come again by itself
    BROKEN = "broken"  # the rule: a query, command or table that must be mended
    REFUSED = "refused"  # one row


class Fault(SternaError):
    """Why rows were not stored; one line."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class CallFailed(Exception):
    """A user's function raised something; its text says what."""


def fault_of(error: BaseException, *, hide: Callable[[str], str] = str, is_lost: bool = False) -> Fault:
    """The fault that an error stands for; `is_lost` where the line to the database is gone."""
    if isinstance(error, Fault):
        return error
    kind = Kind.DOWN if is_lost else _kind(error)
    return Fault(kind, hide(text_of(error)))


def text_of(error: BaseException) -> str:
    """The error in one harmless line, without the statement and the values of the row."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines()
    text = harmless(" ".join((lines[0] if lines else "").split()))[:_TEXT_LENGTH]
    if isinstance(cause, SternaError | CallFailed):
        return text
    return text or type(cause).__name__


def _kind(error: BaseException) -> Kind:
    if isinstance(error, DBAPIError):
        return Kind.DOWN if error.connection_invalidated else _kind_of_driver(error)
    if isinstance(error, SternaError | SQLAlchemyError):
        return Kind.BROKEN
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return _kind_of_state(state)
    # A driver says of some values with Python's own errors that they cannot be: NUL, surrogates, too large.
    return Kind.REFUSED


def _kind_of_driver(error: DBAPIError) -> Kind:
    state = getattr(error.orig, "sqlstate", None)
    if state:
        return _kind_of_state(state)
    name = getattr(error.orig, "sqlite_errorname", "")
    if any(part in name for part in _SQLITE_OF_SERVER):
        return Kind.DOWN
    return Kind.REFUSED if isinstance(error, IntegrityError | DataError) else Kind.BROKEN


def _kind_of_state(state: str) -> Kind:
    if state.startswith(_OF_ROWS) or state == _WRONG_TYPE:
        return Kind.REFUSED
    return Kind.DOWN if state.startswith(_OF_SERVER) else Kind.BROKEN
