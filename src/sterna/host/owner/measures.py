"""What a visit takes against its limits, in words that terminal and status page share."""

from sterna.host.owner.status import UNDER_WAY, HostStatus, VisitStatus
from sterna.model import Record


class Amount(Record, frozen=True):
    """Something that is used; a limit of 0 is none."""

    label: str
    used: float
    most: float
    text: str

    @property
    def share(self) -> float:
        """Of the limit, from 0 to 1; 0 where there is none."""
        return min(max(self.used / self.most, 0.0), 1.0) if self.most > 0 else 0.0


def amounts_of(visit: VisitStatus, *, now: float) -> tuple[Amount, ...]:
    """What a visit has used of what."""
    limits = visit.limits
    return (
        _amount("pages", visit.pages, limits.pages, f"{visit.pages:,}", f"{limits.pages:,}"),
        _amount("requests", visit.requests, limits.requests, f"{visit.requests:,}", f"{limits.requests:,}"),
        _bytes("read", visit.read_bytes, limits.fetched_bytes),
        _bytes("sent", visit.sent_bytes, limits.sent_bytes),
        _bytes("kept", visit.kept_bytes, 0),
        _seconds("cpu", visit.cpu_seconds, limits.cpu_seconds),
        _bytes("memory", visit.memory_bytes, limits.memory_bytes),
        _time(visit, now),
    )


def _time(visit: VisitStatus, now: float) -> Amount:
    if visit.state not in UNDER_WAY:
        return Amount("time", 0, 0, "over")
    return _seconds("time", max(now - visit.since, 0.0), visit.limits.seconds)


def host_amounts(status: HostStatus) -> tuple[Amount, ...]:
    """The same of the host as a whole."""
    return (
        _amount(
            "crawlers",
            status.crawlers,
            status.most_crawlers,
            f"{status.crawlers:,}",
            f"{status.most_crawlers:,}",
        ),
        _amount("queue", status.queue, status.most_queue, f"{status.queue:,}", f"{status.most_queue:,}"),
        _bytes("kept", status.kept_bytes, status.most_kept_bytes),
        _bytes("memory", status.memory_bytes, 0),
    )


def _amount(label: str, used: float, most: float, used_text: str, most_text: str) -> Amount:
    return Amount(label, used, most, f"{used_text} of {most_text}" if most > 0 else used_text)


def _bytes(label: str, used: float, most: float) -> Amount:
    return _amount(label, used, most, size_text(used), size_text(most))


def _seconds(label: str, used: float, most: float) -> Amount:
    return _amount(label, used, most, seconds_text(used), seconds_text(most))


def size_text(count: float) -> str:
    """12.3 MB and the like."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def seconds_text(seconds: float) -> str:
    """12.3 s, 4 min, 2 h and the like."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
