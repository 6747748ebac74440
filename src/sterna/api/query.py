"""The query engine over a collection or a crawler's file."""

import logging
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec
import pyarrow as pa

from sterna.archive.rows import SCHEMAS, fact_table
from sterna.crawler.pack import read as read_packed
from sterna.errors import UsageError
from sterna.home.errand import load
from sterna.home.facts import own
from sterna.home.folder import CollectionFolder, names_of
from sterna.home.ledger.records import SiteFact, SiteRow, VisitRow
from sterna.model import Record, Target
from sterna.query.engine import MEMORY_BYTES, TIME_LIMIT_SECONDS, Engine
from sterna.query.scan import Within
from sterna.query.terminal import harmless
from sterna.query.union import Part
from sterna.wire.holdings import Waiting

_log = logging.getLogger(__name__)

_TEXT, _COUNT, _TIME = pa.string(), pa.int64(), pa.timestamp("us", "UTC")
_TYPES = {str: _TEXT, int: _COUNT, float: _TIME}


def _columns(kind: type[Record]) -> dict[str, pa.DataType]:
    """The columns of a record of the ledger, in which a float is a time unless its name says seconds."""
    columns = {}
    for field in msgspec.structs.fields(kind):
        plain = (get_args(field.type) or (field.type,))[0]  # without the None of `str | None`
        columns[field.name] = pa.float64() if field.name.endswith("_seconds") else _TYPES[plain]
    return columns


_COLUMNS: dict[type[Record], dict[str, pa.DataType]] = {
    SiteRow: _columns(SiteRow),
    VisitRow: _columns(VisitRow),
    Waiting: {"depth": _COUNT, "urls": _COUNT},
    Target: {"url": _TEXT, "depth": _COUNT, "priority": _COUNT, "referrer": _TEXT},
}

# Memory beside what DuckDB counts: rows on their way, and what allocators keep.
_SLACK_FACTOR = 2
_SLACK_BYTES = 512_000_000


def open_collection(
    collection: CollectionFolder,
    *,
    visit: str | None = None,
    memory_bytes: int = MEMORY_BYTES,
    seconds: float = TIME_LIMIT_SECONDS,
    files: Mapping[str, Sequence[Path]] | None = None,
    spill_folder: Path | None = None,
    warn: Callable[[str], None] = _log.warning,
) -> Engine:
    """The tables of a collection as of its last commit; with `visit` only what that visit brought.

    `files` replaces the segments that are committed now by those of an earlier snapshot. Damaged segments are
    left out, and `warn` is told.
    """
    contents = _contents(collection)
    sites, visits = contents.sites, contents.visits
    if visit is not None:
        visits = [row for row in visits if row.visit == visit]
        if not visits:
            raise UsageError(f"unknown visit {harmless(visit)!r}: the table visit lists them")
        sites = [row for row in sites if row.site == visits[0].site]
    return Engine(
        files or contents.files,
        extra={**ledger_tables(sites, visits), "fact": contents.facts},
        within=Within(visit=visit),
        memory_bytes=memory_bytes,
        time_limit_seconds=seconds,
        spill_folder=spill_folder,
        warn=warn,
    )


def open_collections(
    collections: Sequence[CollectionFolder],
    *,
    memory_bytes: int = MEMORY_BYTES,
    seconds: float = TIME_LIMIT_SECONDS,
    warn: Callable[[str], None] = _log.warning,
) -> Engine:
    """The tables of several collections as one; their column `collection` has the name of the folder."""
    members = []
    for name, collection in zip(names_of(collections), collections, strict=True):
        contents = _contents(collection)
        files = {table: [str(path) for path in paths] for table, paths in contents.files.items()}
        extra = {**ledger_tables(contents.sites, contents.visits), "fact": contents.facts}
        members.append(Part(name, files, extra))
    return Engine({}, members=members, memory_bytes=memory_bytes, time_limit_seconds=seconds, warn=warn)


class _Contents(NamedTuple):
    """What is committed in a collection now."""

    files: dict[str, list[Path]]
    facts: pa.Table
    sites: list[SiteRow]
    visits: list[VisitRow]


def _contents(collection: CollectionFolder) -> _Contents:
    with collection.open_ledger() as ledger:
        segments = ledger.segments()
        errand = load(ledger.setting("errand"))
        facts = own(ledger.facts(), crawler=errand.crawler.name if errand else "")
        sites, visits = ledger.site_rows(), ledger.visit_rows()
    files = {
        name: [collection.segments_folder / segment.name for segment in segments if segment.table == name]
        for name in SCHEMAS
    }
    return _Contents(files, fact_table(facts), sites, visits)


def open_crawler(
    path: Path, *, memory_bytes: int = MEMORY_BYTES, seconds: float = TIME_LIMIT_SECONDS
) -> Engine:
    """The contents of a crawler's file: its first facts, those made since, and the URLs to fetch."""
    packed = read_packed(path)
    name, progress = packed.crawler.name, packed.progress
    first = own((SiteFact("", *each) for each in enumerate(packed.crawler.facts)), crawler=name)
    kept = own((SiteFact("", *each) for each in progress.state.facts), crawler=name)
    kinds = pa.array(["first"] * len(first) + ["own"] * len(kept), _TEXT)
    facts = fact_table([*first, *kept]).append_column("kind", kinds)
    return Engine(
        {},
        extra={"fact": facts, "target": table_of(Target, progress.frontier)},
        memory_bytes=memory_bytes,
        time_limit_seconds=seconds,
    )


@contextmanager
def held_memory(limit_bytes: int) -> Iterator[None]:
    """Limits the memory that this process may allocate from now on, by the kernel.

    DuckDB counts what it keeps of tables, but not a single text that a query makes grow.
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


def ledger_tables(sites: Sequence[SiteRow], visits: Sequence[VisitRow]) -> dict[str, pa.Table]:
    return {"site": table_of(SiteRow, sites), "visit": table_of(VisitRow, visits)}


def table_of(kind: type[Record], rows: Sequence[Record]) -> pa.Table:
    """Rows of the ledger as an Arrow table; times become timestamps."""
    columns = _COLUMNS[kind]
    values = {name: [_value(getattr(row, name), kind) for row in rows] for name, kind in columns.items()}
    return pa.table(values, schema=pa.schema(columns))


def _value(found: object, kind: pa.DataType) -> object:
    if kind is not _TIME or not isinstance(found, float):
        return found
    return int(found * 1_000_000) if 0 < found < 1e11 else None
