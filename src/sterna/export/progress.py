"""How far an export is, for whoever shows it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, Protocol, TypeVar

_Each = TypeVar("_Each")
Unit = Literal["rows", "pages", "bytes"]
_STEP = 100  # rows after which an eye sees that it goes on


class ExportProgress(Protocol):
    """Told how an export goes; one piece of work after the other."""

    def begin(self, what: str, *, total: int, unit: Unit) -> None:
        """A piece of work begins, of which so much is to do."""

    def advance(self, count: int) -> None:
        """So much more of it is done."""


class Unseen:
    """Nobody looks."""

    def begin(self, what: str, *, total: int, unit: Unit) -> None:
        pass

    def advance(self, count: int) -> None:
        pass


class Tally:
    """Counts what passes, and tells the progress of it."""

    def __init__(self, progress: ExportProgress) -> None:
        self._progress = progress
        self._untold = 0
        self.count = 0

    def of(self, things: Iterable[_Each], size: Callable[[_Each], int] = lambda _: 1) -> Iterator[_Each]:
        """The same things, counted when the next one is asked for."""
        for thing in things:
            yield thing
            self._add(size(thing))
        self._tell()

    def _add(self, count: int) -> None:
        self.count += count
        self._untold += count
        if self._untold >= _STEP:
            self._tell()

    def _tell(self) -> None:
        self._progress.advance(self._untold)
        self._untold = 0
