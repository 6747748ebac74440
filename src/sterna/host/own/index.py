"""The index of the own site: one SQLite file with its pages, their true dates, changes and words."""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sterna.errors import StorageError, UsageError
from sterna.host.own import schema
from sterna.host.site.closed import Closed
from sterna.model import Record
from sterna.web.sitemap_file import Listed
from sterna.web.sqlite import connect, translated, version_of

NAME = "own.sqlite"  # in the folder of state
MAX_PAGES = 1_000_000  # of a survey, unless its owner says otherwise
OPEN = Closed()  # to everybody, as far as the policy goes
CACHE_KIB = 4 * 1024  # a host is small
NO_INDEX = "there is no index of the site in {}: make it with 'sterna host index --site URL'"
_ADVICE = {
    "fts5": "the SQLite of this Python cannot search, use another Python",
    "malformed": "delete it and run 'sterna host index' again",
    "not a database": "delete it and run 'sterna host index' again",
}


class Survey(Record, frozen=True, array_like=False):
    """One look at the whole site, and what it found."""

    number: int
    began: float
    ended: float | None
    is_whole: bool
    requests: int
    pages: int
    created: int
    updated: int
    deleted: int


class Change(Record, frozen=True, array_like=False):
    """What became of a page, and when."""

    n: int
    url: str
    title: str
    kind: str  # created, updated, deleted
    at: float
    told: float
    created: float | None = None


class Index:
    """One connection to the file; used by one thread at a time."""

    def __init__(self, state: Path, *, site: str = "") -> None:
        """Opens it to be read; with a site also to be written, and makes it if need be."""
        self._path = state / NAME
        if not site and not self._path.exists():
            raise UsageError(NO_INDEX.format(state))
        with self._translated():
            self.connection = self._connect(is_reader=not site)
        try:
            with self._translated():
                self._prepare(site) if site else self._check_version()
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        """Gives the file back."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, whenever the process is killed."""
        with self._translated():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                self.connection.rollback()
                raise

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """The index as it is now, for as long as it is read."""
        with self._translated():
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            finally:
                self.connection.rollback()

    def site(self) -> str:
        """The site whose index it is."""
        with self._translated():
            return str(self.connection.execute("SELECT site FROM about").fetchone()[0])

    def last_survey(self, *, is_over: bool = True) -> Survey | None:
        """The last survey that ended; or whichever was last."""
        where = "WHERE ended IS NOT NULL" if is_over else ""
        with self._translated():
            row = self.connection.execute(
                f"SELECT * FROM survey {where} ORDER BY number DESC LIMIT 1"  # noqa: S608 - one of two words
            ).fetchone()
        return Survey(row[0], row[1], row[2], bool(row[3]), *row[4:]) if row else None

    def count(self) -> int:
        """How many pages are shown."""
        with self._translated():
            return int(self.connection.execute("SELECT count(*) FROM shown").fetchone()[0])

    def pages(self, closed: Closed = OPEN) -> Iterator[Listed]:
        """Every page that is shown to everybody, in the order in which they were first found."""
        with self._translated():
            for url, lastmod in self.connection.execute("SELECT url, lastmod FROM shown ORDER BY id"):
                if url not in closed:
                    yield Listed(url, lastmod)

    def changes(
        self, closed: Closed = OPEN, *, since: float = 0.0, newest_first: bool = False
    ) -> Iterator[Change]:
        """What changed and could be told since then, in the order in which it was seen."""
        statement = (
            "SELECT n, change.url, change.title, kind, at, told, created FROM change"
            " LEFT JOIN page USING (mark) WHERE told >= ?"
            " AND (kind = 'deleted' OR mark NOT IN (SELECT mark FROM copy)) ORDER BY n * ?"
        )
        with self._translated():
            for row in self.connection.execute(statement, (since, -1 if newest_first else 1)):
                if row[1] not in closed:
                    yield Change(*row)

    def latest(self, closed: Closed = OPEN) -> Iterator[Change]:
        """The last change of each page, the last of all first; of pages that are there or were deleted."""
        statement = (
            "SELECT n, change.url, change.title, kind, at, told, created FROM change"
            " LEFT JOIN shown USING (mark)"
            " WHERE n = (SELECT max(n) FROM change AS other WHERE other.mark = change.mark)"
            " AND (kind = 'deleted' OR shown.id IS NOT NULL) ORDER BY told DESC, n DESC"
        )
        with self._translated():
            for row in self.connection.execute(statement):
                if row[1] not in closed:
                    yield Change(*row)

    # -- the file ------------------------------------------------------------------------------------------

    def _connect(self, *, is_reader: bool) -> sqlite3.Connection:
        if not is_reader:
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(f"{self._path.parent} cannot be made: {error.strerror}") from error
        connection = connect(self._path, is_reader=is_reader)
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return connection

    def _prepare(self, site: str) -> None:
        execute = self.connection.execute
        execute("PRAGMA journal_mode = WAL")
        # A process that dies loses nothing; a machine that does, at most the last parcels, which come again.
        execute("PRAGMA synchronous = NORMAL")
        if version_of(self.connection) == 0:
            with self.transaction() as db:
                if version_of(self.connection) == 0:  # nobody was quicker
                    for statement in _statements(schema.TABLES):
                        db.execute(statement)
                    db.execute("INSERT INTO about VALUES (?)", (site,))
                    db.execute(f"PRAGMA user_version = {schema.VERSION}")
        self._check_version()
        if self.site() != site:
            raise UsageError(f"{self._path} is the index of {self.site()}: name another folder with --state")

    def _check_version(self) -> None:
        version = version_of(self.connection)
        if version == 0:
            raise UsageError(NO_INDEX.format(self._path.parent))
        if version != schema.VERSION:
            raise StorageError(
                f"{self._path} has format {version}, this Sterna reads {schema.VERSION}:"
                " delete it and run 'sterna host index' again"
            )

    def _translated(self) -> AbstractContextManager[None]:
        return translated("index", self._path, advice=_ADVICE)


def _statements(script: str) -> Iterator[str]:
    """Each statement by itself: sqlite3 would end the transaction before it ran them all."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
