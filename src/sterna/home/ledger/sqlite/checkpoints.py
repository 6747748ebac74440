"""Carrying the log over into the tables, in a thread beside the writer: a commit need not wait for it."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

LOG_BYTES = 4 * 1024 * 1024  # the log's size from which a checkpoint is worth its syncs
MOST_FRAMES = 16_384  # 64 MB: the writer waits once the log is longer, so that it can begin anew
MOST_BYTES = MOST_FRAMES * 4096  # to which SQLite shortens a log that begins anew


class Checkpoints:
    """One at a time; the writer calls `begin` after each commit."""

    def __init__(self, log: Path, connect: Callable[[bool], sqlite3.Connection]) -> None:
        self._log = log
        self._connect = connect
        self._thread = ThreadPoolExecutor(1)
        self._connection: sqlite3.Connection | None = None  # made and used by the thread
        self._under_way: Future[None] | None = None
        self._frames = 0  # of the log, as the last checkpoint saw it; written by the thread

    def begin(self) -> None:
        """Has a long log carried over, unless that is under way."""
        # On a slow disk the log may grow too long before the first look at it is over.
        if self._frames >= MOST_FRAMES or self._log_bytes() > MOST_BYTES:
            # SQLite begins the log anew only where all of it was carried over before a transaction begins.
            self._finish()
            self._thread.submit(self._carry_over).result()
            self._frames = 0
        elif self._under_way is None or self._under_way.done():
            self._finish()
            if self._log_bytes() > LOG_BYTES:
                self._under_way = self._thread.submit(self._carry_over)

    def close(self) -> None:
        self._finish()
        self._thread.shutdown()
        if self._connection:
            self._connection.close()

    def _finish(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way:
            under_way.result()  # a disk that refuses is the writer's trouble too

    def _carry_over(self) -> None:
        if self._connection is None:
            self._connection = self._connect(False)
        _, self._frames, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size  # it keeps its size when it begins anew
        except FileNotFoundError:
            return 0
