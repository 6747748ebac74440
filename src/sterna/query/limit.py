"""A limit on the time that a query works; the time that its reader takes does not count."""

import threading
import time
from collections.abc import Callable
from types import TracebackType


class TimeLimit:
    """Entered around each piece of work; calls `interrupt` when all of them have used up the seconds."""

    def __init__(self, seconds: float, interrupt: Callable[[], None]) -> None:
        self.seconds = seconds
        self.is_over = False  # set by the timer's thread only
        self._interrupt = interrupt
        self._left_seconds = seconds
        self._began = 0.0
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        self._began = time.monotonic()
        self._timer = threading.Timer(max(self._left_seconds, 0), self._end)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._left_seconds -= time.monotonic() - self._began

    def _end(self) -> None:
        self.is_over = True
        self._interrupt()
