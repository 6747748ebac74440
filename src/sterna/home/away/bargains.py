"""A preview of negotiations: what home would ask of each known host, and what one visit would read."""

from collections.abc import Iterator, Mapping

import msgspec

from sterna.home.away.hosts import kept_offer
from sterna.home.away.negotiation import Facts, bounded, choose, room_for
from sterna.home.dispatch import HOST_VISIT_PAGES, VISIT_SECONDS
from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.records import Estimate, HostRow
from sterna.model import Budget, Crawler
from sterna.wire.discovery import Offer

SHOWN = 12  # parts of a site, in a line


def bargains(ledger: Ledger, crawler: Crawler, *, own: Budget, offered: Mapping[str, int]) -> list[list[str]]:
    """Lines of text for each site with a known host; `own` is the crawler's budget."""
    found = ((row.site, ledger.host_row(row.site)) for row in ledger.site_rows())
    return [
        list(_bargain(ledger, crawler, offer, row, own=own, offered=offered.get(site, 0)))
        for site, row in found
        if row and (offer := kept_offer(row))
    ]


def _bargain(
    ledger: Ledger, crawler: Crawler, offer: Offer, row: HostRow, *, own: Budget, offered: int
) -> Iterator[str]:
    wanted = msgspec.structs.replace(own, pages=HOST_VISIT_PAGES, seconds=VISIT_SECONDS)
    facts = Facts.of(offer.platform, is_live_only=offer.is_live_only)
    caps = {  # of its public policy
        name: value
        for name in ("pages", "seconds")
        if isinstance(value := offer.policy.get(name), int | float) and value is not True and value > 0
    }
    budget = bounded(wanted, wanted.lesser(msgspec.structs.replace(wanted, **caps)), facts)
    yield (
        f"{row.site}: home asks for {wanted.pages:,} pages and {wanted.seconds:g} seconds per"
        f" visit, and offers revisit priority {offered} of 10"
    )
    if row.priority:
        yield f"priority {row.priority} was promised for the last visit: others are revisited after it"
    yield f"its host grants at most {budget.pages:,} pages and {budget.seconds:g} seconds per visit"
    if crawler.program.rules and not facts.can_jail:
        yield "its machine cannot sandbox rules: the crawler stays here"
    elif crawler.program.is_best_first or crawler.program.drives_loading:
        yield "the crawler's rules set the order: it visits the whole site, and continues in further visits"
    else:
        estimate = ledger.estimate(row.site, with_subtrees=True)
        yield _next_visit(estimate, room_for(budget, estimate, wanted=wanted))


def _next_visit(estimate: Estimate, room: int) -> str:
    """What one visit with room for so many pages would read."""
    waiting = {each.path: each.waiting for each in estimate.subtrees if each.waiting}
    needs = waiting or {each.path: each.read for each in estimate.subtrees if each.read}
    total = sum(needs.values())
    if not total:
        return "its parts are not known yet: the first visit is to the whole site"
    what = "pending pages" if waiting else "pages to revisit"
    line = f"{what}: {total:,}; a visit has room for {room:,}"
    chosen = choose(needs, room)
    if len(chosen) == len(needs):
        return f"{line}: it visits the whole site"
    parts = [f"{path} ({needs[path]:,})" for path in chosen[:SHOWN]]
    more = " ..." if len(chosen) > SHOWN else ""
    left = total - sum(needs[path] for path in chosen)
    return f"{line}: it visits {', '.join(parts)}{more}; left for further visits: {left:,}"
