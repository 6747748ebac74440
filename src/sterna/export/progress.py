"""What a display needs of an export: its formats and its progress; loads nothing else."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, Protocol, TypeVar

_Each = TypeVar("_Each")
ExportFormat = Literal["jsonl", "parquet", "csv", "warc", "cdxj", "wacz", "sitemap", "markdown"]
Unit = Literal["rows", "pages", "bytes"]
_STEP = 100  # between two reports


class ExportProgress(Protocol):
    """Receives the progress of an export, one piece of work after the other."""

    def begin(self, what: str, *, total: int, unit: Unit) -> None:
        """A piece of work of this size begins."""

    def advance(self, count: int) -> None:
        """`count` more of it is done."""


class Unseen:
    """Ignores the progress."""

    def begin(self, what: str, *, total: int, unit: Unit) -> None:
        pass

    def advance(self, count: int) -> None:
        pass


class Tally:
    """Counts items and reports the progress."""

    def __init__(self, progress: ExportProgress) -> None:
        self._progress = progress
        self.count = 0

    def of(self, things: Iterable[_Each], size: Callable[[_Each], int] = lambda _: 1) -> Iterator[_Each]:
        """The same items, each counted when the next one is requested."""
        told = self.count
        for thing in things:
            yield thing
            self.count += size(thing)
            if self.count - told >= _STEP:
                self._progress.advance(self.count - told)
                told = self.count
        self._progress.advance(self.count - told)
