"""Shapes a visit to what a host grants: which budget, which parts of the site. Pure.

A host grants what its owner can spare (Crawlets 6). If that is too little for the frontier of the site, the
crawler visits some parts only, and the rest stays in the frontier for further visits.
"""

from array import array
from collections import defaultdict
from collections.abc import Mapping
from math import inf

import msgspec

from sterna.errors import Refused
from sterna.home.ledger.records import Estimate
from sterna.model import Budget, Ended, Known, Record, Scope, Target, Visit
from sterna.web.urls import TOP, fingerprint, lies_within, part_of, parts_of
from sterna.wire.orders import MAX_PARTS

LIVE_PAGES = 2_000  # of a visit that the host does not keep: if the line breaks, the rest starts again
MAX_LEVEL = 22  # of zstd
SHOWN = 5  # parts, in a message
URL_BYTES = 200  # of memory, for each URL that a visit holds
MAX_FOLDERS = 24  # into which a path is divided, one inside the other: a host may name any URLs of its site
# The limits that start again with another visit. Those of memory, scratch store and facts would be as tight.
RENEWED = frozenset(
    {Ended.CPU_SECONDS, Ended.WALL_SECONDS, Ended.REQUESTS, Ended.FETCHED_BYTES, Ended.SENT_BYTES}
)


class Facts(Record, frozen=True, kw_only=True):
    """What a host says of its platform, as far as home uses it; what it leaves out sets no limit."""

    can_jail: bool = True
    level: int = MAX_LEVEL  # of compression
    memory_bytes: int = 0  # for one visit; 0: it does not say
    is_live_only: bool = False

    @classmethod
    def of(cls, platform: Mapping[str, str], *, is_live_only: bool = False) -> "Facts":
        """Reads the facts of a host's platform and offer; unreadable ones count as left out."""
        return cls(
            can_jail="none" not in (platform.get("engine"), platform.get("jail")),
            level=_number(platform.get("level", "")) or MAX_LEVEL,
            memory_bytes=_number(platform.get("memory_bytes", "")),
            is_live_only=is_live_only or platform.get("live-only") == "yes",
        )


def shape(visit: Visit, grants: Budget, facts: Facts, estimate: Estimate) -> Visit:
    """The part of the visit to send, with the budget that the host grants; raises Refused if there is none.

    Depths stay exact: URLs more than one link below the nearest unread URL wait until that one was read.
    """
    if visit.crawler.program.rules and not facts.can_jail:
        raise Refused("no-jail", "its machine cannot sandbox a crawler's rules: they run at home")
    budget = bounded(visit.budget, grants, facts)
    if not budget.pages or not budget.seconds:
        raise Refused("refused", "it grants no pages, or no time to read one")
    known = len(visit.known.fingerprints) // 8 + len(visit.known.validators)
    if grants.urls < min(visit.budget.urls, known):
        raise Refused("refused", f"it accepts {grants.urls:,} URLs, but home knows more of the site")
    near = tuple(start for start in visit.starts if start.depth <= budget.depth)
    if not near:
        raise Refused("refused", f"all pending URLs are deeper than the {budget.depth} links that it allows")
    room = room_for(budget, estimate, wanted=visit.budget)
    visit = msgspec.structs.replace(visit, budget=budget, starts=near)
    program = visit.crawler.program
    # If the crawler's rules set the order of pages, no part may be left for later.
    is_ordered = program.is_best_first or program.drives_loading
    return visit if is_ordered else _narrowed(visit, room, estimate)


