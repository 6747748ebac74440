"""What a rule's queries answer for a range of batches, in chunks of bounded size.

Runs in a confined process: see storage/confined.
"""

from collections.abc import Collection, Generator, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain, islice

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sterna.archive.arrivals import arrivals
from sterna.archive.manifest import Snapshot
from sterna.archive.parquet import gathered
from sterna.errors import QueryError
from sterna.model import Record
from sterna.query.engine import Engine
from sterna.query.scan import Within
from sterna.storage.config import RuleSpec
from sterna.storage.rows import SIMPLE_TYPES, ColumnRows, Row

CHUNK_ROWS = 4_000
CHUNK_CHARACTERS = 8_000_000
_FETCHED_ROWS = 1_000
_SAMPLED_ROWS = 50  # of these; measuring all of them would cost as much as sending them
MEMORY_BYTES = 500_000_000

# With any of these a row of the answer may depend on several rows of the table.
_OVER_ROWS = (
    exp.AggFunc, exp.Anonymous, exp.AnonymousAggFunc, exp.Distinct, exp.Group, exp.Having, exp.Join,
    exp.Lateral, exp.Limit, exp.Offset, exp.Order, exp.Pivot, exp.Qualify, exp.Rand, exp.SetOperation,
    exp.Subquery, exp.TableSample, exp.Window, exp.With,
)  # fmt: skip
_OF_THE_WHOLE = frozenset({"site", "visit"})  # tables that do not come in batches


class Chunk(Record, frozen=True):
    """Some rows of an answer, for one of the rule's stores."""

    step: int
    batch: int  # the last batch of the range
    columns: tuple[str, ...]
    rows: Sequence[Row]


def read_chunks(
    rule: RuleSpec,
    steps: Sequence[int],
    *,
    snapshot: Snapshot,
    after: int,
    upto: int,
    in_columns: Collection[int] = (),
) -> Generator[Chunk, None, None]:
    """The rows of these steps for the batches after < batch <= upto.

    A query runs once for every batch, or once for all of them if the result is the same. Rows of the steps
    `in_columns` are ColumnRows if their values allow it.
    """
    if all(is_by_row(rule.store[step].query) for step in steps):
        spans = [(after, upto)]
    else:
        spans = [(batch - 1, batch) for batch in _batches(rule.crawler, snapshot, after=after, upto=upto)]
        in_columns = ()  # for few rows, asking for their types costs more than it saves
    for first, last in spans:
        with _engine(rule, snapshot, after=first, upto=last) as engine:
            yield from _answers(engine, rule, steps, batch=last, in_columns=in_columns)


def columns_of(rule: RuleSpec, step: int, *, snapshot: Snapshot) -> tuple[str, ...]:
    """The columns of a query's answer; QueryError if it is malformed."""
    with _engine(rule, snapshot, after=snapshot.batch, upto=snapshot.batch) as engine:
        result = engine.run(rule.store[step].query)
        next(result.rows, None)
        return tuple(result.columns)


@lru_cache(maxsize=256)
def is_by_row(query: str) -> bool:
    """True if each row of the answer depends on one row of one table only."""
    try:
        (tree,) = sqlglot.parse(query, read="duckdb")
    except (SqlglotError, ValueError, RecursionError):
        return False
    if not isinstance(tree, exp.Select) or tree.find(*_OVER_ROWS):
        return False
    tables, selects = list(tree.find_all(exp.Table)), list(tree.find_all(exp.Select))
    is_plain = len(tables) == len(selects) == 1 and isinstance(tables[0].this, exp.Identifier)
    return is_plain and tables[0].name.lower() not in _OF_THE_WHOLE


def _batches(crawler: str, snapshot: Snapshot, *, after: int, upto: int) -> list[int]:
    """The batches with rows of crawlers of this name or pattern."""
    found: set[int] = set()
    for paths in snapshot.tables.values():
        for rows in arrivals(paths, after=after, upto=upto, columns=["batch", "crawler"]):
            pairs = rows.group_by(["batch", "crawler"]).aggregate([]).to_pylist()
            found |= {pair["batch"] for pair in pairs if fnmatchcase(pair["crawler"] or "", crawler)}
    return sorted(found)


def _answers(
    engine: Engine, rule: RuleSpec, steps: Sequence[int], *, batch: int, in_columns: Collection[int]
) -> Generator[Chunk, None, None]:
    for step in steps:
        query = rule.store[step].query
        if step in in_columns and _is_simple(engine, query):
            found = engine.run_arrow(query, batch_rows=_FETCHED_ROWS)
            tables = (pa.Table.from_batches([batch]) for batch in found.batches)
            for table in gathered(tables, least_bytes=CHUNK_CHARACTERS, least_rows=CHUNK_ROWS):
                yield Chunk(step, batch, tuple(found.schema.names), ColumnRows(table))
        else:
            result = engine.run(query)
            for rows in _parted(result.rows):
                yield Chunk(step, batch, tuple(result.columns), rows)


def _is_simple(engine: Engine, query: str) -> bool:
    """True if Arrow represents all columns exactly; this does not run the query."""
    try:
        return all(kind in SIMPLE_TYPES for _, kind, *_ in engine.run(f"DESCRIBE {query}").rows)
    except QueryError:
        return False  # the query itself will raise the error


def _parted(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """The rows in lists of bounded length and size; each list costs several round trips."""
    part: list[Row] = []
    characters = 0
    while some := list(islice(rows, _FETCHED_ROWS)):
        part += some
        sample = chain.from_iterable(some[:: len(some) // _SAMPLED_ROWS + 1])
        length = sum(len(value) for value in sample if isinstance(value, str))
        characters += length * len(some) // _SAMPLED_ROWS
        if len(part) >= CHUNK_ROWS or characters >= CHUNK_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part


def _engine(rule: RuleSpec, snapshot: Snapshot, *, after: int, upto: int) -> Engine:
    within = Within(after=after, upto=upto, crawler=rule.crawler)
    return Engine(snapshot.tables, within=within, memory_bytes=MEMORY_BYTES)
