"""Where an index lies: a folder of generations, of which the file `current` names the one that counts.

An index that is made anew grows in a folder of its own and takes the place of the old one by a rename of
`current`. Who reads the old one has its files open and goes on with them until he looks again.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sterna.archive.disk import make_folder, new_id, storage_errors, sync_folder
from sterna.errors import CollectionInUse, IndexUnusable
from sterna.search.schema import VERSION

_CURRENT = "current"
_LOCK = "lock"
_NAME = re.compile(r"(\d{1,9})-[0-9a-f]{8,64}")
_OS_ERROR = re.compile(r"os error (\d{1,4})")
_GONE = 2  # ENOENT: a file of the index is missing, which says nothing about the disk


def current(folder: Path) -> Path | None:
    """The generation that counts; None where there is no index yet."""
    try:
        name = (folder / _CURRENT).read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise unusable(folder, f"{_CURRENT} cannot be read") from error
    match = _NAME.fullmatch(name)
    if not match:
        raise unusable(folder, f"{_CURRENT} names no generation")
    if int(match[1]) != VERSION:
        raise unusable(folder, "it was made by another version of Sterna")
    return folder / name


def begin(folder: Path) -> Path:
    """A new generation, which counts only when it is published."""
    generation = folder / f"{VERSION}-{new_id()}"
    make_folder(generation)
    return generation


def publish(generation: Path) -> None:
    """From now on this generation counts; all others are removed."""
    folder = generation.parent
    with storage_errors(folder):
        sync_folder(generation)
        begun = folder / f"{_CURRENT}.tmp"
        with begun.open("w") as file:
            file.write(f"{generation.name}\n")
            file.flush()
            os.fsync(file.fileno())
        begun.replace(folder / _CURRENT)
        sync_folder(folder)
    sweep(folder, keep=generation)


def sweep(folder: Path, *, keep: Path | None) -> None:
    """Removes every generation but one: replaced ones, and what a killed rebuild left."""
    with storage_errors(folder):
        for entry in folder.iterdir():
            if _NAME.fullmatch(entry.name) and entry != keep:
                shutil.rmtree(entry, ignore_errors=True)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keeps every other writer out of the index."""
    make_folder(folder)
    with storage_errors(folder):
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise CollectionInUse(
            f"{folder} is being written already, by a crawl or another 'sterna index': wait for it"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def unusable(folder: Path, reason: str) -> IndexUnusable:
    """The error that names the command which helps."""
    return IndexUnusable(
        f"the search index in {folder} cannot be used ({reason}): make it anew with"
        f" 'sterna index {folder.parent} --anew'"
    )


@contextmanager
def index_errors(folder: Path) -> Iterator[None]:
    """Turns the errors and panics of tantivy into ours: a refusing disk, or an index that is damaged."""
    try:
        yield
    except (ValueError, OSError, SystemError) as error:
        _raise_ours(folder, error)
    except BaseException as error:
        # A panic of Rust, which is no Exception, so that nobody takes it for one of Python's.
        if type(error).__name__ != "PanicException":
            raise
        _raise_ours(folder, error)


def _raise_ours(folder: Path, error: BaseException) -> None:
    text = str(error)
    number = _OS_ERROR.search(text)
    if number and int(number[1]) != _GONE:
        with storage_errors(folder):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
    reason = text.strip().splitlines()[0][:200] if text.strip() else type(error).__name__
    raise unusable(folder, reason) from error