def bounded(wanted: Budget, granted: Budget, facts: Facts) -> Budget:
    """The wanted budget, reduced to what is granted and to what the platform can hold."""
    budget = wanted.lesser(granted)
    pages = min(budget.pages, LIVE_PAGES) if facts.is_live_only else budget.pages
    urls = min(budget.urls, facts.memory_bytes // URL_BYTES) if facts.memory_bytes else budget.urls
    return msgspec.structs.replace(budget, pages=pages, urls=urls)


def room_for(budget: Budget, estimate: Estimate, *, wanted: Budget) -> int:
    """The number of pages that a visit is expected to read before a limit of its host ends it.

    Limits that home itself set do not count: after them it continues with another visit anyway.
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


def needs_of(starts: tuple[Target, ...], estimate: Estimate, *, room: float = inf) -> dict[str, int]:
    """The pending pages of each part: the start URLs, or more if the ledger knows of more.

    A first directory that exceeds the room is divided into its folders, and these again (Crawlets 7). Of what
    the ledger knows to wait there, each folder is taken to have the share that it has of the starts.
    """
    urls = defaultdict[str, list[str]](list)
    for start in starts:
        if start.kind == "page":
            urls[part_of(start.url)].append(start.url)
    known = {each.path: each.waiting for each in estimate.subtrees}
    needs: dict[str, int] = {}
    for part, within in urls.items():
        scale = max(known.get(part, 0) / len(within), 1.0)
        needs |= {
            folder: round(count * scale) for folder, count in _divided(part, within, room / scale).items()
        }
    return needs


def _divided(part: str, urls: list[str], room: float) -> dict[str, int]:
    """The number of its URLs, by folders where it is too large: each of them fits or cannot be divided."""
    needs: dict[str, int] = {}
    waiting = [(part, urls, MAX_FOLDERS)]
    while waiting:
        name, within, levels = waiting.pop()
        may_divide = len(within) > room and levels and name != TOP and not name.endswith(".")
        inner = _by_folder(name, within) if may_divide else {}
        if inner.keys() <= {f"{name}."}:
            needs[name] = len(within)
        else:
            waiting += [(each, inner[each], levels - 1) for each in inner]
    return needs


def _by_folder(part: str, urls: list[str]) -> dict[str, list[str]]:
    """The URLs of a part by the next smaller parts in which they lie."""
    inner = defaultdict[str, list[str]](list)
    for url in urls:
        names = parts_of(url)
        next(name for name in names if name == part)
        inner[next(names)].append(url)
    return inner


def choose(needs: Mapping[str, int], room: int) -> tuple[str, ...]:
    """The parts to visit now: all if they fit, else those that fit, the largest first.

    If these would leave more than half of the room empty, it is the largest part, which does not fit: the
    crawler runs out of budget, and another visit continues it. So there are never many small visits.
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
    """A line that says which parts the crawler visits."""
    shown = ", ".join(shaped.within[:SHOWN]) + (" ..." if len(shaped.within) > SHOWN else "")
    return (
        f"{shaped.budget.pages:,} pages granted, {len(visit.starts):,} pending: this visit reads"
        f" {len(shaped.starts):,} of them, in {shown}"
    )


def is_hosts_own(ended: Ended, *, own: Budget, granted: Budget) -> bool:
    """True if the limit that ended a visit is its host's, and not the crawler's own."""
    limit, here = getattr(granted, ended, 0), getattr(own, ended, 0)
    return bool(limit) and (not here or limit < here)


def _narrowed(visit: Visit, room: int, estimate: Estimate) -> Visit:
    needs = needs_of(visit.starts, estimate)
    if sum(needs.values()) <= room:
        return visit
    depth = _exact_depth(visit)
    in_order = tuple(start for start in visit.starts if start.depth <= depth)
    needs = needs_of(in_order, estimate, room=room)
    chosen = choose(needs, room)
    if len(chosen) == len(needs):
        return visit
    starts = tuple(start for start in in_order if start.kind != "page" or lies_within(start.url, chosen))
    budget = msgspec.structs.replace(visit.budget, depth=min(depth, visit.budget.depth))
    # The starts that are left out count as known: home has them, so they must not be reported again.
    marks = {fingerprint(start.url) for start in starts}
    done = memoryview(visit.known.fingerprints).cast("q")
    others = {fingerprint(start.url) for start in visit.starts} - marks
    known = Known(
        array("q", sorted(others.union(done))).tobytes(),
        tuple(each for each in visit.known.validators if each.fingerprint in marks),
    )
    return msgspec.structs.replace(visit, starts=starts, known=known, budget=budget, within=chosen)


def _exact_depth(visit: Visit) -> int:
    """The depth down to which pages can be fetched although some parts are left out.

    Unknown pages of those parts are deeper than their nearest unread page. If the scope ends at a depth,
    pages that were read before count as unread: they may have new links.
    """
    is_bounded = visit.crawler.scope.max_depth < Scope().max_depth
    read = frozenset[int]() if is_bounded else {each.fingerprint for each in visit.known.validators}
    pages = [start for start in visit.starts if start.kind == "page"]
    unread = [start.depth for start in pages if fingerprint(start.url) not in read]
    deepest = max((start.depth for start in pages if fingerprint(start.url) in read), default=0)
    return max(min(unread, default=visit.budget.depth) + 1, deepest)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
