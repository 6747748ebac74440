"""What hosts' own indexes list as unchanged since home last read it: a refresh need not ask for it again.

A listing is believed as the site itself is: it comes from the site's own hostname, as safely as its pages. It
spares a page only as long as home's own copy is not too old, and a few pages are read all the same each time.
If these come back changed, the listing is not believed for a while; if their own dates show that they had
changed before it was made, the host lied, as if it had reported false pages.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import partial
from random import Random

import msgspec

from sterna.errors import SternaError
from sterna.home.away.hosts import is_as_safe, kept_offer
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import HostRow, Reread, SampleRow, Stale, TrustRow
from sterna.model import Record
from sterna.transport.interface import Call, Transport, read_whole
from sterna.trust.judgement import Judgement
from sterna.trust.score import Score, alone_seconds, counted
from sterna.web.urls import hostname_of
from sterna.wire.discovery import Offer
from sterna.wire.known import DIGEST_BYTES
from sterna.wire.listing import MAX_LISTING_BYTES, Listing, unpack_listing

LEAST_AGE_SECONDS = 60.0  # of a refresh for which a listing can be new enough
MAX_TRUST_SECONDS = 30 * 24 * 3600.0  # since home itself read the page
SKEW_SECONDS = 120.0  # between the clocks of home and host
READ_ANYWAY = 0.05  # share of the pages that a listing spares
SHOWN = 3  # pages named in a warning
LEAST_PAGES = 20  # that are due: for fewer it is not worth the request
DOUBTED_SECONDS = 24 * 3600.0  # that a listing is not asked for after one that proved useless
LEAST_DOUBTS = 2
DOUBTED_SHARE = 0.5  # of the pages that were read all the same

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """What the listing of a site says of the pages that home has: these did not change since."""

    pages: frozenset[int] = frozenset()  # not asked for
    asked: Mapping[int, bytes] = field(default_factory=dict)  # asked for all the same, with their digests
    began: float = 0.0  # as of when
    key: str = ""  # of the host


def spared(
    due: Iterable[Stale], listing: Listing, *, older_than: float, now: float, random: Random
) -> Spared:
    """The pages that did not change until a time that the refresh takes for new enough."""
    if not older_than <= listing.began <= now + SKEW_SECONDS:
        return Spared()
    digests = {
        page.fingerprint: page.digest[:DIGEST_BYTES]
        for page in due
        if page.digest and now - page.fetched <= MAX_TRUST_SECONDS
    }
    same = [each for each in listing.pages if digests.get(each.fingerprint) == each.digest]
    asked = {each.fingerprint: each.digest for each in same if random.random() < READ_ANYWAY}
    pages = frozenset(each.fingerprint for each in same) - asked.keys()
    return Spared(pages=pages, asked=asked, began=listing.began)


async def all_spared(
    ledger: LedgerDesk,
    transport: Transport,
    *,
    older_than: float,
    now: float,
    let_private: Callable[[str], None],  # allows a hostname on a private network
    allow_private: bool,
    random: Random,
) -> dict[str, Spared]:
    """By site, what the listings of hosts spare; a host that does not answer spares nothing."""
    found = dict[str, Spared]()
    if now - older_than < LEAST_AGE_SECONDS:
        return found
    for row, may_be_private in await ledger.do(lambda ledger: ledger.known_hosts(now=now)):
        offer = _offering(row)
        due = await ledger.do(partial(_due, site=row.site, older_than=older_than, now=now))
        if offer is None or len(due) < LEAST_PAGES:
            continue
        if may_be_private or allow_private:
            let_private(hostname_of(offer.endpoint))
        try:
            async with transport.exchange(offer.endpoint, Call("pages")) as reply:
                data = await read_whole(reply.chunks, most=MAX_LISTING_BYTES)
            listing = unpack_listing(data, row.site)
        except SternaError as error:
            _log.info("%s: its host's index is not used: %s", row.site, error)
            continue
        these = spared(due, listing, older_than=older_than, now=now, random=random)
        count = len(these.pages) + len(these.asked)
        _log.info("%s: %d of %d pages are unchanged by its host's index", row.site, count, len(due))
        found[row.site] = replace(these, key=offer.key)
    return found


def _due(ledger: Ledger, *, site: str, older_than: float, now: float) -> list[Stale]:
    """The pages that a listing may spare: none while the site's is not believed."""
    doubted_until = float(ledger.setting(f"{_DOUBTED} {site}") or 0.0)
    return ledger.due(site, older_than=older_than) if doubted_until <= now else []


