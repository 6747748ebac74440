"""A collection from Python: `Collection("DIR").query(...)`, as `sterna query` asks it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.home.folder import Collection as Folder

if TYPE_CHECKING:
    from sterna.query.answer import Answer


class Collection:
    """The folder in which a crawl lives; it may be running."""

    def __init__(self, folder: Path | str) -> None:
        self._folder = Folder(Path(folder))
        self._folder.check()

    def query(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        visit: str | None = None,
        memory_bytes: int = 1_000_000_000,
        seconds: float = 60.0,
    ) -> "Answer":
        """What the query gives: rows as dicts, or a table of Arrow, pandas or polars.

        `$name` in the query is the parameter `name`; with `visit` all tables hold only what it brought.
        """
        # DuckDB and Arrow take a while to load.
        from sterna.api.query import Bounds, open_collection  # noqa: PLC0415
        from sterna.query.answer import Answer  # noqa: PLC0415

        bounds = Bounds(memory_bytes=memory_bytes, seconds=seconds)
        engine = open_collection(self._folder, visit=visit, bounds=bounds)
        try:
            return Answer(engine, engine.run_arrow(sql, parameters))
        except BaseException:
            engine.close()
            raise
