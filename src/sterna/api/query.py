"""Asking a collection or a crawler's file: what they hold, given to the query engine."""

import resource
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from sterna.archive.rows import SCHEMAS, fact_table
from sterna.crawler.pack import read as read_packed
from sterna.errors import StorageError, UsageError
from sterna.home.errand import load
from sterna.home.facts import own
from sterna.home.folder import Collection
from sterna.home.ledger.interface import SiteFact, SiteRow, VisitRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Record, Target
from sterna.query.engine import MEMORY_BYTES, TIME_LIMIT_SECONDS, Engine
from sterna.query.output import write, write_parquet
from sterna.query.terminal import Format, harmless

_TEXT, _COUNT, _TIME = pa.string(), pa.int64(), pa.timestamp("us", "UTC")
_COLUMNS: dict[type[Record], dict[str, pa.DataType]] = {
    SiteRow: {
        "site": _TEXT,
        "pages": _COUNT,
        "requests": _COUNT,
        "bytes_received": _COUNT,
        "errors": _COUNT,
        "robots": _TEXT,
        "robots_failures": _COUNT,
        "robots_retry_at": _TIME,
        "reason": _TEXT,
        "next_turn": _TIME,
    },
    VisitRow: {
        "visit": _TEXT,
        "site": _TEXT,
        "part": _TEXT,
        "epoch": _COUNT,
        "place": _TEXT,
        "began": _TIME,
        "over": _TIME,
        "ended": _TEXT,
        "parcels": _COUNT,
        "pages": _COUNT,
        "requests": _COUNT,
        "bytes_received": _COUNT,
        "kept": _COUNT,
        "cpu_seconds": pa.float64(),
    },
    Target: {"url": _TEXT, "depth": _COUNT, "priority": _COUNT, "referrer": _TEXT},
}

_WIDTH = 100  # of a table that is written elsewhere than on a terminal

# What the process may take beside what DuckDB counts: rows on their way, and what allocators keep.
_SLACK_FACTOR = 2
_SLACK_BYTES = 512_000_000


class Bounds(Record, frozen=True, kw_only=True):
    """What a query may take."""

    memory_bytes: int = MEMORY_BYTES
    seconds: float = TIME_LIMIT_SECONDS


_BOUNDS = Bounds()


def open_collection(
    collection: Collection,
    *,
    visit: str | None = None,
    bounds: Bounds = _BOUNDS,
    files: Mapping[str, Sequence[Path]] | None = None,
    spill_folder: Path | None = None,
) -> Engine:
    """The tables of a collection as of its last commit; with `visit` only what that visit brought.

    `files` are those of an earlier moment, which the caller keeps.
    """
    ledger = SqliteLedger(collection.ledger_path, is_reader=True)
    try:
        segments = ledger.segments()
        errand = load(ledger.setting("errand"))
        facts = own(ledger.facts(), crawler=errand.crawler.name if errand else "")
        sites, visits = ledger.site_rows(), ledger.visit_rows()
    finally:
        ledger.close()
    if visit is not None:
        visits = [row for row in visits if row.visit == visit]
        if not visits:
            raise UsageError(f"there is no visit {harmless(visit)!r}: the table visit has them all")
        sites = [row for row in sites if row.site == visits[0].site]
    tables = files or {
        name: [collection.segments_folder / segment.name for segment in segments if segment.table == name]
        for name in SCHEMAS
    }
    return Engine(
        tables,
        extra={**ledger_tables(sites, visits), "fact": fact_table(facts)},
        visit=visit,
        memory_bytes=bounds.memory_bytes,
        time_limit_seconds=bounds.seconds,
        spill_folder=spill_folder,
    )


def open_crawler(path: Path, *, bounds: Bounds = _BOUNDS) -> Engine:
    """What a crawler's file holds: the facts it set out with and has come to, and what it has to fetch."""
    packed = read_packed(path)
    name, progress = packed.crawler.name, packed.progress
    first = own((SiteFact("", *each) for each in enumerate(packed.crawler.facts)), crawler=name)
    kept = own((SiteFact("", *each) for each in progress.state.facts), crawler=name)
    kinds = pa.array(["first"] * len(first) + ["own"] * len(kept), _TEXT)
    facts = fact_table([*first, *kept]).append_column("kind", kinds)
    return Engine(
        {},
        extra={"fact": facts, "target": _table(Target, progress.frontier)},
        memory_bytes=bounds.memory_bytes,
        time_limit_seconds=bounds.seconds,
    )


def ask(
    engine: Engine,
    sql: str,
    *,
    form: Format,
    out: Path | None = None,
    parameters: Mapping[str, object] | None = None,
) -> None:
    """Writes what the query gives, into a file or for whoever runs the command.

    There Ctrl-C ends it at once, even in the middle of DuckDB's work.
    """
    if out is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _write(engine, sql, form=form, out=sys.stdout.buffer, parameters=parameters)
        return
    with _whole(out) as file:
        _write(engine, sql, form=form, out=file, parameters=parameters)


@contextmanager
def held_memory(limit_bytes: int) -> Iterator[None]:
    """Has the kernel see to it, too, that this process stays within some memory more than it has now.

    DuckDB counts what it keeps of tables; a single text that a query makes grow is not among it.
    """
    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + _SLACK_FACTOR * limit_bytes + _SLACK_BYTES
    most = [each for each in (before, hard) if each != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *most]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _write(
    engine: Engine, sql: str, *, form: Format, out: BinaryIO, parameters: Mapping[str, object] | None
) -> None:
    if form == "parquet":
        if out.isatty():
            raise UsageError("parquet is not for a terminal: add --out FILE, or send it into a pipe")
        write_parquet(engine.run_arrow(sql, parameters), out)
    elif out is sys.stdout.buffer:
        width = shutil.get_terminal_size((_WIDTH, 24)).columns if out.isatty() else _WIDTH
        write(engine.run(sql, parameters), format=form, out=sys.stdout, width=width)
    else:
        with open(out.fileno(), "w", encoding="utf-8", newline="", closefd=False) as text:
            write(engine.run(sql, parameters), format=form, out=text)


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """The file, which is there when all of it is written and not before."""
    beside = path.with_name(f"{path.name}.part")
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def ledger_tables(sites: Sequence[SiteRow], visits: Sequence[VisitRow]) -> dict[str, pa.Table]:
    """The tables that come from the ledger."""
    return {"site": _table(SiteRow, sites), "visit": _table(VisitRow, visits)}


def _table(kind: type[Record], rows: Sequence[Record]) -> pa.Table:
    """Rows of the ledger as DuckDB takes them; times become timestamps."""
    arrays = {
        name: pa.array([_value(getattr(row, name), column) for row in rows], column)
        for name, column in _COLUMNS[kind].items()
    }
    return pa.table(arrays)


def _value(value: object, column: pa.DataType) -> object:
    if column is not _TIME or not isinstance(value, float):
        return value
    return int(value * 1_000_000) if 0 < value < 1e11 else None
