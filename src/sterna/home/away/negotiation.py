"""What is sent to a host once it has said what it grants: which budget, which parts, which crawler. Pure.

A host grants what its owner can spare (Crawlets 6). If that is too little for what waits at the site, the
crawler goes to some parts only, and the rest stays in the frontier for further visits.
"""

from array import array
from collections import Counter
from collections.abc import Mapping

import msgspec

from sterna.errors import Refused
from sterna.home.ledger.records import Estimate
from sterna.model import Budget, Ended, Known, Record, Scope, Target, Visit
from sterna.web.urls import fingerprint, part_of
from sterna.wire.orders import MAX_PARTS

LIVE_PAGES = 2_000  # of a visit that no host keeps: whoever loses the line begins the rest anew
MAX_LEVEL = 22  # of compression, that there is
SHOWN = 5  # parts, where people are told of them
URL_BYTES = 200  # of memory, for each URL that a visit holds
# What another visit has anew. Of memory, scratch store and facts it would have as little again.
_RENEWED = frozenset(
    {Ended.CPU_SECONDS, Ended.WALL_SECONDS, Ended.REQUESTS, Ended.FETCHED_BYTES, Ended.SENT_BYTES}
)


class Facts(Record, frozen=True, kw_only=True):
    """What a host says of its platform, as far as it is any use here; what it leaves out hinders nobody."""

    can_jail: bool = True
    level: int = MAX_LEVEL  # of compression
    memory_bytes: int = 0  # for one visit; 0: it does not say
    is_live_only: bool = False

    @classmethod
    def of(cls, platform: Mapping[str, str], *, is_live_only: bool = False) -> "Facts":
        """The facts in these texts, and what its offer says; one that cannot be read counts as not said."""
        return cls(
            can_jail="none" not in (platform.get("engine"), platform.get("jail")),
            level=_number(platform.get("level", "")) or MAX_LEVEL,
            memory_bytes=_number(platform.get("memory_bytes", "")),
            is_live_only=is_live_only or platform.get("live-only") == "yes",
        )


def shape(visit: Visit, grants: Budget, facts: Facts, estimate: Estimate) -> Visit:
    """What of the visit is sent there; Refused, as a host would say it, if none of it can be.

    Its budget is what holds there. Depths stay exact: what lies deeper than a link below the nearest URL that
    was never read waits until that one was.
    """
    if visit.crawler.program.rules and not facts.can_jail:
        raise Refused("no-jail", "its machine cannot jail a crawler's rules: they stay at home")
    budget = bounded(visit.budget, grants, facts)
    if not budget.pages or not budget.seconds:
        raise Refused("refused", "it grants no page, or no time to read one")
    known = len(visit.known.fingerprints) // 8 + len(visit.known.validators)
    if grants.urls < min(visit.budget.urls, known):
        raise Refused("refused", f"it holds {grants.urls:,} URLs, and more are known of the site")
    near = tuple(start for start in visit.starts if start.depth <= budget.depth)
    if not near:
        raise Refused("refused", f"all that waits lies deeper than the {budget.depth} links that it allows")
    room = room_for(budget, estimate, wanted=visit.budget)
    visit = msgspec.structs.replace(visit, budget=budget, starts=near)
    return visit if _has_an_order(visit) else _narrowed(visit, room, estimate)


