"""Commands that only read a collection give up the network and all other files: it may be a stranger's.

DuckDB, Arrow, tantivy, zlib and SQLite parse the files of a collection in the command's own process. They
need files and threads, so they cannot run in the jail of the readers; this is what can be taken from them.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from sterna.errors import JailError
from sterna.export.workbench import end_publishers, is_stream, pin_apart, publish_apart
from sterna.home.folder import CollectionFolder, rights_over
from sterna.runtime.cell.confined_process import python_paths
from sterna.runtime.cell.jail import confine
from sterna.runtime.cell.scratch import Scratch, use_for_temporary_files

_log = logging.getLogger(__name__)

# Set by the entry point of the command. A process that only calls the commands, as tests do, stays as it is.
is_own_process = False
_scratch: Scratch | None = None  # made by keep_to(), removed by finish()


def keep_to(
    *what: Path,
    out: Path | None = None,
    exports: bool = False,
    makes_index: bool = False,
    mends: bool = False,
    warn: Callable[[str], None] = _log.warning,
) -> None:
    """Confines the command to collections or a file, and to a bench for its output, if the kernel can.

    It may write the search index, and all of a collection only if it mends it. For an export, segments are
    pinned by another process. Call it before Arrow, DuckDB or tantivy are loaded, which may start threads.
    """
    global _scratch  # noqa: PLW0603 - it is a state of the process, as its confinement is
    if not is_own_process:
        return
    rights = rights_over(*what, makes_index=makes_index)
    _scratch = Scratch()
    use_for_temporary_files(_scratch.folder)
    readable = [*python_paths(), *rights.readable]
    writable = [_scratch.folder, *(map(Path.resolve, what) if mends else rights.writable)]
    if out and is_stream(out):
        writable.append(Path(os.path.realpath(out)))  # the pipe, or what /dev/stdout stands for
    elif out:
        writable.append(publish_apart(out))
        if out.is_dir():
            readable.append(out)  # an export checks again that it is empty, or has nothing but Markdown
    if exports:
        for folder in what:
            pin_apart(CollectionFolder(folder).segments_folder)
    try:
        missing = confine(readable=readable, writable=writable)
    except JailError as error:
        missing = str(error)
    if missing:
        warn(f"not confined to {', '.join(map(str, what))}: {missing}")


def finish() -> None:
    """Removes what an unfinished output left, and temporary files; for the end of the command."""
    end_publishers()
    if _scratch:
        _scratch.remove()
