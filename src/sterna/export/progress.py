"""What a display needs of an export: its formats and its progress; loads nothing else."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar

_Each = TypeVar("_Each")
ExportFormat = Literal["jsonl", "parquet", "csv", "warc", "cdxj", "wacz", "sitemap", "markdown"]
Form = Literal["jsonl", "csv", "parquet"]  # those made of rows
Unit = Literal["rows", "pages", "bytes"]


class ExportProgress:
    """The current piece of work; changed by the export, read by the thread that shows it."""

    def __init__(self) -> None:
        self.begin("", total=0, unit="rows")

    def begin(self, what: str, *, total: int, unit: Unit) -> None:
        self.what, self.total, self.unit, self.done = what, total, unit, 0

    def of(self, things: Iterable[_Each], size: Callable[[_Each], int] = lambda _: 1) -> Iterator[_Each]:
        """The same items, each counted as done when the next one is requested."""
        for thing in things:
            yield thing
            self.done += size(thing)