def bounded(wanted: Budget, granted: Budget, facts: Facts) -> Budget:
    """What holds of a budget where so much of it is granted."""
    budget = wanted.lesser(granted)
    pages = min(budget.pages, LIVE_PAGES) if facts.is_live_only else budget.pages
    urls = min(budget.urls, facts.memory_bytes // URL_BYTES) if facts.memory_bytes else budget.urls
    return msgspec.structs.replace(budget, pages=pages, urls=urls)


def room_for(budget: Budget, estimate: Estimate, *, wanted: Budget) -> int:
    """How many pages a visit can be expected to read before a limit of its host ends it.

    What home itself wanted no more of counts for nothing: it goes on with another visit in any case.
    """
    costs = {
        "requests": 1.0,
        "fetched_bytes": estimate.page_bytes,
        "seconds": estimate.page_seconds,
        "cpu_seconds": estimate.page_cpu_seconds,
    }
    limits = [
        int(getattr(budget, name) / cost)
        for name, cost in costs.items()
        if cost and getattr(budget, name) and getattr(budget, name) != getattr(wanted, name)
    ]
    return max(min([budget.pages, *limits]), 1)


def needs_of(starts: tuple[Target, ...], estimate: Estimate) -> dict[str, int]:
    """How many pages wait in each part: those that could start now, or more if the ledger knows of more."""
    counts = Counter(part_of(start.url) for start in starts if start.kind == "page")
    known = {each.path: each.waiting for each in estimate.subtrees}
    return {path: max(count, known.get(path, 0)) for path, count in counts.items()}


def choose(needs: Mapping[str, int], room: int) -> tuple[str, ...]:
    """The parts to visit now: all if they fit, else those that do, the largest first.

    If what fits would leave more than half of the room empty, it is the largest that does not fit: its
    crawler runs out of budget, and is continued by another visit. So there are never many small visits.
    """
    if sum(needs.values()) <= room:
        return tuple(sorted(needs))
    chosen, left = list[str](), room
    largest, *_ = ordered = sorted(needs, key=lambda path: (-needs[path], path))
    for path in ordered:
        if needs[path] <= left and len(chosen) < MAX_PARTS:
            chosen.append(path)
            left -= needs[path]
    return tuple(sorted(chosen)) if 2 * left <= room or needs[largest] <= room else (largest,)


def narrowed_words(visit: Visit, shaped: Visit) -> str:
    """Where the crawler goes, for people."""
    shown = ", ".join(shaped.within[:SHOWN]) + (" ..." if len(shaped.within) > SHOWN else "")
    return (
        f"{shaped.budget.pages:,} pages granted, {len(visit.starts):,} wait: this visit reads"
        f" {len(shaped.starts):,} of them, in {shown}"
    )


def is_hosts_own(ended: Ended, *, own: Budget, granted: Budget) -> bool:
    """True if what ended a visit is a limit of its host, and not one that the crawler has anywhere."""
    limit, here = getattr(granted, ended, 0), getattr(own, ended, 0)
    return bool(limit) and (not here or limit < here)


def is_renewed(ended: Ended) -> bool:
    """True of a limit that another visit to the same host has anew."""
    return ended in _RENEWED


def _has_an_order(visit: Visit) -> bool:
    """True of a crawler whose rules say what comes first: it is not for others to leave parts for later."""
    program = visit.crawler.program
    return program.is_best_first or program.drives_loading


def _narrowed(visit: Visit, room: int, estimate: Estimate) -> Visit:
    needs = needs_of(visit.starts, estimate)
    if sum(needs.values()) <= room:
        return visit
    depth = _exact_depth(visit)
    in_order = tuple(start for start in visit.starts if start.depth <= depth)
    needs = needs_of(in_order, estimate)
    chosen = choose(needs, room)
    if len(chosen) == len(needs):
        return visit
    starts = tuple(start for start in in_order if start.kind != "page" or part_of(start.url) in chosen)
    budget = msgspec.structs.replace(visit.budget, depth=min(depth, visit.budget.depth))
    known = _known_beside(visit, starts)
    return msgspec.structs.replace(visit, starts=starts, known=known, budget=budget, within=chosen)


def _exact_depth(visit: Visit) -> int:
    """To which depth pages can be fetched although some parts wait.

    Whatever these still lead to lies deeper than the nearest of them that nobody has read. Where the scope
    itself ends at a depth, pages that were read before count too: what they lead to may be new.
    """
    is_bounded = visit.crawler.scope.max_depth < Scope().max_depth
    read = frozenset[int]() if is_bounded else {each.fingerprint for each in visit.known.validators}
    pages = [start for start in visit.starts if start.kind == "page"]
    unread = [start.depth for start in pages if fingerprint(start.url) not in read]
    deepest = max((start.depth for start in pages if fingerprint(start.url) in read), default=0)
    return max(min(unread, default=visit.budget.depth) + 1, deepest)


def _known_beside(visit: Visit, starts: tuple[Target, ...]) -> Known:
    """What is known, with the starts that are left out: they wait at home, and are not to be told again."""
    marks = {fingerprint(start.url) for start in starts}
    others = {fingerprint(start.url) for start in visit.starts} - marks
    done = array("q")
    done.frombytes(visit.known.fingerprints)
    return Known(
        array("q", sorted(others.union(done))).tobytes(),
        tuple(each for each in visit.known.validators if each.fingerprint in marks),
    )


def _number(text: str) -> int:
    """The number in a text; 0 if there is none."""
    return int(text) if text.isascii() and text.isdigit() else 0
