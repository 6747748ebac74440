"""The folder of a collection: where its files lie, and the lock that keeps a second crawl out."""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec

from sterna.archive.disk import (
    ASIDE,
    TEMPORARY,
    make_folder,
    refuse_link,
    refuse_links,
    refuse_stranger,
    replace_file,
)
from sterna.archive.manifest import TABLES, Snapshot
from sterna.archive.segments import ENDINGS
from sterna.errors import (
    CollectionError,
    CollectionInUse,
    EmptyCollection,
    LedgerLost,
    NotACollection,
    StorageError,
    UsageError,
    command,
)
from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.web.sqlite import make_log_readable

MARKER = "collection.json"
MARKER_BEGUN = MARKER + TEMPORARY
FORMAT = 1
COLLECTION = "collection"  # the setting of the ledger that says whose it is
_WARC = (".warc.gz", ".warc.gz.open")


class Marker(msgspec.Struct, frozen=True):
    """Contents of `collection.json`, the file that marks a folder as a collection."""

    sterna_collection: int
    id: str
    made: float


class Rights(msgspec.Struct, frozen=True):
    """Which files a confined process may open."""

    readable: tuple[Path, ...]
    writable: tuple[Path, ...]


class CollectionFolder:
    """Paths of a collection; creating the object opens and creates nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger_path = folder / "ledger.sqlite"
        self.segments_folder = folder / "segments"
        self.warc_folder = folder / "warc"
        self.index_folder = folder / "index"
        self.waiting_folder = folder / "waiting"  # parcels of hosts until they are checked
        self.aside_folder = folder / ASIDE  # what counts no more; never read
        # Rules that copy rows into the user's own databases; most collections have none.
        self.storage_path = folder / "storage.toml"

    def id(self) -> str:
        """Id of the collection, kept when its folder is moved; raises NotACollection."""
        return self._marker().id

    def check(self) -> Self:
        """Itself; raises NotACollection unless the folder is one."""
        self._marker()
        return self

    def is_collection(self) -> bool:
        try:
            self._marker()
        except CollectionError:
            return False
        return True

    def check_links(self) -> None:
        """Raises CollectionError if writing into this folder could change files outside of it."""
        refuse_stranger(self.folder)
        # In 'aside' files are never written, and elsewhere may lie what is not ours.
        written = (self.segments_folder, self.warc_folder, self.index_folder, self.waiting_folder)
        refuse_links(self.folder, within=[folder.name for folder in written])

    def open_ledger(self, *, is_reader: bool = True) -> AbstractContextManager[SqliteLedger]:
        """The ledger, closed with the context; a reader may be there beside a crawl."""
        for ending in ("", "-wal", "-shm"):  # SQLite writes the last for readers too
            refuse_link(self.ledger_path.with_name(self.ledger_path.name + ending))
        if not is_reader:
            self.check_ledger()  # a writer would make a new one
        try:
            return closing(SqliteLedger(self.ledger_path, is_reader=is_reader))
        except EmptyCollection:
            if not self.has_archive():
                raise
            state = "empty" if self.ledger_path.exists() else "missing"
            raise self.lost(f"its ledger is {state}, but not its archive") from None

    def check_ledger(self) -> None:
        """Raises LedgerLost if there are files of the archive, but no ledger that could name them."""
        with suppress(EmptyCollection), self.open_ledger():
            pass

    def claim(self, ledger: Ledger) -> None:
        """Notes in the ledger whose it is; raises LedgerLost if it is that of another collection."""
        id = self.id()
        if (owner := ledger.setting(COLLECTION)) not in (None, id):
            raise self.lost(f"its ledger belongs to another collection ({owner}, not {id})")
        if owner is None:
            ledger.set_setting(COLLECTION, id)

    def lost(self, reason: str) -> LedgerLost:
        """The error of a collection that must not be touched before it is mended."""
        return LedgerLost(
            f"{self.folder}: {reason}; nothing was changed: run '{command('repair', self.folder)}'"
        )

    def has_archive(self) -> bool:
        """True if there are segments or WARC files."""
        return any(
            entry.name.endswith(endings)
            for folder, endings in ((self.segments_folder, ENDINGS), (self.warc_folder, _WARC))
            if folder.is_dir()
            for entry in folder.iterdir()
        )

    def snapshot(self) -> Snapshot:
        """The segments that are committed now, and the number of the last batch."""
        with self.open_ledger() as ledger:
            batch = ledger.batch()  # first: what is committed between the two lies after it
            segments = ledger.segments()
        return Snapshot(
            tables={
                name: tuple(self.segments_folder / each.name for each in segments if each.table == name)
                for name in TABLES
            },
            batch=batch,
        )

    @contextmanager
    def open_for_crawl(self) -> Iterator[None]:
        """Creates the folder if it is new, and locks it against other crawls while the context is open."""
        self.check_links()
        self._make()
        with self.locked():
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps crawls out while the context is open; raises CollectionInUse if there is one.

        Also raises CollectionError where `check_links` does.
        """
        self.check_links()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            handle = os.open(self.folder / "lock", flags, 0o644)
        except OSError as error:
            raise StorageError(f"cannot write to {self.folder}: {error.strerror}") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CollectionInUse(
                    f"{self.folder} is in use by another crawl: wait for it or name another folder"
                ) from None
            yield
        finally:
            os.close(handle)

    def _marker(self) -> Marker:
        try:
            marker = msgspec.json.decode((self.folder / MARKER).read_bytes(), type=Marker)
        except FileNotFoundError:
            raise NotACollection(
                self._complaint(f"{self.folder} is not a collection: name a folder that 'sterna crawl' made")
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            raise NotACollection(
                f"cannot read {self.folder / MARKER}: {error}; run '{command('repair', self.folder)}'"
            ) from error
        if marker.sterna_collection != FORMAT:
            raise CollectionError(
                f"{self.folder} has format {marker.sterna_collection}, this Sterna reads {FORMAT}:"
                " use the Sterna it was made with"
            )
        return marker

    def _make(self) -> None:
        """Writes the marker first, so that a folder left half made by a crash is still a collection."""
        try:
            if (self.folder / MARKER).exists():
                self.check()
                self.check_ledger()
            else:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what was crawled is private
                # A lock or half a marker may be there, left by a crawl that is starting or died in the same
                # folder. Storage rules may be written before the first crawl.
                ours = {"lock", MARKER_BEGUN, self.storage_path.name}
                if {entry.name for entry in self.folder.iterdir()} - ours:
                    usual = "holds other files: name a new folder, or one that 'sterna crawl' made"
                    raise NotACollection(self._complaint(f"{self.folder} {usual}"))
                self.write_marker()
            for folder in (self.segments_folder, self.warc_folder):
                folder.mkdir(exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise NotACollection(f"{self.folder} is not a folder") from error
        except OSError as error:
            raise StorageError(f"cannot create {self.folder}: {error.strerror}") from error

    def _complaint(self, usual: str) -> str:
        """What is wrong with a folder without a marker: the usual, unless it was a collection once."""
        if self.has_archive() or self.ledger_path.exists():
            return f"{self.folder} has lost its file {MARKER}: run '{command('repair', self.folder)}'"
        return usual

    def write_marker(self, id: str = "") -> None:
        """Makes the folder a collection, with a new id or this one."""
        marker = Marker(FORMAT, id or secrets.token_hex(8), time.time())
        replace_file(self.folder / MARKER, msgspec.json.encode(marker) + b"\n")


def rights_over(*folders: Path, makes_index: bool = False) -> Rights:
    """For a process that reads these collections: of each it may write the search index, and nothing else.

    Were the ledger, the segments or `storage.toml` among it, code that got loose there could have a crawl do
    for it what it cannot do itself. With `makes_index` there is a folder for the index, which it cannot make.
    """
    collections = list(map(CollectionFolder, folders))
    for collection in collections:
        make_log_readable(collection.ledger_path)
    if makes_index:
        make_index_folders(*folders)
    return Rights(folders, tuple(collection.index_folder for collection in collections))


def make_index_folders(*folders: Path) -> None:
    for collection in map(CollectionFolder, folders):
        if collection.is_collection():
            with suppress(StorageError):  # whoever writes there is told
                make_folder(collection.index_folder)


def names_of(collections: Sequence[CollectionFolder]) -> list[str]:
    """A name for each of several collections: that of its folder, or its whole path if two have one name.

    UsageError if one is named twice.
    """
    places = [collection.folder.resolve() for collection in collections]
    if again := [place for place in places if places.count(place) > 1]:
        raise UsageError(f"the collection {again[0]} is named twice")
    names = [place.name for place in places]
    return [str(place) if names.count(place.name) > 1 else place.name for place in places]


def path_of(name: str, value: Path | str) -> Path:
    """The path that a Python program gave for the parameter `name`; UsageError if it is none."""
    if not isinstance(value, str | Path):
        raise UsageError(f"{name} {value!r} is invalid: a path, as a text or a Path")
    return Path(value)
