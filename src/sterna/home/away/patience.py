"""How long home waits for a visit at a host that gives signs of life. Pure: it is told the time."""

from collections.abc import Callable

from sterna.model import Record

PAUSED, RESUMED = "paused:", "resumed:"  # how lines of a host's log begin that say so


def is_of_rest(line: str) -> bool:
    """True of a line that says that a visit rests, or goes on."""
    return line.startswith((PAUSED, RESUMED))


class Patience(Record, frozen=True, kw_only=True):
    """How long home waits for a host, and how often it tries."""

    silence_seconds: float = 30.0  # hosts give a sign of life every 10
    idle_seconds: float = 120.0  # beyond the visit's own seconds, with signs of life but without a parcel
    late_seconds: float = 3600.0  # beyond the visit's own seconds, for all of it
    paused_seconds: float = 24 * 3600.0  # in all, of pauses that the host tells of: they come on top
    stop_seconds: float = 5.0
    tries: int = 5  # one after the other that bring nothing
    pause_seconds: float = 1.0  # before the second try; each later pause is twice as long
    longest_pause_seconds: float = 60.0


class Clocks:
    """The clocks of one visit. They stand still from a line "paused:" to a parcel or a line "resumed:"."""

    def __init__(self, seconds: float, patience: Patience, *, now: float) -> None:
        """`seconds` are the visit's own."""
        self._spell = seconds + patience.idle_seconds
        # Changed by all of the methods but is_over().
        self._late_at = now + seconds + patience.late_seconds
        self._idle_at = now + self._spell
        self._paused_at: float | None = None
        self._pause_left = patience.paused_seconds

    def begin(self, now: float) -> None:
        """A stream begins: what came before it was a cut, and no idleness."""
        self._idle_at = now + self._spell

    def note_parcel(self, now: float) -> None:
        """The visit gets on."""
        self._resume(now)
        self._idle_at = now + self._spell

    def note_line(self, line: str, now: float) -> None:
        """A line of the host's log, which may say that the visit rests or goes on."""
        if line.startswith(PAUSED):
            self._paused_at = now if self._paused_at is None else self._paused_at
        elif line.startswith(RESUMED):
            self._resume(now)

    def is_over(self, now: float) -> bool:
        """True if home waits no longer."""
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


class Resting:
    """Tells people that a visit rests, and why: once of each site, for a host can say it very often."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._told: set[str] = set()  # sites; grows by note()

    def note(self, site: str, line: str) -> None:
        """A line of the host's log."""
        if line.startswith(PAUSED) and site not in self._told:
            self._told.add(site)
            self._warn(f"the crawler at {site} rests, and is waited for: {line.removeprefix(PAUSED).strip()}")
