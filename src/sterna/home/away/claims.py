"""What a host may leave out of a visit: home derives it, bounds it, and decides which sites count as starts.

A parcel is a claim about every URL that it mentions. Pages, errors and URLs to be tried again are checked by
samples (`home/belief`). What could be passed over in silence is decided here: a URL that is done without a
page, a page that is not kept, a start page that moved to another site.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sterna.archive.manifest import UNWANTED
from sterna.crawler.predicate import Judge
from sterna.crawler.rules import uses
from sterna.crawler.scope import ScopeRules
from sterna.errors import WireError
from sterna.model import Crawler, Ended, Page, Parcel, Target, Visit
from sterna.web.urls import fingerprint


class Claims:
    """Checks and counts what the parcels of one visit leave out.

    `waiting`: what earlier runs of home received and what is not done since, of the kinds in kinds_left().
    """

    def __init__(self, visit: Visit, *, waiting: Iterable[Target] = ()) -> None:
        self._visit = visit
        program = visit.crawler.program
        self._has_rules = bool(program.rules)
        self._may_drop = program.select is not None or self._has_rules
        self._kinds = kinds_left(visit.crawler)
        self._scope = ScopeRules(visit.crawler.scope)
        self._prune = Judge(program.prune) if program.prune else None
        # Changed by checked(): URLs that may be done without a page, and start pages that may still move.
        self._leavable = {fingerprint(each.url) for each in visit.starts if self._may_leave(each)}
        self._note_found(waiting)
        self._moves = sum(target.depth == 0 for target in visit.starts)
        self._tries: dict[str, int] | None = None  # of start URLs, before this visit

    def checked(self, parcel: Parcel, *, now: float) -> Parcel:
        """The parcel as home takes it; WireError if it leaves out what this crawler cannot leave out."""
        self._check_pages(parcel.pages)
        checkpoint = parcel.checkpoint
        if parcel.ended is Ended.FINISHED and checkpoint.again:
            raise WireError("malformed", "a finished visit leaves no URLs to be tried again")
        self._check_done(checkpoint.found, checkpoint.done)
        return replace(
            parcel,
            pages=tuple(_fetched_by(page, now) for page in parcel.pages),
            outlinks=tuple(self._without_moves(parcel)),
            checkpoint=replace(
                checkpoint, again=tuple(self._counted(each, now) for each in checkpoint.again)
            ),
        )

    def _check_pages(self, pages: Iterable[Page]) -> None:
        for page in pages:
            if not (page.is_kept or self._may_drop):
                raise WireError("malformed", f"{page.url} was dropped, but the crawler keeps every page")
            if page.error == UNWANTED:
                raise WireError("malformed", f"{page.url} is a tombstone, and home alone makes these")
            if page.error == "rules" and not self._has_rules:
                raise WireError("malformed", f"{page.url} failed by rules, but the crawler has none")

    def _check_done(self, found: Iterable[Target], done: tuple[int, ...]) -> None:
        """WireError if a URL is done without a page that is no sitemap, and that nothing refused."""
        self._note_found(found)
        for mark in done:
            if mark not in self._leavable:
                raise WireError("malformed", "a URL is done without a page, and home cannot tell why")
            self._leavable.discard(mark)

    def _note_found(self, found: Iterable[Target]) -> None:
        self._leavable.update(fingerprint(each.url) for each in found if each.kind in self._kinds)

    def _may_leave(self, start: Target) -> bool:
        if start.kind in self._kinds:
            return True
        is_pruned = self._prune is not None and not self._prune.admits(start)
        return start.depth > 0 and (is_pruned or not self._scope.admits(start.url))

    def _without_moves(self, parcel: Parcel) -> Iterator[Target]:
        """The links to other sites: what moved is a start page (depth 0) only if home sent it as one."""
        moved = {
            (page.url, page.links.urls)
            for page in parcel.pages
            if page.depth == 0 and 300 <= page.status < 400 and not page.error
        }
        for link in parcel.outlinks:
            if link.depth == 0:
                is_move = self._moves > 0 and (link.referrer, link.url) in moved
                self._moves -= is_move
                yield link if is_move else replace(link, depth=1)
            else:
                yield link

    def _counted(self, target: Target, now: float) -> Target:
        """A URL to be tried again, with its attempts as home counts them, and no time that has passed."""
        if self._tries is None:
            self._tries = {start.url: start.attempts for start in self._visit.starts}
        return replace(
            target,
            attempts=self._tries.get(target.url, 0) + 1,
            not_before=target.not_before if target.not_before > now else 0.0,
        )


def kinds_left(crawler: Crawler) -> tuple[str, ...]:
    """The kinds of found URLs that may be done without a page: sitemaps, and any that rules may refuse."""
    return ("sitemap", "page") if uses(crawler.program.rules, "request") else ("sitemap",)


def _fetched_by(page: Page, now: float) -> Page:
    """The page, fetched no later than now: `--refresh` asks for what is older."""
    return page if page.fetched <= now else replace(page, fetched=now)
