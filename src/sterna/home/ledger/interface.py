"""The interface of the ledger, by concern; tests/home/ledger is the conformance suite of all stores.

One writer, any number of readers. Every call is one transaction: all or nothing.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from sterna.archive.manifest import Original, Segment, WarcPosition
from sterna.crawler.pack import SavedProgress
from sterna.home.ledger.records import (
    NOTHING,
    WHOLE,
    Again,
    Change,
    Counts,
    Disposal,
    Estimate,
    HostRow,
    InboxRow,
    Lease,
    Out,
    OutboxRow,
    OwnerRow,
    Reread,
    SampleRow,
    SiteFact,
    SiteRow,
    Stale,
    Standing,
    Stored,
    TrustRow,
    VisitRow,
)
from sterna.model import Hold, Parcel, State, Target, Usage

T = TypeVar("T")


class SitesAndLeases(Protocol):
    """Sites, their turns and their leases."""

    def seed(self, targets: Sequence[Target], *, now: float, private_sites: Collection[str] = ()) -> int:
        """Adds start URLs, and returns the number of new ones; `private_sites` may have private addresses."""

    def seed_requisites(self, targets: Sequence[Target], *, upto: int, now: float) -> None:
        """Adds what pages of the batches up to `upto` need, to the part REQUISITES of their sites."""

    def seed_sites(self) -> frozenset[str]:
        """The sites of the user's start URLs, and those that start pages were redirected to."""

    def lease(
        self,
        visits: Sequence[str],
        *,
        now: float,
        pages: int,
        max_depth: int,
        host_pages: int = 0,
        part: str = WHOLE,
        may_visit: Callable[[str], bool] = lambda site: True,
    ) -> list[Lease]:
        """Leases the parts of this name that are due, under new epochs; at most one for each of `visits`.

        Each may fetch `pages`, or `host_pages` if that is more and its site has a known host, and starts from
        the URLs of the highest priority, then of the lowest depth. Sites that `may_visit` rejects are idle
        until the next wake().
        """

    def recover(self, *, now: float, least_pause: float) -> int:
        """Ends the leases of an earlier run, but for hosts that keep visits; holds their sites: how many.

        Waits that end later than any can, because the clock was ahead, are void.
        """

    def lose(self, visit: str, *, now: float, reason: str = "") -> bool:
        """Ends the lease of a visit that will not come back, and keeps its parcels; False without a lease."""

    def refresh(
        self, *, older_than: float, now: float, spared: Mapping[str, Collection[int]] = NOTHING
    ) -> int:
        """Puts older pages back into the frontier, without those `spared`, by site: their number.

        Sites given up are tried again.
        """

    def due(self, site: str, *, older_than: float) -> list[Stale]:
        """The pages of a site that a refresh puts back."""

    def reread(self, site: str, *, since: float) -> list[Reread]:
        """The pages of a site that were read without an error since then."""

    def follow(
        self, links: Sequence[tuple[str, str]], *, admits: Callable[[Target], bool], now: float
    ) -> int:
        """Adds links, each from a page that is known to a URL, to the frontier: how many are new."""

    def forget_passed(self) -> None:
        """Forgets the URLs that were done with and have no page, so that they may be found again."""

    def visit_starts(self, *, now: float) -> None:
        """Puts the start pages back into the frontier: a visit reads the sitemaps of its site."""

    def fetch_again(self, *, kind: Again, now: float) -> int:
        """Puts pages back into the frontier, to be fetched whole: their number.

        Of `unkept` ones nothing is stored; of `undigested` ones it is not known which version is stored.
        """

    def wake(self, *, now: float) -> None:
        """Gives every idle part with URLs in its frontier a turn: limits may have changed."""

    def due_count(self, *, now: float, most: int, part: str = WHOLE) -> int:
        """The number of parts of this name that are due, counted up to `most`."""


