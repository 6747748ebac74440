"""How a host stands, worked out for its owner: its visits against their limits, and the load."""

import os
from pathlib import Path

from sterna.host.owner.status import HostStatus, VisitStatus
from sterna.host.policy.load import LoadMeter, family_of
from sterna.host.premises import Premises
from sterna.host.visiting.hosted import HostedVisit
from sterna.host.visiting.visits import Visits
from sterna.version import __version__

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def status_of(
    premises: Premises, visits: Visits | None, meter: LoadMeter | None, *, began: float
) -> HostStatus:
    """The host as it stands now."""
    limits = premises.limits
    here = visits.under_way() if visits else []
    resting = {hosted.paused for hosted in here}
    return HostStatus(
        site=premises.config.site,
        version=__version__,
        began=began,
        now=premises.wall(),
        pid=os.getpid(),
        doors=premises.doors.are_closed() or "",
        load=str(meter.load) if meter and here else "",
        paused=resting.pop() if len(resting) == 1 else "",
        visits=tuple(map(_visit_status, visits.all() if visits else ())),
        queue=sum(hosted.state == "queued" for hosted in here),
        most_queue=limits.queue,
        crawlers=sum(hosted.state == "running" for hosted in here),
        most_crawlers=limits.crawlers_at_once,
        kept_bytes=visits.kept_bytes if visits else 0,
        most_kept_bytes=limits.kept_bytes_total,
        memory_bytes=sum(map(_memory_bytes, family_of(os.getpid()))),
    )


def _visit_status(hosted: HostedVisit) -> VisitStatus:
    used = hosted.reins.look()
    return VisitStatus(
        visit=hosted.visit.id,
        home=hosted.home,
        name=hosted.name,
        crawler=hosted.visit.crawler.name,
        state=hosted.state,
        since=hosted.since,
        pages=used.pages,
        requests=used.requests,
        read_bytes=used.read_bytes,
        kept_bytes=hosted.spool.kept_bytes,
        sent_bytes=used.sent_bytes,
        cpu_seconds=used.cpu_seconds,
        memory_bytes=used.memory_bytes,
        limits=hosted.visit.budget,
        paused=hosted.paused,
    )


def _memory_bytes(pid: int) -> int:
    """What a process takes, its part of what it shares included; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        pass
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
