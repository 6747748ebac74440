"""The counters of a run, for the display and the summary."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from sterna.model import REQUISITES, Page, Parcel, Usage
from sterna.runtime.notices import Notices
from sterna.web.urls import fingerprint

_MOST_REDIRECTS = 100_000  # that are remembered in a run
_LONGEST_CIRCLE = 20


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of visits at hosts: over the network, and what ordinary crawling would have taken."""

    crossed: int = 0  # bytes to and from hosts, discovery and failures included
    fetched: int = 0  # bytes of the pages that crawlers read there, as counted by the hosts


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run; the last line of `--json`."""

    ended: str  # finished, limit, stopped, waiting, pages, or a value of model.Ended
    pages: int
    requests: int
    bytes_received: int
    errors: dict[str, int]
    visits: dict[str, int]
    seconds: float
    pages_per_second: float
    peak_memory_bytes: int
    unchanged: int
    redirects: int
    sites: int
    pending: int
    waiting_sites: int
    total_pages: int
    next_turn: float | None
    collection: str
    kept: int = 0
    has_own_limit: bool = False  # the limit that ended it is the crawler's
    rows: int = 0
    cpu_seconds: float = 0.0
    saved: Saved = Saved()
    checked: int = 0  # pages of hosts that were also fetched from here, to check them
    unmet: dict[str, int] = {}  # of the pages that were read here, how many failed which condition
    # What was odd with pages that were read here, as `note` of `Page` names it, and circles of several sites.
    notes: dict[str, int] = {}
    requisites: int = 0  # images, styles, scripts and fonts that pages need; they are no pages
    requisite_bytes: int = 0  # of those received
    left_out: int = 0  # links that include, exclude or subtrees left out; 0 with visits at hosts


class Circles:
    """Notices redirects of several sites that lead in a circle; within a site, its visit notices."""

    def __init__(self) -> None:
        self._onward: dict[int, str] = {}  # where a page redirects to

    def closed_by(self, page: Page) -> int:
        """The number of pages of a circle of which this one is the last; 0 if there is none."""
        onward = next((link.url for link in page.links if link.rel == "redirect"), "")
        if not onward or page.fingerprint in self._onward or len(self._onward) >= _MOST_REDIRECTS:
            return 0
        self._onward[page.fingerprint] = onward
        for count in range(1, _LONGEST_CIRCLE + 1):
            at = fingerprint(onward)
            if at == page.fingerprint:
                return count
            if at not in self._onward:
                break
            onward = self._onward[at]
        return 0


@dataclass(slots=True)
class Progress:
    """Changed by dispatch, its carrier and intake in the loop's thread; read by the display."""

    began: float
    usage: Usage = field(default_factory=Usage)  # of all visits, and of checks of their pages
    rows: int = 0  # facts that rules sent home
    pending: int = 0
    sites: int = 0
    active: int = 0
    away: set[str] = field(default_factory=set)  # visits at hosts now; changed by the courier
    has_sent: bool = False  # a crawler to a host
    fetched_at_hosts: int = 0  # bytes, not included in the usage
    crossed: int = 0  # bytes to and from hosts, headers included; set when the carrier is closed
    checked: int = 0  # pages of hosts that were also fetched from here
    unmet: Counter[str] = field(default_factory=Counter)
    requisites: int = 0
    requisite_bytes: int = 0
    visits: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)  # of pages
    limits: Counter[str] = field(default_factory=Counter)  # that ended visits, by their names
    total_pages: int = 0
    max_pages: int | None = None
    note: str = ""
    notices: Notices = field(default_factory=Notices)  # the runtime's, once it is open
    _circles: Circles = field(default_factory=Circles)

    def add(self, parcels: Iterable[Parcel]) -> None:
        for parcel in parcels:
            usage = parcel.usage
            if parcel.part == REQUISITES:
                self.requisites += usage.pages
                self.requisite_bytes += usage.bytes_received
                usage = usage.apart()
            if parcel.visit in self.away:
                self.fetched_at_hosts += usage.bytes_received
                usage = msgspec.structs.replace(usage, bytes_received=0)
            self.count(usage)
            self.total_pages += usage.pages
            self.rows += len(parcel.rows)
            self.unmet.update(dict(parcel.unmet))
            self.notes.update(page.note for page in parcel.pages if page.note)
            for page in parcel.pages:
                if 300 <= page.status < 400 and (count := self._circles.closed_by(page)):
                    self.notes["redirect_loop"] += count

    def count(self, usage: Usage) -> None:
        self.usage = self.usage.plus(usage)
