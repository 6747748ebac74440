"""What a host writes into its audit log; and that nothing runs while it cannot."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from sterna.errors import Refused, StorageError
from sterna.host.owner.audit import Audit, Value

REFUSALS_A_MINUTE = 60  # that get a line each; the others of the minute are counted in one
WINDOW_SECONDS = 60.0
RETRY_SECONDS = 60.0
_SPACING_SECONDS = 1.0  # between two of them, where every request is a process of its own

_log = logging.getLogger(__name__)


class Notes:
    """Writes notes and remembers when that went wrong; changed in one thread at a time."""

    def __init__(
        self, audit: Audit, *, spacing_file: Path | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._audit = audit
        self._spacing_file = spacing_file  # shared by processes that see one request each
        self._now = now
        self.fault = ""  # why the last note could not be written
        self._lost = 0  # notes since then
        self._window_began = -WINDOW_SECONDS
        self._refusals = 0  # in this window
        self._unsaid = 0  # of these, without a line of their own

    def note(self, event: str, **fields: Value) -> bool:
        """Adds a line; False if it cannot be written, after which nothing new is taken."""
        try:
            if self.fault:
                self._audit.note("notes-lost", count=self._lost)
                self.fault, self._lost = "", 0
            self._audit.note(event, **fields)
        except StorageError as error:
            if not self.fault:
                _log.error("%s; crawlers are refused until it can", error)
            self.fault = str(error)
            self._lost += 1
            return False
        return True

    def must(self, event: str, **fields: Value) -> None:
        """Adds a line; Refused if it cannot be written."""
        if not self.note(event, **fields):
            raise Refused("internal", "the audit log cannot be written", retry_after=RETRY_SECONDS)

    def check(self) -> None:
        """Refused if the log could not be written the last time, and still cannot."""
        if self.fault:
            self.must("notes-resumed")

    def refusal(self, error: Refused, **fields: Value) -> None:
        """Notes that somebody was refused; strangers can do that as often as they like, so not each time."""
        if self._spacing_file:
            if _is_new(self._spacing_file):
                return
            self.note("home-refused", problem=error.problem, why=error.detail, **fields)
            return
        now = self._now()
        if abs(now - self._window_began) >= WINDOW_SECONDS:
            self.flush()
            self._window_began, self._refusals = now, 0
        self._refusals += 1
        if self._refusals > REFUSALS_A_MINUTE:
            self._unsaid += 1
            return
        self.note("home-refused", problem=error.problem, why=error.detail, **fields)

    def flush(self) -> None:
        """Writes how many refusals had no line of their own."""
        if self._unsaid:
            self.note("home-refused", count=self._unsaid, why="too many in a minute for a line each")
            self._unsaid = 0


def _is_new(path: Path) -> bool:
    """Whether the file was made or touched a moment ago; it is now."""
    try:
        was = path.stat().st_mtime
    except OSError:
        was = 0.0
    try:
        path.touch(mode=0o600)
    except OSError:
        return True  # the disk is full, and this note is not worth more
    return abs(time.time() - was) < _SPACING_SECONDS
