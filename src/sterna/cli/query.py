"""`sterna query`: SQL over a collection, also while it is crawled, or over a crawler's file."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sterna.crawler.pack import SUFFIX
from sterna.errors import UsageError
from sterna.home.folder import Collection
from sterna.query.terminal import Format

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_LEAST_MEMORY = 10**7  # below it DuckDB cannot even begin


def query(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    what: Annotated[
        Path, typer.Argument(metavar="DIR|FILE.crawler", help="A collection, or a crawler's file.")
    ],
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="SQL",
            help="A SELECT over page, page_history, link, event, site, visit, fact, or a template of facts.",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Take the SQL from this file.")
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="The value of $NAME in the SQL; can be given again."
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to write the rows.")] = "table",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the rows into this file.")
    ] = None,
    visit: Annotated[
        str | None, typer.Option(metavar="ID", help="Only what this visit brought: one returned crawler.")
    ] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="What the query may use, as 500MB.")] = "1GB",
    seconds: Annotated[float, typer.Option(metavar="N", help="So long it may work.")] = 60.0,
) -> None:
    """Ask a collection in SQL, or a crawler's file.

    Example: sterna query crawls/www.example.org "SELECT status, count(*) FROM page GROUP BY status"
    """
    text = _sql(sql, file)
    parameters = _parameters(values or ())
    memory_bytes = _bytes(memory)
    if not 0 < seconds <= 86_400:
        raise UsageError(f"--seconds {seconds:g} cannot be: give seconds up to 86400")
    is_crawler = what.suffix == SUFFIX
    if is_crawler and visit is not None:
        raise UsageError("--visit is for a collection: a crawler's file holds no visits")
    collection = Collection(what)
    if not is_crawler:
        collection.check()
    # DuckDB takes a while to load, and who asks for help should not wait for it.
    from sterna.api.query import Bounds, ask, held_memory, open_collection, open_crawler  # noqa: PLC0415

    bounds = Bounds(memory_bytes=memory_bytes, seconds=seconds)
    opened = (
        open_crawler(what, bounds=bounds)
        if is_crawler
        else open_collection(collection, visit=visit, bounds=bounds)
    )
    with opened as engine, held_memory(memory_bytes):
        ask(engine, text, form=form, out=out, parameters=parameters)


def _sql(sql: str | None, file: Path | None) -> str:
    if (sql is None) == (file is None):
        raise UsageError("give the query as SQL, or by --file FILE")
    if file is None:
        return sql or ""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UsageError(f"--file {file} cannot be read: {reason}") from error


def _parameters(values: Sequence[str]) -> dict[str, object]:
    """Names with their values, all of them texts: a query casts what should be a number."""
    parameters: dict[str, object] = {}
    for value in values:
        name, found, text = value.partition("=")
        if not found or not name.isidentifier():
            raise UsageError(f"--set {value!r} cannot be: give NAME=VALUE, as in --set word=tern")
        parameters[name] = text
    return parameters


def _bytes(text: str) -> int:
    """The number of bytes that a size names."""
    size = _SIZE.fullmatch(text.strip())
    count = int(float(size[1]) * _UNITS[size[2].lower()]) if size else 0
    if count < _LEAST_MEMORY:
        raise UsageError(f"--memory {text} cannot be: give a size such as 500MB or 2GB, 10MB at least")
    return count
