"""Following the archive: those who do something with all that comes in, beside the crawl and after it."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from sterna.archive.manifest import Snapshot
from sterna.errors import SternaError

LOOK_SECONDS = 0.5
RETRY_SECONDS = 5.0  # after trouble: another process may be at it, or the disk be full


class Follower(Protocol):
    """Keeps its position where its results are, in the same commit: a crash parts them nowhere."""

    @property
    def batch(self) -> int:
        """Up to which it has caught up."""

    def catch_up(self, snapshot: Snapshot, *, stop: threading.Event) -> None:
        """Goes on from there; returns early, and leaves the rest, when `stop` is set.

        Called again and again, also where nothing is new: it may have something of its own to try again.
        """


Open = Callable[[], AbstractContextManager[Follower] | None]  # None: nobody wants it now


class Pursuit:
    """One follower on its way; each runs in a thread of its own, so that none holds up another."""

    def __init__(
        self,
        name: str,
        open_follower: Open,
        *,
        take: Callable[[], Snapshot],
        wait: Callable[[float], bool],
        stop: threading.Event,
        warn: Callable[[str], None],
    ) -> None:
        """`wait` waits so many seconds, or until the crawl is over, and tells whether it is."""
        self.name = name
        self._open = open_follower
        self._take = take
        self._wait = wait
        self._stop = stop
        self._warn = warn
        # All of these are changed by run(), in its thread.
        self._follower: Follower | None = None
        self._batch = -1
        self._trouble = ""
        self._told: set[str] = set()
        self.is_broken = False  # it ended by an error of its own

    @property
    def batch(self) -> int:
        """Up to which the follower has caught up; -1: it was never there."""
        follower = self._follower
        return follower.batch if follower else self._batch

    @property
    def is_on_its_way(self) -> bool:
        """True while there is a follower."""
        return self._follower is not None

    def run(self) -> None:
        """Catches up until the crawl is over, and then with what came before its end, as far as it can."""
        try:
            with ExitStack() as stack:
                self._pursue(stack)
        except Exception as error:
            self.is_broken = True
            self._tell(f"{self.name} ended: {type(error).__name__}: {error}")
            raise
        if self._trouble:
            self._tell(self._trouble)

    def _pursue(self, stack: ExitStack) -> None:
        is_over = False
        while not self._stop.is_set():
            before = self.batch
            is_behind = self._catch_up(stack)
            if is_over and not (is_behind and self.batch > before):
                return
            is_over = self._wait(RETRY_SECONDS if self._trouble else LOOK_SECONDS)

    def _catch_up(self, stack: ExitStack) -> bool:
        """True if the follower has left something of what is there."""
        try:
            follower = self._follower = self._follower or self._opened(stack)
            if follower is None:
                return False
            snapshot = self._take()
            follower.catch_up(snapshot, stop=self._stop)
        except SternaError as error:
            self._batch = self.batch
            self._follower = None
            stack.close()
            self._note_trouble(f"{self.name}: {error}")
            return False
        self._trouble = ""
        return follower.batch < snapshot.batch

    def _opened(self, stack: ExitStack) -> Follower | None:
        opened = self._open()
        return stack.enter_context(opened) if opened else None

    def _note_trouble(self, text: str) -> None:
        """What passes by itself is told to nobody."""
        if text == self._trouble:
            self._tell(text)
        self._trouble = text

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._warn(text)
