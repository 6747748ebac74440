"""Asking a collection: the archive's segments and the ledger's rows, given to the query engine."""

import signal
import sys
from collections.abc import Sequence

import pyarrow as pa

from sterna.archive.rows import SCHEMAS, fact_table
from sterna.home.collection import Collection
from sterna.home.errand import load
from sterna.home.facts import own
from sterna.home.ledger import SiteRow, VisitRow
from sterna.home.sqlite.ledger import SqliteLedger
from sterna.model import Record
from sterna.query.engine import Engine
from sterna.query.output import Format, write

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
}


def ask(collection: Collection, sql: str, *, form: Format) -> None:
    """Prints what the query gives; Ctrl-C ends it at once, even in the middle of DuckDB's work."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ledger = SqliteLedger(collection.ledger_path, is_reader=True)
    try:
        segments = ledger.segments()
        errand = load(ledger.setting("errand"))
        facts = own(ledger.facts(), crawler=errand.crawler.name if errand else "")
        extra = {**ledger_tables(ledger.site_rows(), ledger.visit_rows()), "fact": fact_table(facts)}
    finally:
        ledger.close()
    tables = {
        name: [collection.segments_folder / segment.name for segment in segments if segment.table == name]
        for name in SCHEMAS
    }
    with Engine(tables, extra=extra) as engine:
        write(engine.run(sql), format=form, out=sys.stdout)


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
