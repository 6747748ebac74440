"""The check of what rules made of a visit's pages: a run of them is fetched and judged again, from here.

The runtime here carries it out as a visit of its own: the same crawler with the state that it had before the
run, the pages in the order in which the host's engine judged them, one at a time, and no links followed. As
long as each page is the one that the host judged, rules must decide and send the same; time and chance are
not open to them.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from sterna.model import Budget, Known, Page, Parcel, Target, Usage, Visit
from sterna.trust.excuses import MANY, UNFOUNDED_SHARE, together
from sterna.trust.judgement import Finding, Judgement
from sterna.trust.runs import RuledPage, Run, apply, first_rows, ruled_pages
from sterna.trust.sketch import COMPARED

READ_SECONDS = 600.0
NOWHERE = ("\0",)  # the name of no part of a site: what rules load is not fetched
_OWN_LIMITS = ("requests", "fetched_bytes", "sent_bytes", "wall_seconds", "cpu_seconds")
NO_LIMITS = {name: getattr(Budget(), name) for name in _OWN_LIMITS}


def rerun_of(visit: Visit, run: Run, told: Sequence[RuledPage]) -> Visit:
    """The visit that judges these pages again, then those of which the host says that rules fail."""
    pages = [each.page for each in told] + list(run.failed)
    crawler, program = visit.crawler, visit.crawler.program
    return replace(
        visit,
        id=f"check-{secrets.token_hex(8)}",
        crawler=replace(
            crawler,
            scope=replace(crawler.scope, use_sitemaps=False),
            program=replace(program, is_best_first=True, least_change=0.0),
            keeps_raw=False,
        ),
        etiquette=replace(visit.etiquette, connections=1),
        # Falling priorities keep them in order; their depths are what rules see.
        starts=tuple(
            Target(page.url, page.depth, page.referrer, priority=-n) for n, page in enumerate(pages)
        ),
        known=Known(),
        state=run.state,
        budget=replace(visit.budget, pages=len(pages), seconds=READ_SECONDS, **NO_LIMITS),
        within=NOWHERE,
    )


@dataclass(slots=True)
class Rerun:
    """What the rules made of the run here; changed by take() alone."""

    run: Run
    pages: list[RuledPage] = field(default_factory=list)
    first: tuple[bytes, ...] = ()
    failed: set[int] = field(default_factory=set)  # fingerprints of pages that the rules fail on here too
    facts: dict[int, bytes] = field(init=False)
    found: list[Target] = field(default_factory=list)  # the links that its pages were followed to
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.facts = dict(self.run.state.facts)

    async def take(self, parcel: Parcel) -> None:
        self.pages += ruled_pages(parcel)
        self.first += first_rows(parcel)
        self.failed.update(page.fingerprint for page in parcel.pages if page.error == "rules")
        self.found += parcel.checkpoint.found
        apply(self.facts, parcel.state)
        usage = parcel.usage
        self.usage = self.usage.plus(Usage(requests=usage.requests, bytes_received=usage.bytes_received))

    def findings(self, told: Sequence[RuledPage], *, is_from_disk: bool) -> list[Finding]:
        """What differs from what the host told; one that reads files may read the same bytes otherwise."""
        found = [self._of_failed(page) for page in self.run.failed]
        unfounded = sum(each.verdict is Judgement.UNFOUNDED for each in found)
        tried = sum(each.verdict is not Judgement.UNSEEN for each in found)
        if MANY <= unfounded >= UNFOUNDED_SHARE * tried:
            found = together(found, tried)
        if difference := self._difference(told):
            is_alike = all(_is_read_alike(a.page, b.page) for a, b in zip(told, self.pages, strict=False))
            is_sure = is_alike and not (is_from_disk and any(not each.page.is_kept for each in told))
            found.append(difference if is_sure else replace(difference, verdict=Judgement.DOUBTFUL))
        return found

    def true(self, told: Sequence[RuledPage]) -> dict[str, int]:
        """The pages that rules judged alike at both ends, by URL and depth: what they follow is alike too."""
        true: dict[str, int] = {}
        for theirs, ours in zip(told, self.pages, strict=False):
            is_alike = theirs.rows == ours.rows and theirs.page.is_kept == ours.page.is_kept
            if not (is_alike and _is_same(theirs.page, ours.page)):
                break
            if _is_read_alike(theirs.page, ours.page):
                true[theirs.page.url] = theirs.page.depth
        return true

    def _difference(self, told: Sequence[RuledPage]) -> Finding | None:
        """The first page of which rules decide otherwise; after one that has changed nothing is known."""
        if told and self.pages and self.first != self.run.first:
            return _altered(told[0], "before it, its rules send other facts here")
        for theirs, ours in zip(told, self.pages, strict=False):
            if not _is_same(theirs.page, ours.page):
                return None
            if theirs.page.is_kept != ours.page.is_kept:
                return _altered(theirs, "its rules decide otherwise here whether to keep it")
            if theirs.rows != ours.rows:
                return _altered(theirs, "its rules send other facts here")
        if self._is_whole(told) and self.facts != self._told_facts():
            return _altered(told[-1], "its rules leave other facts here")
        return None

    def _is_whole(self, told: Sequence[RuledPage]) -> bool:
        """True if all pages of a parcel were judged here too, and nothing else."""
        is_parcel = self.run.change is not None and not self.run.failed
        return is_parcel and 0 < len(told) == len(self.run.pages) == len(self.pages)

    def _told_facts(self) -> dict[int, bytes]:
        assert self.run.change
        facts = dict(self.run.state.facts)
        apply(facts, self.run.change)
        return facts

    def _of_failed(self, page: Page) -> Finding:
        if page.fingerprint in self.failed:
            return Finding(page.url, Judgement.FOUNDED, "its rules fail here too")
        if all(page.fingerprint != each.page.fingerprint for each in self.pages):
            return Finding(page.url, Judgement.UNSEEN, "it was not fetched in time")
        return Finding(page.url, Judgement.UNFOUNDED, "its rules do not fail here")


def _altered(told: RuledPage, detail: str) -> Finding:
    return Finding(told.page.url, Judgement.ALTERED, detail)


def _is_read_alike(one: Page, other: Page) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("content_type", "extracts", *COMPARED))


def _is_same(one: Page, other: Page) -> bool:
    """True if rules saw the same page, so far as a digest tells."""
    if (one.url, one.status, one.error) != (other.url, other.status, other.error):
        return False
    if 300 <= one.status < 400:
        return one.links.urls == other.links.urls
    return one.digest == other.digest != b""