# -- after the refresh -------------------------------------------------------------------------------------

_DOUBTED = "listing doubted until"  # and the site: a setting of the ledger


class Verdict(Record, frozen=True, kw_only=True):
    """What became of the pages that were read although a listing says that they did not change."""

    read: int = 0
    altered: tuple[Reread, ...] = ()  # they had changed before, as their web server says
    changed: tuple[Reread, ...] = ()  # perhaps since

    @property
    def is_doubtful(self) -> bool:
        is_many = len(self.changed) >= max(LEAST_DOUBTS, DOUBTED_SHARE * self.read)
        return bool(self.altered) or is_many


def judged(listed: Spared, pages: Iterable[Reread]) -> Verdict:
    """What the pages that home has read since show about the listing."""
    read = [page for page in pages if page.fingerprint in listed.asked]
    others = [page for page in read if page.digest[:DIGEST_BYTES] != listed.asked[page.fingerprint]]
    altered = [page for page in others if _is_older(page.modified, listed.began - SKEW_SECONDS)]
    return Verdict(
        read=len(read),
        altered=tuple(altered),
        changed=tuple(page for page in others if page not in altered),
    )


async def judge_listings(
    ledger: LedgerDesk, found: Mapping[str, Spared], *, since: float, now: float, warn: Callable[[str], None]
) -> None:
    """Compares what was read since then with the listings, and notes which hosts are not believed."""
    for site, listed in found.items():
        if not listed.asked:
            continue
        verdict = judged(listed, await ledger.do(partial(_reread, site=site, since=since)))
        if verdict.is_doubtful:
            await ledger.do(partial(_note, site=site, listed=listed, verdict=verdict, now=now))
        if verdict.altered:
            count, urls = len(verdict.altered), ", ".join(page.url for page in verdict.altered[:SHOWN])
            warn(
                f"the host of {site} lied: its index listed {count} of {verdict.read} pages as unchanged that"
                f" had changed before ({urls}); the site is read from here for now"
            )


def _reread(ledger: Ledger, *, site: str, since: float) -> list[Reread]:
    return ledger.reread(site, since=since)


def _note(ledger: Ledger, *, site: str, listed: Spared, verdict: Verdict, now: float) -> None:
    """All pages of a listing count as one: they may have been put in place later, with their old dates."""
    ledger.set_setting(f"{_DOUBTED} {site}", str(now + DOUBTED_SECONDS))
    if not verdict.altered:
        return
    row = ledger.trust.row(site) or TrustRow(site=site, key=listed.key)
    score = counted(Score(row.good, row.bad, row.at), good=0, bad=1, now=now)
    until = max(row.until, now + alone_seconds(score))
    new = msgspec.structs.replace(row, key=listed.key, good=score.good, bad=score.bad, at=now, until=until)
    samples = [
        SampleRow(
            visit=f"listing-{listed.began:.0f}",
            url=page.url,
            site=site,
            verdict=Judgement.ALTERED,
            at=now,
            detail=f"its host's index lists it as unchanged, but its server dates it {page.modified[:40]}",
        )
        for page in verdict.altered
    ]
    ledger.trust.set(new, samples)


def _is_older(modified: str, time: float) -> bool:
    """True if the web server's date says so."""
    try:
        return bool(modified) and parsedate_to_datetime(modified).timestamp() < time
    except (ValueError, TypeError, OverflowError):
        return False


def _offering(row: HostRow) -> Offer | None:
    """The last known offer, if its host lists the site's pages at the site's own name."""
    offer = kept_offer(row)
    return offer if offer and offer.lists_pages and is_as_safe(row.site, offer.endpoint) else None
