"""What a rule's queries answer for a range of batches, in pieces of bounded size."""

from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sterna.archive.arrivals import arrivals
from sterna.archive.manifest import Snapshot
from sterna.errors import QueryError
from sterna.model import Record
from sterna.query.engine import Engine
from sterna.storage.columns import SIMPLE, ColumnRows
from sterna.storage.config import RuleSpec
from sterna.storage.rows import Row

PIECE_ROWS = 4_000
PIECE_CHARACTERS = 8_000_000
_FETCHED_ROWS = 1_000
_SAMPLED_ROWS = 50  # of these; to look at all of them would cost as much as to send them
MEMORY_BYTES = 500_000_000
TIME_LIMIT_SECONDS = 60.0

# Each of these lets a row of the answer depend on more than one row of the table.
_OVER_ROWS = (
    exp.AggFunc, exp.Anonymous, exp.AnonymousAggFunc, exp.Distinct, exp.Group, exp.Having, exp.Join,
    exp.Lateral, exp.Limit, exp.Offset, exp.Order, exp.Pivot, exp.Qualify, exp.Rand, exp.SetOperation,
    exp.Subquery, exp.TableSample, exp.Window, exp.With,
)  # fmt: skip
_OF_THE_WHOLE = frozenset({"site", "visit"})  # what home knows of all of them, not what came with a batch


class Piece(Record, frozen=True):
    """Some rows of an answer, for one of the rule's stores."""

    step: int
    batch: int  # the last one that it was asked of
    columns: tuple[str, ...]
    rows: Sequence[Row]


def pieces(
    rule: RuleSpec,
    steps: Sequence[int],
    *,
    snapshot: Snapshot,
    after: int,
    upto: int,
    in_columns: Collection[int] = (),
) -> Generator[Piece, None, None]:
    """The rows of these steps for the batches after < batch <= upto.

    A query is answered once for every batch; where that gives the same, for all of them at once. Rows of the
    steps `in_columns` are ColumnRows, where their values allow it.
    """
    if all(is_by_row(rule.store[step].query) for step in steps):
        spans = [(after, upto)]
    else:
        spans = [(batch - 1, batch) for batch in _batches(rule.crawler, snapshot, after=after, upto=upto)]
        in_columns = ()  # few rows at a time: to ask for their types first costs more than it saves
    for first, last in spans:
        with _engine(rule, snapshot, after=first, upto=last) as engine:
            yield from _ahead(_answers(engine, rule, steps, batch=last, in_columns=in_columns))


def _ahead(answers: Generator[Piece, None, None]) -> Iterator[Piece]:
    """The same pieces; while a database digests one, the next is made."""
    with closing(answers), ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, answers, None)
        while piece := coming.result():
            coming = maker.submit(next, answers, None)
            yield piece


def columns_of(rule: RuleSpec, step: int, *, snapshot: Snapshot) -> tuple[str, ...]:
    """The columns that a query gives; QueryError says what is wrong with it."""
    with _engine(rule, snapshot, after=snapshot.batch, upto=snapshot.batch) as engine:
        result = engine.run(rule.store[step].query)
        next(result.rows, None)
        return tuple(result.columns)


@lru_cache(maxsize=256)
def is_by_row(query: str) -> bool:
    """True if each row of the answer comes from one row of one table, whatever else the table holds."""
    try:
        (tree,) = sqlglot.parse(query, read="duckdb")
    except (SqlglotError, ValueError, RecursionError):
        return False
    if not isinstance(tree, exp.Select) or tree.find(*_OVER_ROWS):
        return False
    tables = list(tree.find_all(exp.Table))
    is_plain = len(tables) == 1 and isinstance(tables[0].this, exp.Identifier)
    return (
        is_plain and len(list(tree.find_all(exp.Select))) == 1 and tables[0].name.lower() not in _OF_THE_WHOLE
    )


def _batches(crawler: str, snapshot: Snapshot, *, after: int, upto: int) -> list[int]:
    """The batches to which crawlers of this name or pattern brought something."""
    found: set[int] = set()
    for paths in snapshot.tables.values():
        for rows in arrivals(paths, after=after, upto=upto, columns=["batch", "crawler"]):
            pairs = rows.group_by(["batch", "crawler"]).aggregate([]).to_pylist()
            found |= {pair["batch"] for pair in pairs if fnmatchcase(pair["crawler"] or "", crawler)}
    return sorted(found)


def _answers(
    engine: Engine, rule: RuleSpec, steps: Sequence[int], *, batch: int, in_columns: Collection[int]
) -> Generator[Piece, None, None]:
    for step in steps:
        query = rule.store[step].query
        if step in in_columns and _is_simple(engine, query):
            found = engine.run_arrow(query, batch_rows=_FETCHED_ROWS)
            for table in _gathered(found.batches):
                yield Piece(step, batch, tuple(found.schema.names), ColumnRows(table))
        else:
            result = engine.run(query)
            for rows in _parted(result.rows):
                yield Piece(step, batch, tuple(result.columns), rows)


def _is_simple(engine: Engine, query: str) -> bool:
    """True if all columns are of types that are the same in Arrow; the query is not answered for that."""
    try:
        return all(kind in SIMPLE for _, kind, *_ in engine.run(f"DESCRIBE {query}").rows)
    except QueryError:
        return False  # it will say itself what is wrong with it


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches in tables that are neither too long nor too large."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(map(len, some)) >= PIECE_ROWS or sum(each.nbytes for each in some) >= PIECE_CHARACTERS:
            yield pa.Table.from_batches(some)
            some = []
    if some:
        yield pa.Table.from_batches(some)


def _parted(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """The rows in lists that are neither too long nor too large: each costs some trips to the database."""
    part: list[Row] = []
    characters = 0
    while some := list(islice(rows, _FETCHED_ROWS)):
        part += some
        characters += _characters(some[:: len(some) // _SAMPLED_ROWS + 1]) * len(some) // _SAMPLED_ROWS
        if len(part) >= PIECE_ROWS or characters >= PIECE_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part


def _characters(rows: Sequence[Row]) -> int:
    return sum(len(value) for row in rows for value in row if isinstance(value, str))


def _engine(rule: RuleSpec, snapshot: Snapshot, *, after: int, upto: int) -> Engine:
    return Engine(
        snapshot.tables,
        after=after,
        upto=upto,
        crawler=rule.crawler,
        memory_bytes=MEMORY_BYTES,
        time_limit_seconds=TIME_LIMIT_SECONDS,
    )
