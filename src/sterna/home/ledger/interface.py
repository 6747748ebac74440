"""The interface of the ledger, by concern; one conformance suite holds every store to it (tests/home/ledger).

One writer, any number of readers. Every call is one transaction: all of it or nothing.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from sterna.archive.manifest import Segment, WarcPosition
from sterna.crawler.pack import SavedProgress
from sterna.home.ledger.records import (
    WHOLE,
    Change,
    Counts,
    Disposal,
    Estimate,
    HostRow,
    InboxRow,
    Lease,
    Out,
    OutboxRow,
    SampleRow,
    SiteFact,
    SiteRow,
    TrustRow,
    VisitRow,
)
from sterna.model import Hold, Parcel, State, Target, Usage


class SitesAndLeases(Protocol):
    """Sites, their turns, and who has them on lease."""

    def seed(self, targets: Sequence[Target], *, now: float, private_sites: Collection[str] = ()) -> int:
        """Adds URLs that the user named, some perhaps by a private address; the number of new ones."""

    def seed_sites(self) -> frozenset[str]:
        """The sites that count as named by the user, including those that their start pages moved to."""

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

    def recover(self, *, now: float, least_pause: float) -> int:
        """Ends the leases that an earlier run left open, and returns their number; their sites rest.

        Visits that are away at a host that keeps them go on there, and stay leased.
        """

    def lose(self, visit: str, *, now: float, reason: str = "") -> bool:
        """Ends the lease of a visit that will not come back; False if it has none any more.

        What it brought is kept, the rest is still in the frontier.
        """

    def refresh(self, *, older_than: float, now: float) -> int:
        """Puts pages fetched before a time back into the frontier; their number.

        Sites that were given up get another chance.
        """

    def wake(self, *, now: float) -> None:
        """Gives every part with something in its frontier a turn: limits may have changed."""

    def due_count(self, *, now: float, most: int) -> int:
        """How many parts could be leased now, counted up to `most`."""


class PagesAndParcels(Protocol):
    """What parcels bring, each stored once."""

    def judge(self, parcel: Parcel) -> Disposal:
        """Whether the parcel is to be stored."""

    def commit(self, change: Change, *, now: float) -> None:
        """Stores the parcels that are new, and skips the others.

        ValueError if its batch is not the one after the last.
        """

    def batch(self) -> int:
        """The number of the last committed batch of rows; 0 if there is none."""

    def stored(self, pages: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Those of the pages, each a site and a fingerprint, of which a version was committed before."""

    def forget_validators(self) -> None:
        """Has every page fetched whole when it is visited again: earlier visits kept less of it."""


class CrawlerMemory(Protocol):
    """What crawlers remember of sites between their visits."""

    def state(self, site: str, part: str = WHOLE) -> State:
        """What the crawler remembers of a site: the next lease brings it."""

    def set_state(self, site: str, state: State, *, part: str = WHOLE) -> None:
        """Replaces the state with which the next visit to a site sets out."""

    def forget_states(self) -> None:
        """Forgets all states: another crawler goes where these were."""

    def progress(self, site: str) -> SavedProgress:
        """How far the crawler has come at a site, for a crawler's file."""

    def restore(self, site: str, progress: SavedProgress, *, now: float) -> None:
        """Has the next visit to a site go on from there; what is known of the site already stays."""

    def facts(self) -> list[SiteFact]:
        """The facts that crawlers keep, of all sites."""


