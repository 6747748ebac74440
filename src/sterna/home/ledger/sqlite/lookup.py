"""The rank of a URL in the frontier, and the lookup of links in `known`.

A rank is priority and depth in one number; the lowest rank is fetched first. Without a priority the rank is
the depth, so a crawl without priorities pays nothing for them, neither in the tables, which are the ledger's
largest, nor in the lookup of every link. Links are looked up in threads: a disk reads four times as much for
eight threads as for one.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from queue import Empty, SimpleQueue
from typing import TypeVar

from sterna.model import Target

BITS = 20
LEVELS = 1 << BITS  # depths of one priority
MAX_DEPTH = LEVELS - 1
MAX_PRIORITY = 2**31 - 1
LEAST = -(MAX_PRIORITY << BITS)
# Of what pages need: after all pages, and never at depth 0, which is for start pages.
REQUISITE_RANK = ((MAX_PRIORITY + 1) << BITS) + 1
GREATEST = REQUISITE_RANK + MAX_DEPTH
THREADS = 8
CHUNK = 256  # rows in one statement: a call for each row would cost more
Row = tuple[int, int, int]  # site, fingerprint, rank
T = TypeVar("T")


def rank_of(target: Target) -> int:
    """The rank of a URL; depth and priority are clamped to what a rank can hold."""
    if not target.priority and 0 <= target.depth < LEVELS:
        return target.depth
    depth = min(max(target.depth, 0), MAX_DEPTH)
    priority = min(max(target.priority, -MAX_PRIORITY), MAX_PRIORITY)
    return depth - (priority << BITS)


def depth_of(rank: int) -> int:
    return rank & MAX_DEPTH


def priority_of(rank: int) -> int:
    return -(rank >> BITS)


def best(one: int, other: int) -> int:
    """The rank with the higher of both priorities and the lower of both depths."""
    return (min(one >> BITS, other >> BITS) << BITS) + min(depth_of(one), depth_of(other))


class Lookup:
    """Reading connections beside the writer: they see the last commit, not the transaction under way."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._threads = ThreadPoolExecutor(THREADS)

    def __call__(self, links: Iterable[Row]) -> list[tuple[int, int, int, int | None]]:
        """The links that are new, or wait at a greater depth or a lower priority.

        The last item of each is the rank at which it waits; None if it is new.
        """
        # Each chunk goes to a thread as soon as it is full, while the next links are still being produced.
        return list(chain.from_iterable(self._threads.map(self._look_up, chunks(links))))

    def close(self) -> None:
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get().close()

    def _look_up(self, links: Sequence[Row]) -> list[tuple[int, int, int, int | None]]:
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = self._connect()
        try:
            return connection.execute(look_up_sql(len(links)), list(chain.from_iterable(links))).fetchall()
        finally:
            self._idle.put(connection)


def chunks(values: Iterable[T]) -> Iterator[list[T]]:
    """The values in lists for one statement each, lazily."""
    rest = iter(values)
    return iter(lambda: list(islice(rest, CHUNK)), [])


@cache
def look_up_sql(count: int) -> str:
    """The statement for `count` links; a plain join might start with `known` and read all of it."""
    return (
        f"WITH link (site, mark, rank) AS (VALUES {', '.join(['(?, ?, ?)'] * count)})"  # noqa: S608
        " SELECT site, mark, link.rank, known.rank FROM link"
        " LEFT JOIN known ON known.site_id = site AND known.fingerprint = mark"
        " WHERE known.rank IS NULL OR (NOT is_done AND known.rank <> link.rank"
        f" AND (known.rank & {MAX_DEPTH} > link.rank & {MAX_DEPTH}"
        f" OR known.rank >> {BITS} > link.rank >> {BITS}))"
    )
