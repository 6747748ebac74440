"""The state of a host for its owner: the visits that are here, and what they use of their limits."""

from collections.abc import Callable

from sterna.host.state import Stop
from sterna.model import Budget, Record

UNDER_WAY = ("waiting", "queued", "running")  # the states of a visit that is not over


class VisitStatus(Record, frozen=True, array_like=False, kw_only=True):
    """One visit at the host; names come from strangers and may hold anything."""

    visit: str  # its id, chosen by its home
    home: str  # the key of the home that sent it
    name: str  # the owner's name for this home
    crawler: str  # its name
    state: str  # waiting, queued, running, finished, killed, expired
    since: float  # when it arrived
    pages: int = 0
    requests: int = 0
    read_bytes: int = 0  # from the site
    kept_bytes: int = 0  # of parcels that wait for home
    sent_bytes: int = 0  # of parcels, before compression
    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # of its own processes, where it has any
    limits: Budget = Budget()
    paused: str = ""  # why it rests; "": it does not


class HostStatus(Record, frozen=True, array_like=False, kw_only=True):
    site: str
    version: str
    began: float
    now: float
    pid: int
    doors: str = ""  # why they are closed; "": they are open
    load: str = ""  # as measured, in words
    paused: str = ""  # why all visits rest; "": they do not
    visits: tuple[VisitStatus, ...] = ()
    queue: int = 0  # visits that wait for a slot
    most_queue: int = 0
    crawlers: int = 0  # at work
    most_crawlers: int = 0
    kept_bytes: int = 0  # of all parcels that wait for their homes
    most_kept_bytes: int = 0
    memory_bytes: int = 0  # of the host and all its processes
    stops: tuple[Stop, ...] = ()  # crawlers that the owner stopped


# -- in words ----------------------------------------------------------------------------------------------


class Amount(Record, frozen=True):
    """Something that is used; a limit of 0 means none."""

    label: str
    used: float
    most: float
    text: str

    @property
    def share(self) -> float:
        """The used part of the limit, from 0 to 1; 0 if there is none."""
        return min(max(self.used / self.most, 0.0), 1.0) if self.most > 0 else 0.0


def amounts_of(visit: VisitStatus, *, now: float) -> tuple[Amount, ...]:
    """What a visit has used of its limits, in words for terminal and status page."""
    limits = visit.limits
    return (
        _amount("pages", visit.pages, limits.pages),
        _amount("requests", visit.requests, limits.requests),
        _amount("read", visit.read_bytes, limits.fetched_bytes, size_text),
        _amount("sent", visit.sent_bytes, limits.sent_bytes, size_text),
        _amount("kept", visit.kept_bytes, 0, size_text),
        _amount("cpu", visit.cpu_seconds, limits.cpu_seconds, seconds_text),
        _amount("memory", visit.memory_bytes, limits.memory_bytes, size_text),
        _amount("time", max(now - visit.since, 0.0), limits.seconds, seconds_text)
        if visit.state in UNDER_WAY
        else Amount("time", 0, 0, "over"),
    )


def host_amounts(status: HostStatus) -> tuple[Amount, ...]:
    return (
        _amount("crawlers", status.crawlers, status.most_crawlers),
        _amount("queue", status.queue, status.most_queue),
        _amount("kept", status.kept_bytes, status.most_kept_bytes, size_text),
        _amount("memory", status.memory_bytes, 0, size_text),
    )


def _amount(label: str, used: float, most: float, text: Callable[[float], str] = "{:,}".format) -> Amount:
    return Amount(label, used, most, f"{text(used)} of {text(most)}" if most > 0 else text(used))


def size_text(count: float) -> str:
    """A size such as 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def seconds_text(seconds: float) -> str:
    """A duration such as 12.3 s, 4 min or 2.0 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
