"""Sets, maps and sorted lines on the disk, for exports that are larger than memory."""

import heapq
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

RUN_BYTES = 16 << 20  # sorted in memory, and then written
_MAX_RUNS = 64  # read at once: each is an open file
_CACHE_KIB = 32 * 1024


class Lookup:
    """A map in a file of its own, which need not survive anything."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._db.execute("CREATE TABLE known (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        self._db.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._db.close()

    def add(self, key: str) -> bool:
        """Remembers a key, and tells whether it is new."""
        return self._db.execute("INSERT OR IGNORE INTO known VALUES (?, '')", (key,)).rowcount == 1

    def add_all(self, keys: Iterable[str]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO known VALUES (?, '')", ((key,) for key in keys))

    def put_newest(self, key: str, value: str) -> None:
        """Remembers a value, unless the one that is known comes later in the order of texts."""
        self._db.execute(
            "INSERT INTO known VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
            " WHERE excluded.value > value",
            (key, value),
        )

    def get(self, key: str) -> str | None:
        found = self._db.execute("SELECT value FROM known WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None


class Sorter:
    """Takes lines, each with its line break, and gives them in the order of their bytes."""

    def __init__(self, folder: Path, *, run_bytes: int = RUN_BYTES) -> None:
        self._folder = folder
        self._run_bytes = run_bytes
        self._lines: list[bytes] = []
        self._size_bytes = 0
        self._runs: list[Path] = []
        self._made = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size_bytes += len(line)
        if self._size_bytes < self._run_bytes:
            return
        self._lines.sort()
        if len(self._runs) == _MAX_RUNS:
            old = self._runs
            self._runs = [self._write(_merged(old, []))]
            for path in old:
                path.unlink()
        self._runs.append(self._write(iter(self._lines)))
        self._lines, self._size_bytes = [], 0

    def lines(self) -> Iterator[bytes]:
        """All lines; none can be added after."""
        self._lines.sort()
        yield from _merged(self._runs, self._lines)

    def _write(self, lines: Iterator[bytes]) -> Path:
        self._made += 1
        path = self._folder / f"run-{self._made}"
        with path.open("xb") as file:
            file.writelines(lines)
        return path


def _merged(runs: list[Path], lines: list[bytes]) -> Iterator[bytes]:
    with ExitStack() as opened:
        files = [opened.enter_context(path.open("rb")) for path in runs]
        yield from heapq.merge(*files, lines)