class AskingAgain(Protocol):
    """What waits, asked for before its time because the user wants it; wake() comes after it."""

    def ask_again(self, urls: Collection[str], *, now: float) -> None:
        """Asks for the robots.txt of these URLs' sites if it failed, and for the URLs if they failed."""

    def requalify(self, *, now: float) -> None:
        """Asks for the robots.txt of every site where it failed."""

    def retry(self, *, now: float, least_pause: float) -> int:
        """The same, ends all pauses but those between requests, and puts all pages that failed back."""


class PagesAndParcels(Protocol):
    """What parcels bring, each stored once."""

    def judge(self, parcel: Parcel) -> Disposal:
        """Whether to store the parcel."""

    def commit(self, change: Change, *, now: float) -> None:
        """Stores the parcels that are new; raises ValueError if its batch does not follow the last one."""

    def batch(self) -> int:
        """The number of the last committed batch of rows; 0 if there is none."""

    def standings(self, pages: Collection[tuple[str, int]]) -> dict[tuple[str, int], Standing]:
        """Those of the pages, each a site and a fingerprint, that were visited before."""

    def kept_versions(self, pages: Collection[tuple[str, int]]) -> dict[tuple[str, int], Stored]:
        """Those of the pages, each a site and a fingerprint, that are kept."""

    def originals(self, pages: Collection[tuple[str, int]]) -> dict[tuple[str, int], Original]:
        """The responses in WARC files to which revisits of these pages may refer."""

    def waiting(self, site: str, part: str, *, kinds: Collection[str]) -> list[Target]:
        """The URLs of these kinds in the frontier of a part, in the order in which they are fetched."""

    def forget_validators(self) -> None:
        """Makes the next visits fetch every page whole: earlier ones kept less of it."""


class CrawlerMemory(Protocol):
    """The state of crawlers between visits."""

    def state(self, site: str) -> State:
        """The crawler's state at a site, which its next lease contains."""

    def set_state(self, site: str, state: State) -> None:
        """Replaces the crawler's state at a site."""

    def forget_states(self) -> None:
        """Deletes all states: they belong to another crawler."""

    def progress(self, site: str) -> SavedProgress:
        """The crawler's progress at a site, for a crawler's file."""

    def restore(self, site: str, progress: SavedProgress, *, now: float) -> None:
        """Makes the next visit to a site continue from saved progress; what is already known stays."""

    def facts(self) -> list[SiteFact]:
        """The facts that crawlers keep, of all sites."""


class HostsAndOutbox(Protocol):
    """Hosts of sites, the crawlers sent to them, and the parcels that came back."""

    def host_row(self, site: str) -> HostRow | None:
        """What is known of the site's host; None before the first discovery."""

    def set_host(self, row: HostRow) -> None: ...

    def known_hosts(self, *, now: float) -> list[tuple[HostRow, bool]]:
        """Hosts that sites have offered, and whether the site may be private.

        Without those that lied lately, and those of sites whose owner stopped the crawler.
        """

    def forgive_hosts(self, *, and_ask: bool) -> None:
        """Lets failed hosts be tried again, except those that said when they open.

        With `and_ask` these are tried too, and sites without a host are asked again.
        """

    def owner_row(self, site: str) -> OwnerRow | None:
        """What the site's owner asked for; None if nothing."""

    def owner_rows(self) -> list[OwnerRow]: ...

    def set_owner(self, row: OwnerRow) -> None: ...

    def ask_owners(self, *, now: float, may_ask: bool) -> None:
        """Forgets what is over. With `may_ask` the next leases of stopped sites ask their hosts again."""

    def forget_owners(self, *, now: float) -> None:
        """Deletes what owners asked for: the user crawls despite it."""

    def set_priority(self, site: str, priority: int) -> None:
        """Stores the revisit priority that home promised a site; set_host() does not change it."""

    def write_out(self, row: OutboxRow, luggage: bytes) -> None:
        """Stores a crawler before anything is sent, with all that is needed to resume its visit."""

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
        """Sets a state, unless it is final, and adds the bytes; returns what the state is now."""

    def outbox(self, *, states: Collection[Out] = tuple(Out)) -> list[OutboxRow]:
        """The crawlers in these states, in the order in which they left."""

    def luggage(self, visit: str) -> bytes:
        """The luggage that write_out() stored; empty once the crawler is neither waiting nor away."""

    def set_luggage(self, visit: str, luggage: bytes) -> None:
        """Replaces the luggage of a crawler that has not left yet."""

    def estimate(self, site: str, *, with_subtrees: bool = False) -> Estimate:
        """The expected size of the next visit to a site; its slow part, the subtrees, on request only."""

    def inbox(self, visit: str) -> list[InboxRow]:
        """The parcels of a visit that came from a host, by number."""

    def add_receipt(self, visit: str, site: str, data: bytes) -> None:
        """Stores the signed receipt of a visit; replaces an earlier one of the same visit."""

    def receipts(self) -> list[tuple[str, str, bytes]]:
        """Visit, site and signed receipt, in the order of the visits."""


