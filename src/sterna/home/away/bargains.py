"""A preview of negotiations: what home would ask of each known host, and what one visit would read."""

from collections.abc import Iterator

import msgspec

from sterna.errors import WireError
from sterna.home.away.negotiation import Facts, bounded, choose, room_for
from sterna.home.dispatch import HOST_VISIT_PAGES, VISIT_SECONDS
from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.records import HostRow
from sterna.model import Budget, Crawler, Record
from sterna.wire.discovery import Offer, decode_offer

SHOWN = 12  # parts of a site, in a line


class Bargain(Record, frozen=True, kw_only=True):
    """The expected shape of the next visit to one host, by its offer and by earlier visits."""

    site: str
    wanted: Budget
    grants: Budget  # at most, by its public policy
    facts: Facts
    offered: int  # priority
    promised: int = 0  # priority, for the last visit
    is_again: bool = False  # the frontier is empty, and the parts are those of a refresh
    room: int = 0  # pages that fit into one visit
    needs: tuple[tuple[str, int], ...] = ()  # pages by part
    chosen: tuple[str, ...] = ()


def bargains(ledger: Ledger, *, own: Budget, offered: dict[str, int]) -> list[Bargain]:
    """One for each site with a known host; `own` is the crawler's budget."""
    found = ((row.site, ledger.host_row(row.site)) for row in ledger.site_rows())
    return [
        _bargain(ledger, site, offer, row, own=own, offered=offered.get(site, 0))
        for site, row in found
        if row and (offer := _offer(row))
    ]


def bargain_words(each: Bargain, crawler: Crawler) -> Iterator[str]:
    """The bargain as lines of text."""
    budget = bounded(each.wanted, each.grants, each.facts)
    yield (
        f"{each.site}: home asks for {each.wanted.pages:,} pages and {each.wanted.seconds:g} seconds per"
        f" visit, and offers revisit priority {each.offered} of 10"
    )
    if each.promised:
        yield f"priority {each.promised} was promised for the last visit: others are revisited after it"
    yield f"its host grants at most {budget.pages:,} pages and {budget.seconds:g} seconds per visit"
    if crawler.program.rules and not each.facts.can_jail:
        yield "its machine cannot sandbox rules: the crawler stays here"
    elif crawler.program.is_best_first or crawler.program.drives_loading:
        yield "the crawler's rules set the order: it visits the whole site, and continues in further visits"
    else:
        yield _visit_words(each)


def _bargain(ledger: Ledger, site: str, offer: Offer, row: HostRow, *, own: Budget, offered: int) -> Bargain:
    wanted = msgspec.structs.replace(own, pages=HOST_VISIT_PAGES, seconds=VISIT_SECONDS)
    facts = Facts.of(offer.platform, is_live_only=offer.is_live_only)
    grants = wanted.lesser(_public(offer, wanted))
    estimate = ledger.estimate(site, with_subtrees=True)
    waiting = {each.path: each.waiting for each in estimate.subtrees if each.waiting}
    needs = waiting or {each.path: each.read for each in estimate.subtrees if each.read}
    room = room_for(bounded(wanted, grants, facts), estimate, wanted=wanted)
    return Bargain(
        site=site,
        wanted=wanted,
        grants=grants,
        facts=facts,
        offered=offered,
        promised=row.priority,
        is_again=not waiting,
        room=room,
        needs=tuple(needs.items()),
        chosen=choose(needs, room) if needs else (),
    )


def _visit_words(each: Bargain) -> str:
    needs = dict(each.needs)
    total = sum(needs.values())
    if not total:
        return "its parts are not known yet: the first visit is to the whole site"
    what = "pages to revisit" if each.is_again else "pending pages"
    room = f"{what}: {total:,}; a visit has room for {each.room:,}"
    if len(each.chosen) == len(needs):
        return f"{room}: it visits the whole site"
    parts = [f"{path} ({needs[path]:,})" for path in each.chosen[:SHOWN]]
    more = " ..." if len(each.chosen) > SHOWN else ""
    left = total - sum(needs[path] for path in each.chosen)
    return f"{room}: it visits {', '.join(parts)}{more}; left for further visits: {left:,}"


def _offer(row: HostRow) -> Offer | None:
    try:
        return decode_offer(row.offer, row.site) if row.offer else None
    except WireError:
        return None  # stored by an earlier version


def _public(offer: Offer, otherwise: Budget) -> Budget:
    """The caps of the host's public policy."""
    caps = {
        name: value
        for name in ("pages", "seconds")
        if isinstance(value := offer.policy.get(name), int | float)
        and not isinstance(value, bool)
        and value > 0
    }
    return msgspec.structs.replace(otherwise, **caps)
