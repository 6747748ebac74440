"""Timeouts of a visit at a host, which stand still while the host pauses it. Pure: the time is passed in."""

from sterna.model import Record
from sterna.wire.stream import PAUSED, RESUMED


class Patience(Record, frozen=True, kw_only=True):
    """How long home waits for a host, and how often it retries."""

    silence_seconds: float = 30.0  # without a byte; hosts send a keep-alive every 10
    idle_seconds: float = 120.0  # without a parcel, beyond the visit's own seconds
    late_seconds: float = 3600.0  # for the whole visit, beyond its own seconds
    paused_seconds: float = 24 * 3600.0  # of all pauses together; they are added to the others
    stop_seconds: float = 5.0
    tries: int = 5  # in a row without a parcel
    pause_seconds: float = 1.0  # before the second try; each later pause is twice as long
    longest_pause_seconds: float = 60.0


class Clocks:
    """The timeouts of one visit; they stand still from a "paused:" line to a "resumed:" line or a parcel."""

    def __init__(self, seconds: float, patience: Patience, *, now: float) -> None:
        """`seconds`: the visit's own time limit."""
        self._spell = seconds + patience.idle_seconds
        # Changed by all methods but is_over().
        self._late_at = now + seconds + patience.late_seconds
        self._idle_at = now + self._spell
        self._paused_at: float | None = None
        self._pause_left = patience.paused_seconds

    def begin(self, now: float) -> None:
        """A stream begins: the time before it was a cut, not idleness."""
        self._idle_at = now + self._spell

    def note_parcel(self, now: float) -> None:
        self._resume(now)
        self._idle_at = now + self._spell

    def note_line(self, line: str, now: float) -> None:
        """Takes a line of the host's log, which may report a pause or its end."""
        if line.startswith(PAUSED):
            self._paused_at = now if self._paused_at is None else self._paused_at
        elif line.startswith(RESUMED):
            self._resume(now)

    def is_over(self, now: float) -> bool:
        if self._paused_at is not None:
            return now - self._paused_at > self._pause_left
        return now > min(self._late_at, self._idle_at)

    def _resume(self, now: float) -> None:
        if self._paused_at is None:
            return
        paused, self._paused_at = now - self._paused_at, None
        self._pause_left -= paused
        self._late_at += paused
        self._idle_at = now + self._spell
