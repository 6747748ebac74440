"""The doors of a host: a file that says they are closed, so that every process and every restart sees it."""

import os
from pathlib import Path

from sterna.errors import StorageError
from sterna.host.owner.audit import open_private

CLOSED = "closed"  # the file's name in the folder of state
MAX_REASON = 200
BY_OWNER = "the owner closed the host"


class Doors:
    """Open unless the file is there; whoever may write in the folder of state can close them."""

    def __init__(self, state: Path) -> None:
        self._path = state / CLOSED

    def are_closed(self) -> str | None:
        """Why they are closed; None if they are open. What cannot be read counts as closed."""
        try:
            with self._path.open("rb") as file:
                text = file.read(4 * MAX_REASON).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self._path} cannot be read: {error.strerror}"
        return _one_line(text) or BY_OWNER

    def close(self, reason: str = BY_OWNER) -> None:
        """Lets nobody in from now on; StorageError if that cannot be written down."""
        beside = self._path.with_name(f"{CLOSED}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.unlink(missing_ok=True)
            descriptor = open_private(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(descriptor, "wb") as file:
                file.write(f"{_one_line(reason)}\n".encode(errors="replace"))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            self._close_anyhow(error)

    def open(self) -> None:
        """Lets those in again who are allowed."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be deleted: {error.strerror}") from error

    def _close_anyhow(self, error: OSError) -> None:
        """An empty file takes no room on a full disk, and closes them as well."""
        try:
            self._path.touch(mode=0o600)
        except OSError:
            raise StorageError(f"{self._path} cannot be written: {error.strerror}") from error


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_REASON]