class TrustBook(Protocol):
    """Trust in hosts: a score for each, and the pages that were checked."""

    def row(self, site: str) -> TrustRow | None:
        """The score of the site's host; None if it was never checked."""

    def rows(self) -> list[TrustRow]: ...

    def set(self, row: TrustRow, samples: Sequence[SampleRow] = ()) -> None:
        """Replaces the score, and adds the samples that changed it."""

    def forget(self, site: str) -> bool:
        """Deletes score and samples of the site's host; False if there was no score."""

    def samples(self, site: str) -> list[SampleRow]:
        """The pages that were checked, the latest first."""

    def count(self, site: str, usage: Usage) -> None:
        """Adds the requests and bytes of a check to those of the crawl."""

    def put_back(self, site: str, *, since: float, now: float) -> int:
        """Puts pages fetched since a time back into the frontier, to be fetched whole; their number."""


class ArchiveManifest(Protocol):
    """Which files of the archive count."""

    def segments(self) -> list[Segment]: ...

    def replace_segments(self, old: Sequence[Segment], new: Segment, *, now: float) -> None: ...

    def forget_retired(self, *, before: float) -> list[str]:
        """Deletes the rows of segments replaced before a time, which no reader uses now; their names."""

    def warc_positions(self) -> list[WarcPosition]: ...

    def set_warc_positions(self, positions: Sequence[WarcPosition]) -> None: ...


class HoldsAndSettings(Protocol):
    """Holds, blocked names, settings and counters of the crawl."""

    def holds(self, *, now: float) -> tuple[Hold, ...]: ...

    def hold(self, holds: Sequence[Hold]) -> None:
        """Adds holds; an earlier one never shortens a later one."""

    def block(self, names: Sequence[str]) -> None: ...

    def unblock(self, names: Sequence[str]) -> None: ...

    def blocked(self) -> frozenset[str]: ...

    def setting(self, name: str) -> str | None: ...

    def set_setting(self, name: str, value: str) -> None: ...

    def counts(self, *, now: float, part: str = WHOLE) -> Counts:
        """The counters; `next_turn` is that of the parts of this name."""

    def site_rows(self) -> list[SiteRow]: ...

    def visit_rows(self) -> list[VisitRow]: ...


class Ledger(
    SitesAndLeases,
    AskingAgain,
    PagesAndParcels,
    CrawlerMemory,
    HostsAndOutbox,
    ArchiveManifest,
    HoldsAndSettings,
    Protocol,
):
    """What home knows of every site and URL, and which of them are on lease."""

    @property
    def trust(self) -> TrustBook: ...

    def close(self) -> None: ...


class LedgerDesk:
    """The ledger as the event loop uses it: all calls run in the one thread that owns the connection."""

    def __init__(self, ledger: Ledger, thread: Executor) -> None:
        self.ledger = ledger
        self._thread = thread

    async def do(self, call: Callable[[Ledger], T]) -> T:
        """The result of `call`, which is given the ledger."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, self.ledger)
