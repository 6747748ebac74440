"""The exit codes, and how an error becomes one line and a code."""

import errno
import os
import sys
import threading
from enum import IntEnum

from sterna.errors import CollectionError, QueryError, SternaError, StorageError, UsageError


class Exit(IntEnum):
    """What a script can tell from the exit code."""

    FINISHED = 0  # nothing is left to do, or the page limit is reached
    NOTHING = 1  # not one page could be had
    USAGE = 2  # a wrong URL, option, configuration or query
    STOPPED = 3  # ended before its end; the same command goes on
    WAITING = 4  # what is left may not be visited yet
    COLLECTION = 5  # the folder is not a collection, or is in use
    STORAGE = 6  # the disk refuses


def code_of(error: SternaError) -> Exit:
    """The exit code for an error."""
    if isinstance(error, UsageError | QueryError):
        return Exit.USAGE
    if isinstance(error, CollectionError):
        return Exit.COLLECTION
    return Exit.STORAGE if isinstance(error, StorageError) else Exit.NOTHING


def fail(error: SternaError) -> SystemExit:
    """Says what is wrong in one line on stderr."""
    text = str(error)
    sys.stderr.write(f"sterna: {text}\n")
    return SystemExit(int(code_of(error)))


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_full(error: OSError) -> bool:
    """True if there is no room for what a command prints."""
    return error.errno in _FULL


def no_room(error: OSError) -> SystemExit:
    """Says that the output cannot be written."""
    return fail(StorageError(f"the output cannot be written: {error.strerror}"))


def leave(code: int) -> None:
    """Ends the process; to take apart what was loaded, as Python does, takes a fifth of a second.

    Returns if something is still under way: the usual end waits for it.
    """
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except OSError as error:
        if is_full(error):
            code = int(Exit.STORAGE)
            no_room(error)
    os._exit(code)
