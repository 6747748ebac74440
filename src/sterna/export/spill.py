"""Sets and maps on the disk, for exports that are larger than memory."""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

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

    def __iter__(self) -> Iterator[str]:
        """All keys, in the order of their bytes."""
        return (key for (key,) in self._db.execute("SELECT key FROM known ORDER BY key"))
