"""The folder of a collection: where its files lie, and the lock that keeps a second crawl out."""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Self

import msgspec

from sterna.archive.disk import TEMPORARY, replace_file
from sterna.archive.manifest import TABLES, Snapshot
from sterna.errors import CollectionError, CollectionInUse, NotACollection, StorageError
from sterna.home.ledger.sqlite.ledger import SqliteLedger

MARKER = "collection.json"
MARKER_BEGUN = MARKER + TEMPORARY
FORMAT = 1


class Marker(msgspec.Struct, frozen=True):
    """Contents of `collection.json`, the file that marks a folder as a collection."""

    sterna_collection: int
    id: str
    made: float


class CollectionFolder:
    """Paths of a collection; creating the object opens and creates nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger_path = folder / "ledger.sqlite"
        self.segments_folder = folder / "segments"
        self.warc_folder = folder / "warc"
        self.index_folder = folder / "index"
        # Rules that copy rows into the user's own databases; most collections have none.
        self.storage_path = folder / "storage.toml"

    def id(self) -> str:
        """Id of the collection, kept when its folder is moved; raises NotACollection."""
        return self._marker().id

    def check(self) -> Self:
        """Itself; raises NotACollection unless the folder is one."""
        self._marker()
        return self

    def open_ledger(self, *, is_reader: bool = True) -> AbstractContextManager[SqliteLedger]:
        """The ledger, closed with the context; a reader may be there beside a crawl."""
        return closing(SqliteLedger(self.ledger_path, is_reader=is_reader))

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
        self._make()
        try:
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
                f"{self.folder} is not a collection: name a folder that 'sterna crawl' made"
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            raise NotACollection(f"cannot read {self.folder / MARKER}: {error}") from error
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
            else:
                self.folder.mkdir(parents=True, exist_ok=True)
                # A lock or half a marker may be there, left by a crawl that is starting or died in the same
                # folder. Storage rules may be written before the first crawl.
                ours = {"lock", MARKER_BEGUN, self.storage_path.name}
                if {entry.name for entry in self.folder.iterdir()} - ours:
                    raise NotACollection(
                        f"{self.folder} holds other files: name a new folder, or one that 'sterna crawl' made"
                    )
                self._write_marker()
            for folder in (self.segments_folder, self.warc_folder):
                folder.mkdir(exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise NotACollection(f"{self.folder} is not a folder") from error
        except OSError as error:
            raise StorageError(f"cannot create {self.folder}: {error.strerror}") from error

    def _write_marker(self) -> None:
        marker = Marker(FORMAT, secrets.token_hex(8), time.time())
        replace_file(self.folder / MARKER, msgspec.json.encode(marker) + b"\n")
