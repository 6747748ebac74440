"""Where an index lies: a folder of generations, of which the file `current` names the valid one.

A rebuilt index grows in a folder of its own and replaces the old one when `current` is renamed. Readers of
the old one have its files open and use them until their next check.
"""

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from zlib import crc32

from tantivy import Index, Query

from sterna.archive.disk import (
    make_folder,
    new_id,
    refuse_link,
    refuse_links,
    replace_file,
    storage_errors,
    sync_folder,
)
from sterna.errors import CollectionInUse, IndexUnusable, command
from sterna.search import schema
from sterna.toml import stamp

Stamp = tuple[int, ...]

_CURRENT = "current"
_LOCK = "lock"
_NAME = re.compile(r"(\d{1,9})-[0-9a-f]{8,64}")
_OS_ERROR = re.compile(r"os error (\d{1,4})")
_LOCK_ERROR = re.compile(r"Lockfile.*Os \{ code: (\d{1,4})")
_SEGMENT_FILE = re.compile(r"[0-9a-f]{32}\..+")
_TAIL, _MAGIC = Struct("<II"), 1337  # length of the footer, and what ends every file of tantivy
_PIECE_BYTES = 1 << 20
_GONE = 2  # ENOENT: a file of the index is missing; the disk is in order
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_META = "meta.json"


def current(folder: Path) -> Path | None:
    """The valid generation; None if there is no index yet."""
    try:
        name = (folder / _CURRENT).read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise unusable(folder, f"cannot read the file {_CURRENT!r}") from error
    match = _NAME.fullmatch(name)
    if not match:
        raise unusable(folder, f"the file {_CURRENT!r} does not name a generation")
    if int(match[1]) != schema.VERSION:
        raise unusable(folder, "another version of Sterna made it")
    return folder / name


def read_position(folder: Path) -> int | None:
    """The last batch that is completely in the index; None if there is no index."""
    with index_errors(folder):
        generation = current(folder)
        if generation is None:
            return None
        position = position_of(open_index(generation)[0], folder=folder)
        if position is None:
            raise unusable(folder, "it is empty")
        return position


def open_index(generation: Path) -> tuple[Index, Stamp | None]:
    """The index for reading; with a stamp if it does not follow later commits (see `stamp_of`).

    tantivy locks a file even to read. Where none can be written, it is given a folder of links to the files
    that there are now, and needs this folder no more once they are open.
    """
    try:
        return Index.open(str(generation)), None
    except ValueError as error:
        number = _LOCK_ERROR.search(str(error))
        if not number or int(number[1]) not in _CLOSED:
            raise
    seen = stamp_of(generation)
    with tempfile.TemporaryDirectory(prefix="sterna-index-") as links:
        for path in generation.iterdir():
            if not path.name.endswith(".lock"):
                (Path(links) / path.name).symlink_to(path.absolute())
        index = Index.open(links)
        index.config_reader("manual")
    return index, seen


def stamp_of(generation: Path) -> Stamp:
    """A value that differs after a commit."""
    return stamp(generation / _META)


def examine(folder: Path) -> int | None:
    """The position, after all files of the index passed their checksums; raises IndexUnusable."""
    position = read_position(folder)
    generation = current(folder)
    for path in sorted(generation.glob("*.*")) if generation else ():
        try:
            is_sound = not _SEGMENT_FILE.fullmatch(path.name) or _is_sound(path)
        except OSError as error:  # the disk does not give it
            raise unusable(folder, f"{path.name}: {error.strerror}") from error
        if not is_sound:
            raise unusable(folder, f"{path.name} is damaged")
    return position


def _is_sound(path: Path) -> bool:
    """Whether the checksum in the footer that tantivy appends to its files holds."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        size_bytes = file.tell()
        if size_bytes < _TAIL.size:
            return False
        file.seek(-_TAIL.size, os.SEEK_END)
        footer_bytes, magic = _TAIL.unpack(file.read())
        left = size_bytes - _TAIL.size - footer_bytes
        if magic != _MAGIC or left < 0:
            return False
        file.seek(left)
        stated = re.search(rb'"crc":(\d{1,10})', file.read(footer_bytes))
        file.seek(0)
        checksum = 0
        while left:
            data = file.read(min(_PIECE_BYTES, left))
            checksum, left = crc32(data, checksum), left - len(data)
        return stated is not None and int(stated[1]) == checksum


def position_of(index: Index, *, folder: Path) -> int | None:
    """The same of an open index; None if it is new and empty."""
    searcher = index.searcher()
    if not searcher.num_docs:
        return None
    query = Query.term_query(index.schema, schema.KIND, schema.POSITION)
    hits = searcher.search(query, limit=2).hits
    if len(hits) != 1:
        raise unusable(folder, "its position is lost")
    return int(searcher.doc(hits[0][1]).get_first(schema.BATCH))  # type: ignore[arg-type]


def begin(folder: Path) -> Path:
    """A new generation, which becomes valid when it is published."""
    generation = folder / f"{schema.VERSION}-{new_id()}"
    make_folder(generation)
    return generation


def publish(generation: Path) -> None:
    """Makes this generation the valid one, and removes all others."""
    folder = generation.parent
    with storage_errors(folder):
        sync_folder(generation)
        replace_file(folder / _CURRENT, f"{generation.name}\n".encode())
    sweep(folder, keep=generation)


def sweep(folder: Path, *, keep: Path | None) -> None:
    """Removes every generation but one: replaced ones, and remains of a killed rebuild."""
    with storage_errors(folder):
        for entry in folder.iterdir():
            if _NAME.fullmatch(entry.name) and entry != keep:
                shutil.rmtree(entry, ignore_errors=True)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keeps every other writer out of the index; raises CollectionError if there are links in it."""
    refuse_link(folder)
    make_folder(folder)
    refuse_links(folder)
    with storage_errors(folder):
        lock = (folder / _LOCK).open("ab")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CollectionInUse(
                f"{folder} is locked by a crawl or another 'sterna index': wait until it ends"
            ) from None
        yield


def unusable(folder: Path, reason: str) -> IndexUnusable:
    """The error, with the command that rebuilds the index."""
    return IndexUnusable(
        f"the search index in {folder} is unusable ({reason}): rebuild it with"
        f" '{command('index', folder.parent, '--anew')}'",
        reason,
    )


@contextmanager
def index_errors(folder: Path) -> Iterator[None]:
    """Translates errors and panics of tantivy: a disk error, or a damaged index."""
    try:
        yield
    except BaseException as error:
        # A panic of Rust: pyo3 derives it from BaseException.
        is_panic = type(error).__name__ == "PanicException"
        if not is_panic and not isinstance(error, ValueError | OSError | SystemError):
            raise
        text = str(error)
        number = _OS_ERROR.search(text)
        if number and int(number[1]) != _GONE:
            with storage_errors(folder):
                raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
        reason = text.strip().splitlines()[0][:200] if text.strip() else type(error).__name__
        raise unusable(folder, reason) from error
