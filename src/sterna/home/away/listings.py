"""What hosts' own indexes list as unchanged since home last read it: a refresh need not ask for it again.

A listing is believed as the site itself is: it comes from the site's own hostname, as safely as its pages. It
spares a page only as long as home's own copy is not too old, and a few pages are read all the same each time.
So a wrong listing costs freshness for a while, and nothing else.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from sterna.errors import SternaError
from sterna.home.away.hosts import is_as_safe, kept_offer
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import HostRow, Stale
from sterna.transport.interface import Call, Transport, read_whole
from sterna.web.urls import hostname_of
from sterna.wire.discovery import Offer
from sterna.wire.known import DIGEST_BYTES
from sterna.wire.listing import MAX_LISTING_BYTES, Listing, unpack_listing

LEAST_AGE_SECONDS = 60.0  # of a refresh for which a listing can be new enough
MAX_TRUST_SECONDS = 30 * 24 * 3600.0  # since home itself read the page
SKEW_SECONDS = 120.0  # between the clocks of home and host
READ_ANYWAY = 0.05  # share of the pages that a listing spares
LEAST_PAGES = 20  # that are due: for fewer it is not worth the request

_log = logging.getLogger(__name__)


def spared(
    due: Iterable[Stale], listing: Listing, *, older_than: float, now: float, random: Random
) -> frozenset[int]:
    """The pages that did not change until a time that the refresh takes for new enough."""
    if not older_than <= listing.began <= now + SKEW_SECONDS:
        return frozenset()
    digests = {
        page.fingerprint: page.digest[:DIGEST_BYTES]
        for page in due
        if page.digest and now - page.fetched <= MAX_TRUST_SECONDS and random.random() >= READ_ANYWAY
    }
    return frozenset(
        each.fingerprint for each in listing.pages if digests.get(each.fingerprint) == each.digest
    )


async def all_spared(
    ledger: LedgerDesk,
    transport: Transport,
    *,
    older_than: float,
    now: float,
    let_private: Callable[[str], None],  # allows a hostname on a private network
    allow_private: bool,
    random: Random,
) -> dict[str, frozenset[int]]:
    """By site, what the listings of hosts spare; a host that does not answer spares nothing."""
    found = dict[str, frozenset[int]]()
    if now - older_than < LEAST_AGE_SECONDS:
        return found
    for row, may_be_private in await ledger.do(lambda ledger: ledger.known_hosts(now=now)):
        offer = _offering(row)
        due = await ledger.do(partial(_due, site=row.site, older_than=older_than))
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
        marks = spared(due, listing, older_than=older_than, now=now, random=random)
        _log.info("%s: %d of %d pages are unchanged by its host's index", row.site, len(marks), len(due))
        found[row.site] = marks
    return found


def _due(ledger: Ledger, *, site: str, older_than: float) -> list[Stale]:
    return ledger.due(site, older_than=older_than)


def _offering(row: HostRow) -> Offer | None:
    """The last known offer, if its host lists the site's pages at the site's own name."""
    offer = kept_offer(row)
    return offer if offer and offer.lists_pages and is_as_safe(row.site, offer.endpoint) else None
