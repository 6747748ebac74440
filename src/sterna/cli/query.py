"""`sterna query`: SQL over a collection, also while it is crawled, or over a crawler's file."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli.confinement import keep_to
from sterna.cli.flags import SafeCellsOption, argument, option
from sterna.cli.lines import warn
from sterna.errors import UsageError, command
from sterna.export.workbench import check_file, is_stream, whole_file
from sterna.query.terminal import Format

if TYPE_CHECKING:
    from sterna.query.engine import Engine, Result

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_LEAST_MEMORY = 10**7  # DuckDB does not start with less
_WIDTH = 100  # of a table that is not written to a terminal


def query(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    words: Annotated[
        list[str],
        argument(
            "DIR...|FILE.crawler SQL",
            "Collections, or a crawler's file; a SELECT over page, page_history, link, event, site, visit,"
            " fact, or a template of facts.",
        ),
    ],
    file: Annotated[Path | None, option("FILE", "Take the SQL from this file.")] = None,
    values: Annotated[
        list[str] | None, option("NAME=VALUE", "The value of $NAME in the SQL; repeatable.", "--set")
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to write the rows.")] = "table",
    out: Annotated[Path | None, option("FILE", "Write the rows into this file.", "--out", "-o")] = None,
    safe_cells: SafeCellsOption = False,
    visit: Annotated[str | None, option("ID", "Only what this visit brought.")] = None,
    memory: Annotated[str, option("SIZE", "Memory that the query may use, such as 500MB.")] = "1GB",
    seconds: Annotated[float, option("N", "Seconds that the query may take.")] = 60.0,
) -> None:
    """Query a collection, several as one, or a crawler's file, in SQL.

    Tables of several collections have a column `collection`; of a page that several have, the newest counts.

    Example: sterna query crawls/www.example.org "SELECT status, count(*) FROM page GROUP BY status"
    """
    folders, text = _asked(words, file)
    parameters = _parameters(values or ())
    memory_bytes = _bytes(memory)
    if not 0 < seconds <= 86_400:
        raise UsageError(f"--seconds {seconds:g} is invalid: seconds up to 86400")
    if safe_cells and form != "csv":
        raise UsageError(f"--safe-cells goes with --format csv, not with --format {form}")
    if out and not is_stream(out):
        check_file(out, force=True)
    what, *others = folders
    if others and visit is not None:
        raise UsageError("--visit is for one collection: a visit brought pages into one alone")
    keep_to(*folders, out=out)
    # They are slow to load, and --help should not wait for them.
    from sterna.api.query import held_memory, open_collection, open_collections, open_crawler  # noqa: PLC0415
    from sterna.crawler.pack import SUFFIX  # noqa: PLC0415
    from sterna.home.folder import CollectionFolder  # noqa: PLC0415

    if others:
        collections = [CollectionFolder(folder).check() for folder in folders]
        opened = open_collections(collections, memory_bytes=memory_bytes, seconds=seconds, warn=warn)
    elif what.suffix != SUFFIX:
        collection = CollectionFolder(what).check()
        opened = open_collection(
            collection, visit=visit, memory_bytes=memory_bytes, seconds=seconds, warn=warn
        )
    elif visit is None:
        opened = open_crawler(what, memory_bytes=memory_bytes, seconds=seconds)
    else:
        raise UsageError("--visit is for a collection: a crawler's file contains no visits")
    with opened as engine, held_memory(memory_bytes):
        write_answer(engine, text, form=form, out=out, parameters=parameters, safe_cells=safe_cells)


def _asked(words: Sequence[str], file: Path | None) -> tuple[list[Path], str]:
    """What is queried, and the SQL: the last word, unless a file has it."""
    if file is None:
        *folders, sql = words
        if not folders and " " in sql.strip():
            raise UsageError(f"name the collection first: {command('query', 'DIR', sql)}")
        if not folders or os.path.isdir(sql):  # noqa: PTH112 - of a long query Path would raise OSError
            raise UsageError("give the query either as SQL or by --file FILE, after the collection")
        return [Path(folder) for folder in folders], sql
    if len(words) > 1 and not os.path.exists(words[-1]):  # noqa: PTH110
        raise UsageError("give the query either as SQL or by --file FILE")
    try:
        return [Path(folder) for folder in words], file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not valid UTF-8"
        raise UsageError(f"cannot read --file {file}: {reason}") from error


def _parameters(values: Sequence[str]) -> dict[str, object]:
    """Names with their values; all are texts, which a query may cast."""
    parameters: dict[str, object] = {}
    for value in values:
        name, found, text = value.partition("=")
        if not found or not name.isidentifier():
            raise UsageError(f"--set {value!r} is invalid: write it as NAME=VALUE, such as word=tern")
        parameters[name] = text
    return parameters


def _bytes(text: str) -> int:
    """The bytes in a size such as 500MB."""
    size = _SIZE.fullmatch(text.strip())
    count = int(float(size[1]) * _UNITS[size[2].lower()]) if size else 0
    if count < _LEAST_MEMORY:
        raise UsageError(f"--memory {text} is invalid: a size such as 500MB or 2GB, 10MB at least")
    return count


# -- the rows ----------------------------------------------------------------------------------------------


def write_answer(
    engine: "Engine",
    sql: str,
    *,
    form: Format,
    out: Path | None = None,
    parameters: Mapping[str, object] | None = None,
    safe_cells: bool = False,
) -> int:
    """Writes the rows of a query to a file, or to stdout, where Ctrl-C ends it at once, even in DuckDB.

    Returns the number of rows.
    """
    from sterna.query.output import write, write_parquet  # noqa: PLC0415 - see above

    count = 0

    def counted(result: "Result") -> "Result":
        def rows() -> Iterator[tuple[Any, ...]]:
            nonlocal count
            for count, row in enumerate(result.rows, 1):  # noqa: B007 - it is what is counted
                yield row

        return result._replace(rows=rows())

    if out == Path("-"):
        out = None
    if out is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with whole_file(out, stdout=sys.stdout.buffer) if out else nullcontext(sys.stdout.buffer) as file:
        if form == "parquet":
            if file.isatty():
                raise UsageError("parquet is not for a terminal: add --out FILE, or send it into a pipe")
            count = write_parquet(engine.run_arrow(sql, parameters), file)
        elif out is None:
            width = shutil.get_terminal_size((_WIDTH, 24)).columns if file.isatty() else _WIDTH
            result = counted(engine.run(sql, parameters))
            write(result, format=form, out=sys.stdout, width=width, safe_cells=safe_cells)
        else:
            with open(file.fileno(), "w", encoding="utf-8", newline="", closefd=False) as text:
                write(counted(engine.run(sql, parameters)), format=form, out=text, safe_cells=safe_cells)
    return count
