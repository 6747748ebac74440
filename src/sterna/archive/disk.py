"""The disk: durable renames, no writes through links, errors with advice; texts and times fit for files."""

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

from sterna.errors import CollectionError, StorageError

OnStep = Callable[[str], None]

TEMPORARY = ".tmp"  # the ending of an incomplete file
ASIDE = "aside"  # the folder of a collection for files that count no more; its owner may empty it

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END_SECONDS = datetime(2200, 1, 1, tzinfo=UTC).timestamp()

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space and run the same command again",
    errno.EDQUOT: "the disk quota is full: free some space and run the same command again",
    errno.EROFS: "the disk is read-only: mount it writable and run the same command again",
    errno.EACCES: "permission denied: make the folder writable and run the same command again",
    errno.EPERM: "not permitted: make the folder writable and run the same command again",
    errno.EFBIG: "the file exceeds the size limit: raise `ulimit -f` and run the same command again",
    errno.EIO: "the disk reports an I/O error: check it before you run the same command again",
}


def ignore_step(_step: str) -> None:
    """The step hook outside crash tests."""


def new_id() -> str:
    """A unique name that sorts by the time it was made."""
    return f"{time.time_ns() // 1_000:014x}{secrets.token_hex(4)}"


def path_in(folder: Path, name: str) -> Path:
    """Of a file in this folder; StorageError unless the name is that of a file, and leads nowhere else."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise StorageError(f"{folder}: {name[:80]!r} is no name of a file in it")
    return folder / name


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns OSError into StorageError, which names `path` and what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, error.strerror or str(error))
        raise StorageError(f"cannot store in '{path}': {advice}") from error


def make_folder(folder: Path) -> None:
    """Makes the folder, so that it survives a power loss."""
    with storage_errors(folder):
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes the folder's names durable: a rename is safe only after this."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Replaces the file durably, all of it at once."""
    begun = path.with_name(path.name + TEMPORARY)
    with begin_file(begun, mode=mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    begun.replace(path)
    sync_folder(path.parent)


def begin_file(path: Path, *, mode: int = 0o666) -> BinaryIO:
    """A new file to write; a link, or what a crash left under this name, is removed and not written to."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    return open(handle, "wb")  # noqa: PTH123 - a file descriptor


def free_path(folder: Path, name: str) -> Path:
    """Where nothing lies yet: the name itself, or with a number."""
    names = chain([name], (f"{name}.{number}" for number in count(2)))
    return next(folder / each for each in names if not os.path.lexists(folder / each))


def set_aside(path: Path, into: Path) -> Path:
    """Moves a file or folder durably into the folder `into`, to a path that is free there, and returns it."""
    make_folder(into)
    with storage_errors(into):
        place = free_path(into, path.name)
        path.rename(place)
        sync_folder(into)
        sync_folder(path.parent)
    return place


# -- links -------------------------------------------------------------------------------------------------


def refuse_links(folder: Path, *, within: Collection[str] | None = None) -> None:
    """Raises CollectionError if the folder holds anything but files and folders: writes could leave it.

    The folder may itself be a link, which its user made. Of the folders in it, only those in `within` are
    searched, if given.
    """
    folders = [folder]
    while folders:
        here = folders.pop()
        with storage_errors(here), _entries(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if within is None or here != folder or entry.name in within:
                        folders.append(here / entry.name)
                elif not entry.is_file(follow_symlinks=False):
                    refuse_link(here / entry.name)


def refuse_link(path: Path) -> None:
    """Raises CollectionError if the path is neither a file, nor a folder, nor free."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "symbolic link" if stat.S_ISLNK(mode) else "special file"
        raise CollectionError(
            f"{path} is a {what}, and Sterna writes only to files and folders of the collection itself:"
            " put what it stands for in its place, or remove it"
        )


def refuse_stranger(folder: Path) -> None:
    """Raises CollectionError for another user's folder where everybody can write, such as in /tmp.

    Its owner could exchange files for links at any time.
    """
    path = folder.resolve()
    for each in (path, *path.parents[:-1]):
        try:
            owner, around = each.stat().st_uid, each.parent.stat()
        except OSError:
            continue  # it is not there yet, or not ours to see
        if around.st_mode & stat.S_IWOTH and owner not in (os.geteuid(), around.st_uid, 0):
            raise CollectionError(
                f"{each} belongs to another user, in a folder where everybody can write: name another folder,"
                " or copy it"
            )


@contextmanager
def _entries(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    try:
        found = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        yield iter(())  # it is to be made yet, or was just removed by another process
        return
    with found:
        yield found


# -- texts and times ---------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """The text with lone surrogates replaced: a page can hold them, UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def moment(seconds: float) -> datetime:
    """The time of a fetch; the epoch where a runtime sent a number that is not a time."""
    # NaN fails both comparisons, so it is caught here too.
    return datetime.fromtimestamp(seconds, UTC) if 0 <= seconds < _END_SECONDS else EPOCH
