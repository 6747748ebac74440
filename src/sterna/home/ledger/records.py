"""The records of the ledger: the input and output of its methods."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from sterna.archive.manifest import Original, Segment, WarcPosition
from sterna.model import Hold, Known, Parcel, Record, Robots, State, Target

Again = Literal["all", "unkept", "undigested"]  # pages to be fetched again
WHOLE = "/"  # the part that is a whole site
NOTHING: Mapping[str, Collection[int]] = MappingProxyType({})


class Lease(Record, frozen=True, kw_only=True):
    """The right to visit a part of a site, and what the visit starts with."""

    visit: str
    site: str
    part: str
    epoch: int
    starts: tuple[Target, ...]
    known: Known
    pages: int  # that the visit may fetch
    depth: int  # the deepest level that may be fetched: without priorities, levels stay in order
    robots: Robots
    holds: tuple[Hold, ...]
    may_be_private: bool
    state: State = State()  # of the crawler at this part
    closed: tuple[str, ...] = ()  # paths that the site's owner asks not to fetch


class Disposal(StrEnum):
    """What intake does with a parcel."""

    NEW = "new"
    STORED = "stored"  # before: acknowledged again, but not stored again
    STALE = "stale"  # of an old epoch, or of a visit that is over
    GAP = "gap"  # a parcel before it is missing


class Standing(Record, frozen=True):
    """A page as the ledger knows it: the last answer, and whether a version of it is stored and wanted."""

    status: int
    error: str
    is_kept: bool

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300 and not self.error


class Stored(Record, frozen=True):
    """The version of a page that the ledger knows."""

    status: int
    digest: bytes


class Counts(Record, frozen=True, kw_only=True):
    """Counters of a crawl."""

    sites: int = 0
    pending: int = 0  # URLs still to fetch
    pages: int = 0  # good ones, each counted once
    round_pages: int = 0  # fetched since the crawl or its last refresh began
    requisites: int = 0  # what pages need, and no pages; their bytes are among those received
    round_requisites: int = 0  # fetched since the crawl or its last refresh began
    requisite_bytes: int = 0
    round_requisite_bytes: int = 0
    requests: int = 0
    bytes_received: int = 0
    unchanged: int = 0
    redirects: int = 0
    kept: int = 0  # pages that the crawler selected, counted at each fetch
    cpu_seconds: float = 0.0
    visits: int = 0
    leased: int = 0
    away: int = 0  # of them, at hosts
    waiting_sites: int = 0  # that may not be visited yet
    next_turn: float | None = None
    errors: dict[str, int] = msgspec.field(default_factory=dict)


class Change(Record, frozen=True, kw_only=True):
    """What one commit stores: parcels, and the files of the archive that hold their rows."""

    parcels: tuple[Parcel, ...]
    segments: tuple[Segment, ...] = ()
    batch: int = 0  # the number of its rows; 0: none
    warc: tuple[WarcPosition, ...] = ()
    ended: tuple[tuple[str, int], ...] = ()  # site and fingerprint of pages that only get a tombstone
    originals: tuple[tuple[str, int, Original], ...] = ()  # of sites and fingerprints: see `originals`


class Subtree(Record, frozen=True):
    """A part of a site, as known from earlier visits."""

    path: str  # see `web.urls.part_of`
    read: int = 0  # good pages
    waiting: int = 0  # URLs still to fetch


class Estimate(Record, frozen=True, kw_only=True):
    """The expected size of the next visit to a site, and the cost of a page; 0: not known."""

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
    checked_at: float = 0.0  # of the last discovery
    offer: bytes | None = None  # the discovery document as received; None without a host
    key: str = ""  # pinned; kept when the offer expires
    until: float = 0.0  # expiry of the answer, also of a negative one
    failed_until: float = 0.0  # no crawler is sent there before
    reason: str = ""  # why there is no host, or why it failed
    priority: int = 0  # of the site in revisits; changed by set_priority() alone


class Stale(Record, frozen=True):
    """A page that a refresh would read again."""

    fingerprint: int
    digest: bytes
    fetched: float


class Reread(Record, frozen=True):
    """A page as it was last read."""

    fingerprint: int
    url: str
    digest: bytes
    modified: str  # as the web server wrote it


class OwnerRow(Record, frozen=True, kw_only=True):
    """What the owner of a site asked of this crawl, by the site's host; bounded in time."""

    site: str
    reason: str = ""  # why the crawler was stopped
    until: float = 0.0  # nothing of the site is fetched before; 0: it was not stopped
    ask_at: float = 0.0  # when the host is asked again, since it may have opened
    closed: str = ""  # path prefixes that are not fetched from here, one on a line
    closed_until: float = 0.0


class Out(StrEnum):
    """Where a crawler that was sent to a host is."""

    WAITING = "waiting"  # stored in the outbox, and not yet known to be there
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
    bytes_sent: int = 0  # over the network, failed calls included
    bytes_received: int = 0
    is_live_only: bool = False  # the host keeps no visits: if the line breaks, the visit is lost
    reason: str = ""
    parcels: int = 0  # stored so far; counted by the ledger, like the fields below
    pages: int = 0
    fetched_bytes: int = 0  # by the crawler at the site: what ordinary crawling would have received


class InboxRow(Record, frozen=True, kw_only=True):
    """A parcel from a host, and when it was stored."""

    visit: str
    number: int
    received_at: float
    size_bytes: int
    taken_at: float


class SiteFact(NamedTuple):
    """A fact that a crawler keeps of a site, as `crawler.facts` encodes it."""

    site: str
    number: int
    data: bytes


class TrustRow(Record, frozen=True, kw_only=True):
    """The trust score of a host."""

    site: str
    key: str = ""  # of the host that earned it
    good: float = 0.0  # checked pages, weighted as of `at`: see `trust.score`
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
