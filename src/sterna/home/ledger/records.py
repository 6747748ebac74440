"""The records of the ledger: what goes in, what comes out."""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from sterna.archive.manifest import Segment, WarcPosition
from sterna.model import Hold, Known, Parcel, Record, Robots, State, Target

WHOLE = "/"  # the part that is a whole site


class Lease(Record, frozen=True, kw_only=True):
    """The right to visit a part of a site, and what the visit starts from."""

    visit: str
    site: str
    part: str
    epoch: int
    starts: tuple[Target, ...]
    known: Known
    pages: int  # that the visit may fetch
    depth: int  # the deepest level that may be fetched, so that without priorities levels stay in order
    robots: Robots
    holds: tuple[Hold, ...]
    may_be_private: bool
    state: State = State()  # what the crawler remembers of the part


class Disposal(StrEnum):
    """What intake does with a parcel."""

    NEW = "new"
    STORED = "stored"  # acknowledged before, and not stored again
    STALE = "stale"  # of an old epoch, or of a visit that is over
    GAP = "gap"  # a parcel before it is missing


class Counts(Record, frozen=True, kw_only=True):
    """Where a crawl stands."""

    sites: int = 0
    pending: int = 0  # URLs still to fetch
    pages: int = 0  # good ones, each counted once
    round_pages: int = 0  # fetched since the crawl, or its last refresh, began
    requests: int = 0
    bytes_received: int = 0
    unchanged: int = 0
    redirects: int = 0
    kept: int = 0  # pages that were wanted, as often as they were fetched
    cpu_seconds: float = 0.0
    visits: int = 0
    leased: int = 0
    away: int = 0  # of them, at hosts
    waiting_sites: int = 0  # that may not be visited yet
    next_turn: float | None = None
    errors: dict[str, int] = msgspec.field(default_factory=dict)


class Change(Record, frozen=True, kw_only=True):
    """What one commit stores: parcels, and where their facts lie in the archive."""

    parcels: tuple[Parcel, ...]
    segments: tuple[Segment, ...] = ()
    batch: int = 0  # the number that its rows carry; 0: they have none
    warc: tuple[WarcPosition, ...] = ()


class Subtree(Record, frozen=True):
    """A part of a site, as earlier visits know it."""

    path: str  # as `urls.part_of` names it
    read: int = 0  # pages that were read well
    waiting: int = 0  # URLs that are to be fetched


class Estimate(Record, frozen=True, kw_only=True):
    """What earlier visits to a site teach of the next one; of a page 0 stands for not known."""

    subtrees: tuple[Subtree, ...] = ()
    page_bytes: float = 0.0
    page_seconds: float = 0.0  # at its host
    page_cpu_seconds: float = 0.0


class SiteRow(Record, frozen=True, kw_only=True):
    """A site as `status` and queries show it."""

    site: str
    pages: int
    requests: int
    bytes_received: int
    errors: int
    robots: str
    robots_failures: int
    robots_retry_at: float
    reason: str
    next_turn: float | None


class VisitRow(Record, frozen=True, kw_only=True):
    """A visit as `status` and queries show it."""

    visit: str
    site: str
    part: str
    epoch: int
    place: str
    began: float
    over: float | None
    ended: str | None
    parcels: int
    pages: int
    requests: int
    bytes_received: int
    kept: int = 0
    cpu_seconds: float = 0.0


class HostRow(Record, frozen=True, kw_only=True):
    """What home knows of a site's host, or that there is none."""

    site: str
    checked_at: float = 0.0  # when it was last looked for
    offer: bytes | None = None  # its discovery document as it came; None where there is no host
    key: str = ""  # pinned; it stays when the offer goes
    until: float = 0.0  # the answer counts till then, a negative one too
    failed_until: float = 0.0  # no crawler is sent there before
    reason: str = ""  # why there is none, or why it failed
    priority: int = 0  # of the site in revisits, as set_priority() was told


class Out(StrEnum):
    """Where a crawler that was sent to a host is."""

    WAITING = "waiting"  # written down, and not yet known to be there
    AWAY = "away"
    RETURNED = "returned"
    LOST = "lost"
    KILLED = "killed"


UNDER_WAY = (Out.WAITING, Out.AWAY)


class OutboxRow(Record, frozen=True, kw_only=True):
    """A crawler that was sent to a host."""

    visit: str
    site: str
    endpoint: str
    key: str  # the host's
    state: Out
    written_at: float
    sent_at: float | None = None
    over_at: float | None = None
    order_bytes: int = 0
    bytes_sent: int = 0  # over the network, both ways, what went wrong included
    bytes_received: int = 0
    is_live_only: bool = False  # the host keeps no visits: who loses the line loses the visit
    reason: str = ""
    parcels: int = 0  # stored so far; the ledger's own count, as are those below
    pages: int = 0
    fetched_bytes: int = 0  # by the crawler at the site: what ordinary crawling would have received


class InboxRow(Record, frozen=True, kw_only=True):
    """A parcel that came from a host, and when it was stored."""

    visit: str
    number: int
    received_at: float
    size_bytes: int
    taken_at: float


class SiteFact(NamedTuple):
    """A fact that a crawler keeps of a site, as `crawler.facts` writes it."""

    site: str
    number: int
    data: bytes


class TrustRow(Record, frozen=True, kw_only=True):
    """What is known of a host's honesty."""

    site: str
    key: str = ""  # of the host that earned it
    good: float = 0.0  # pages checked, as they counted at that time: see `trust.score`
    bad: float = 0.0
    at: float = 0.0
    until: float = 0.0  # no crawler is sent there before: it lied


class SampleRow(Record, frozen=True, kw_only=True):
    """A page that was checked from here."""

    visit: str
    url: str
    site: str
    verdict: str
    at: float
    detail: str = ""
