"""The choice of a visit's place, here or at the host: which one moves fewer bytes over the network. Pure.

The figures for a page are those of a real site of 1,170 pages: 4.66 MB by ordinary crawling with gzip, 2.43
MB as one compressed stream. They need not be exact: in close cases little is at stake.
"""

from datetime import UTC, datetime
from typing import Literal

from sterna.model import Field, Keep, Record, Visit

PlaceKind = Literal["here", "host", "station"]

TYPICAL_PAGES = 500  # of an unknown site (Crawlets 8)
PAGE_BYTES = 4_000  # a page by ordinary crawling: request, response, headers
CONDITIONAL_BYTES = 600  # a page that turns out to be unchanged
HANDSHAKE_BYTES = 4_000  # discovery, both round trips, acknowledgements, with headers
RETURNED_BYTES = 60  # URL, digest and times of a page, in the compressed stream
START_BYTES = 40
KNOWN_BYTES = 7  # a URL in F
VALIDATED_BYTES = 12  # with its digest
_FIELD_BYTES: dict[Field, int] = {
    "title": 30,
    "description": 40,
    "keywords": 40,
    "headings": 60,
    "text": 800,
    "language": 1,
    "links": 300,
    "html": 2_000,
    "headers": 100,
}
_EXTRACT_BYTES = 50
_RAW_BYTES = 2_100


class Place(Record, frozen=True):
    """Where a visit is carried out: by the runtime here, or at an endpoint elsewhere."""

    kind: PlaceKind = "here"
    endpoint: str = ""


HERE = Place()


class Prospect(Record, frozen=True, kw_only=True):
    """The expected size of a visit."""

    new: int  # pending URLs that were never read
    known_again: int = 0  # pages to visit again, of which home has the digest
    done: int = 0  # other URLs in F
    named: int = 0  # start URLs that are sent as text
    follows_links: bool = True
    pages: int = 0  # the most that it may fetch; 0: no limit
    crawler_bytes: int = 0
    kept_bytes: int = 0  # sent home for each page


class Choice(Record, frozen=True, kw_only=True):
    """Where a visit is to be carried out, and why."""

    place: PlaceKind
    reason: str
    saved_bytes: int = 0  # that need not cross the network
    order_bytes: int = 0  # that the trip costs


class Placement(Record, frozen=True, array_like=False, kw_only=True):
    """Where a visit is carried out, and why, as shown to the user."""

    site: str
    place: PlaceKind
    reason: str


def choose(prospect: Prospect) -> Choice:
    """The host if a trip is expected to save more than it costs."""
    new, again = prospect.new, prospect.known_again
    if prospect.follows_links and not again:  # with pages to visit again, the size of the site is known
        new = max(new, TYPICAL_PAGES - prospect.done)
    if prospect.pages:
        again = min(again, prospect.pages)
        new = min(new, prospect.pages - again)
    ordinary = new * PAGE_BYTES + again * CONDITIONAL_BYTES
    saved = ordinary - new * (RETURNED_BYTES + prospect.kept_bytes) - again // 8
    order = (
        HANDSHAKE_BYTES
        + prospect.crawler_bytes
        + prospect.named * START_BYTES
        + prospect.done * KNOWN_BYTES
        + prospect.known_again * VALIDATED_BYTES
    )
    place: PlaceKind = "host" if saved > order else "here"
    pages = f"about {new + again:,} page{'s' * (new + again != 1)} expected"
    reason = f"{pages}: a trip saves {saved / 1000:,.1f} kB and costs {order / 1000:,.1f} kB"
    return Choice(place=place, reason=reason, saved_bytes=saved, order_bytes=order)


def prospect_of(visit: Visit, *, crawler_bytes: int, named: int) -> Prospect:
    """The prospect of a visit; `named` of its start URLs would be sent as text."""
    deepest = min(visit.crawler.scope.max_depth, visit.budget.depth)
    again = sum(bool(each.digest) for each in visit.known.validators)
    limits = [limit for limit in (visit.budget.pages, visit.budget.requests) if limit]
    return Prospect(
        new=max(len(visit.starts) - again, 0),
        known_again=again,
        done=len(visit.known.fingerprints) // 8,
        named=named,
        follows_links=any(start.depth < deepest for start in visit.starts),
        pages=min(limits, default=0),
        crawler_bytes=crawler_bytes + sum(len(data) for _, data in visit.state.facts),
        kept_bytes=kept_bytes(visit.crawler.program.keep, keeps_raw=visit.crawler.keeps_raw),
    )


def kept_bytes(keep: Keep, *, keeps_raw: bool = False) -> int:
    """The bytes that are sent home for a page, compressed."""
    size = sum(
        int(_FIELD_BYTES[field] * (keep.share if field in ("text", "html") else 1.0)) for field in keep.fields
    )
    return size + len(keep.selectors) * _EXTRACT_BYTES + (_RAW_BYTES if keeps_raw else 0)


def closed_words(seconds: float | None) -> str:
    """How long a host is closed, in words."""
    if not seconds:
        return "for now"
    minutes = max(round(seconds / 60), 1)
    hours, days = round(minutes / 60), round(minutes / 1440)
    count, unit = (days, "day") if hours >= 48 else (hours, "hour") if minutes >= 90 else (minutes, "minute")
    return f"for about {count} {unit}{'s' * (count != 1)}"


def stop_words(site: str, reason: str, until: float) -> str:
    """What an owner asked for, until when, and what the user can do, in one line."""
    day = datetime.fromtimestamp(until, UTC)
    why = f" ({reason})" if reason else ""
    return (
        f"the owner of {site} stopped this crawler until {day:%Y-%m-%d %H:%M} UTC{why}: nothing of the site"
        " is fetched from here either; ask the owner, or crawl it all the same with --despite-owner"
    )
