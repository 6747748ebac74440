"""The disk: durable renames, names that sort by time, errors with advice; texts and times fit for files."""

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sterna.errors import StorageError

OnStep = Callable[[str], None]

TEMPORARY = ".tmp"  # the ending of an incomplete file

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
    handle = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(handle, "wb") as file:  # noqa: PTH123 - a file descriptor
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    begun.replace(path)
    sync_folder(path.parent)


def clean(text: str) -> str:
    """The text with lone surrogates replaced: a page can hold them, UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def moment(seconds: float) -> datetime:
    """The time of a fetch; the epoch where a runtime sent a number that is not a time."""
    # NaN fails both comparisons, so it is caught here too.
    return datetime.fromtimestamp(seconds, UTC) if 0 <= seconds < _END_SECONDS else EPOCH
