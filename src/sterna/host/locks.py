"""Locks between the processes of a host; they end with the process that has them."""

import fcntl
import os
from pathlib import Path

from sterna.errors import StorageError


def lock(path: Path) -> int | None:
    """The descriptor of a lock that is ours from now on; None if somebody else has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"{path} cannot be made: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
