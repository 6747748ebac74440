"""Folders for the temporary files of confined processes: each has one of its own.

The owner of a folder holds it locked, and removes it. What is not locked was left by a process that was
killed, or that could not remove the folder itself, and goes when the next one is made.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "sterna-"
_NOWHERE = Path(os.devnull) / "none"


class Scratch:
    """A private folder; it stays locked for as long as this process, or one forked from it, has it open.

    Where none can be made, as on a full disk, it does not exist: most of what reads needs none.
    """

    def __init__(self) -> None:
        self.folder = _NOWHERE
        self._handles: list[int] = []  # at most one; taken out by whoever closes it
        with suppress(OSError):
            ours = _ours()
            if ours:
                _sweep(ours)
            self.folder, handle = _made_in(ours or Path(tempfile.gettempdir()))
            self._handles.append(handle)

    def remove(self) -> None:
        """With whatever is in it."""
        _remove(self.folder)
        with suppress(IndexError):
            os.close(self._handles.pop())


def use_for_temporary_files(folder: Path) -> None:
    """Has Python and SQLite of this process put theirs there."""
    tempfile.tempdir = os.environ["SQLITE_TMPDIR"] = str(folder)


def _ours() -> Path | None:
    """The folder of all these folders of a user; None if somebody else has taken its name."""
    folder = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return folder if is_private and found.st_uid == os.geteuid() else None


def _made_in(around: Path) -> tuple[Path, int]:
    """A new folder and the handle that locks it; another process may have swept it before it was locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=around))
        with suppress(FileNotFoundError):
            handle = _locked(folder)
            if handle is not None:
                if folder.is_dir():
                    return folder, handle
                os.close(handle)


def _sweep(around: Path) -> None:
    for entry in list(around.iterdir()):
        with suppress(OSError):  # a file, a link, or another process removes it
            handle = _locked(entry)
            if handle is not None:
                _remove(entry)
                os.close(handle)


def _remove(folder: Path) -> None:
    with suppress(RecursionError):  # loose code may have nested folders in it
        shutil.rmtree(folder, ignore_errors=True)


def _locked(folder: Path) -> int | None:
    """The handle that keeps the folder locked; None if another process holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
