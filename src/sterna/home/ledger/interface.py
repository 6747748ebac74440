"""The interface of the ledger: what home knows of every site and URL, and who has it on lease."""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from sterna.archive.manifest import Segment, WarcPosition
from sterna.crawler.pack import SavedProgress
from sterna.home.ledger.trust import TrustBook
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

    path: str  # as `web.parts` names it
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


class Ledger(Protocol):
    """One writer, any number of readers. Every call is one transaction: all of it or nothing."""

    def seed(self, targets: Sequence[Target], *, now: float, private_sites: Collection[str] = ()) -> int:
        """Adds URLs that the user named, some perhaps by a private address; tells how many were new."""

    def lease(
        self,
        visits: Sequence[str],
        *,
        now: float,
        pages: int,
        max_depth: int,
        host_pages: int = 0,
        may_visit: Callable[[str], bool] = lambda site: True,
    ) -> list[Lease]:
        """The parts whose turn it is, each under a new epoch; fewer than asked for if fewer are due.

        Each may fetch `pages`, or `host_pages` if that is more and a host is known at its site. A visit
        starts from the URLs of the highest priority, among these from the lowest depth.
        Sites that `may_visit` refuses are idle until the next wake().
        """

    def judge(self, parcel: Parcel) -> Disposal:
        """Whether the parcel is to be stored."""

    def commit(self, change: Change, *, now: float) -> None:
        """Stores what is new of the parcels; the rest is left out.

        ValueError if its batch is not the one after the last.
        """

    def batch(self) -> int:
        """The number of the last batch of rows that was committed; 0 if there is none."""

    def stored(self, pages: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Those of the pages, each a site and a fingerprint, of which a commit brought a version before."""

    def recover(self, *, now: float, least_pause: float) -> int:
        """Ends the leases of a run that never ended them; their sites rest for their delay first.

        Visits that are away at a host that keeps them go on there, and stay leased. Tells how many were lost.
        """

    def lose(self, visit: str, *, now: float, reason: str = "") -> bool:
        """Ends the lease of a visit that will not come back; False if it has none any more.

        What it brought is kept, the rest is still in the frontier.
        """

    # -- hosts, and the crawlers that are sent there

    def host_row(self, site: str) -> HostRow | None:
        """What is known of the site's host; None if nobody looked yet."""

    def set_host(self, row: HostRow) -> None: ...

    def forgive_hosts(self, *, and_ask: bool) -> None:
        """Has hosts that failed tried again, but for those that said when they open.

        With `and_ask` these are tried again too, and sites that had none are asked again.
        """

    def set_priority(self, site: str, priority: int) -> None:
        """Notes the priority that home promises a site in its revisits; set_host() leaves it as it is."""

    def write_out(self, row: OutboxRow, luggage: bytes) -> None:
        """Notes that a leased crawler is about to leave, with all that it takes to hear of it again.

        Must be called before anything is sent.
        """

    def mark_out(
        self,
        visit: str,
        state: Out,
        *,
        now: float,
        bytes_sent: int = 0,
        bytes_received: int = 0,
        reason: str = "",
    ) -> Out:
        """Notes what became of a crawler; the bytes are added to those before.

        One that is over stays what it is: who kills it may be another process. Tells its state now.
        """

    def outbox(self, *, states: Collection[Out] = tuple(Out)) -> list[OutboxRow]:
        """The crawlers in these states, in the order in which they left."""

    def luggage(self, visit: str) -> bytes:
        """What write_out() was given; empty once the crawler is neither waiting nor away."""

    def set_luggage(self, visit: str, luggage: bytes) -> None:
        """Has a crawler that has not left yet take something else along than write_out() was given."""

    def estimate(self, site: str, *, with_subtrees: bool = False) -> Estimate:
        """What earlier visits teach of the next one to a site; its parts only on request: it takes longer."""

    def inbox(self, visit: str) -> list[InboxRow]:
        """What came from a host, by number."""

    def add_receipt(self, visit: str, site: str, data: bytes) -> None:
        """Keeps what was signed of a visit; another one of the same visit takes its place."""

    def receipts(self) -> list[tuple[str, str, bytes]]:
        """Visit, site and what was signed, in the order of the visits."""

    @property
    def trust(self) -> TrustBook:
        """What hosts are believed."""

    def refresh(self, *, older_than: float, now: float) -> int:
        """Puts pages fetched before a time back into the frontier; tells how many.

        Sites that were given up get another chance.
        """

    def forget_validators(self) -> None:
        """Has every page asked for whole when it is visited again: earlier visits kept less of it."""

    def wake(self, *, now: float) -> None:
        """Gives every part with something in its frontier a turn: limits may have changed."""

    def state(self, site: str, part: str = WHOLE) -> State:
        """What the crawler remembers of a site: what the next lease brings."""

    def set_state(self, site: str, state: State, *, part: str = WHOLE) -> None:
        """Has the next visit to a site set out with this state; of the one before nothing is left."""

    def forget_states(self) -> None:
        """Has every crawler set out anew: another one goes where these were."""

    def progress(self, site: str) -> SavedProgress:
        """How far the crawler has come at a site, for a crawler's file."""

    def restore(self, site: str, progress: SavedProgress, *, now: float) -> None:
        """Has the next visit to a site go on from there; what is known of the site already stays."""

    def facts(self) -> list[SiteFact]:
        """The facts that crawlers keep, of all sites."""

    def replace_segments(self, old: Sequence[Segment], new: Segment, *, now: float) -> None: ...

    def segments(self) -> list[Segment]: ...

    def forget_retired(self, *, before: float) -> list[str]:
        """Names of replaced segments that no reader can still be using; they are forgotten."""

    def warc_positions(self) -> list[WarcPosition]: ...

    def set_warc_positions(self, positions: Sequence[WarcPosition]) -> None: ...

    def holds(self, *, now: float) -> tuple[Hold, ...]: ...

    def hold(self, holds: Sequence[Hold]) -> None:
        """Adds holds; an earlier one never shortens a later one."""

    def block(self, names: Sequence[str]) -> None: ...

    def unblock(self, names: Sequence[str]) -> None: ...

    def blocked(self) -> frozenset[str]: ...

    def seed_sites(self) -> frozenset[str]:
        """The sites that count as named by the user, those that their start pages moved to included."""

    def setting(self, name: str) -> str | None: ...

    def set_setting(self, name: str, value: str) -> None: ...

    def counts(self, *, now: float) -> Counts: ...

    def due_count(self, *, now: float, most: int) -> int:
        """How many parts could be leased now, counted up to `most`."""

    def site_rows(self) -> list[SiteRow]: ...

    def visit_rows(self) -> list[VisitRow]: ...

    def close(self) -> None: ...