class HostsAndOutbox(Protocol):
    """Hosts of sites, crawlers that were sent there, and what came back."""

    def host_row(self, site: str) -> HostRow | None:
        """What is known of the site's host; None if nobody looked yet."""

    def set_host(self, row: HostRow) -> None: ...

    def forgive_hosts(self, *, and_ask: bool) -> None:
        """Has hosts that failed tried again, except those that said when they open.

        With `and_ask` these are tried again too, and sites that had none are asked again.
        """

    def set_priority(self, site: str, priority: int) -> None:
        """Notes the priority that home promises a site in its revisits; set_host() does not change it."""

    def write_out(self, row: OutboxRow, luggage: bytes) -> None:
        """Notes that a leased crawler is about to leave, with all that is needed to resume its visit.

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
        """Notes the state of a crawler and returns what it is now; the bytes are added to those before.

        A final state never changes: another process may have set it.
        """

    def outbox(self, *, states: Collection[Out] = tuple(Out)) -> list[OutboxRow]:
        """The crawlers in these states, in the order in which they left."""

    def luggage(self, visit: str) -> bytes:
        """What write_out() was given; empty once the crawler is neither waiting nor away."""

    def set_luggage(self, visit: str, luggage: bytes) -> None:
        """Replaces the luggage of a crawler that has not left yet."""

    def estimate(self, site: str, *, with_subtrees: bool = False) -> Estimate:
        """What earlier visits teach of the next one to a site; its parts only on request: that is slower."""

    def inbox(self, visit: str) -> list[InboxRow]:
        """What came from a host, by number."""

    def add_receipt(self, visit: str, site: str, data: bytes) -> None:
        """Keeps the signed receipt of a visit; a later one of the same visit replaces it."""

    def receipts(self) -> list[tuple[str, str, bytes]]:
        """Visit, site and signed receipt, in the order of the visits."""


class TrustBook(Protocol):
    """What is believed of hosts: a score for each, and the pages that were checked."""

    def row(self, site: str) -> TrustRow | None:
        """What is known of the site's host; None if it was never checked."""

    def rows(self) -> list[TrustRow]: ...

    def set(self, row: TrustRow, samples: Sequence[SampleRow] = ()) -> None:
        """Replaces what was known, and adds the samples that changed it."""

    def forget(self, site: str) -> bool:
        """Forgets the site's host, samples included; False if nothing was known."""

    def samples(self, site: str) -> list[SampleRow]:
        """The pages that were checked, the latest first."""

    def count(self, site: str, usage: Usage) -> None:
        """Counts the requests and bytes of a check as those of the crawl."""

    def put_back(self, site: str, *, since: float, now: float) -> int:
        """Has pages fetched since a time fetched again, whole; their number."""


class ArchiveManifest(Protocol):
    """Which files of the archive count."""

    def segments(self) -> list[Segment]: ...

    def replace_segments(self, old: Sequence[Segment], new: Segment, *, now: float) -> None: ...

    def forget_retired(self, *, before: float) -> list[str]:
        """Names of replaced segments that no reader can still be using; they are forgotten."""

    def warc_positions(self) -> list[WarcPosition]: ...

    def set_warc_positions(self, positions: Sequence[WarcPosition]) -> None: ...


class HoldsAndSettings(Protocol):
    """Holds, blocked names, settings, and where the crawl stands."""

    def holds(self, *, now: float) -> tuple[Hold, ...]: ...

    def hold(self, holds: Sequence[Hold]) -> None:
        """Adds holds; an earlier one never shortens a later one."""

    def block(self, names: Sequence[str]) -> None: ...

    def unblock(self, names: Sequence[str]) -> None: ...

    def blocked(self) -> frozenset[str]: ...

    def setting(self, name: str) -> str | None: ...

    def set_setting(self, name: str, value: str) -> None: ...

    def counts(self, *, now: float) -> Counts: ...

    def site_rows(self) -> list[SiteRow]: ...

    def visit_rows(self) -> list[VisitRow]: ...


class Ledger(
    SitesAndLeases,
    PagesAndParcels,
    CrawlerMemory,
    HostsAndOutbox,
    ArchiveManifest,
    HoldsAndSettings,
    Protocol,
):
    """What home knows of every site and URL, and who has it on lease."""

    @property
    def trust(self) -> TrustBook: ...

    def close(self) -> None: ...
