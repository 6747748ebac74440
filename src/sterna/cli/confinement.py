"""Commands that only read a collection give up the network and all other files: it may be a stranger's.

DuckDB, Arrow, tantivy, zlib and SQLite parse the files of a collection in the command's own process. They
need files and threads, so they cannot run in the jail of the readers; this is what can be taken from them.
"""

import logging
import os
import stat
import sys
import tempfile
from pathlib import Path

from sterna.errors import JailError
from sterna.export.workbench import end_publisher, is_stream, publish_apart
from sterna.runtime.cell.jail import confine

_log = logging.getLogger(__name__)

# Set by the entry point of the command. A process that only calls the commands, as tests do, stays as it is.
is_own_process = False


def keep_to(*what: Path, out: Path | None = None) -> None:
    """Confines the command to collections or a file, and to a bench for its output, if the kernel can.

    Call it before Arrow, DuckDB or tantivy are loaded, which may start threads.
    """
    if not is_own_process:
        return
    tempfile.tempdir = os.environ["SQLITE_TMPDIR"] = str(_scratch())
    readable, writable = _python(), [*what, Path(tempfile.tempdir)]
    if out and is_stream(out):
        writable.append(Path(os.path.realpath(out)))  # the pipe, or what /dev/stdout stands for
    elif out:
        writable.append(publish_apart(out))
        if out.is_dir() and not any(out.iterdir()):
            readable.append(out)  # an export into an empty folder checks again that it is empty
    try:
        missing = confine(readable=readable, writable=writable)
    except JailError as error:
        missing = str(error)
    if missing:
        _log.warning("not confined to %s: %s", ", ".join(map(str, what)), missing)


def finish() -> None:
    """Removes what an unfinished output left; for the end of the command."""
    end_publisher()


def _scratch() -> Path:
    """A folder for temporary files that is the user's alone; it stays for the next command."""
    place = Path(tempfile.gettempdir()) / f"sterna-{os.geteuid()}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:  # the disk is full or read-only, or a file is in the way
        return place
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return place if is_private else Path(tempfile.mkdtemp(prefix="sterna-"))


def _python() -> list[Path]:
    """Where Python and its packages lie; not the working folder, which is on the path by accident."""
    found = {sys.prefix, sys.base_prefix, *sys.path} - {"", str(Path.cwd())}
    return [Path(__file__).parents[2], *map(Path, sorted(found))]
