"""Does for the pages and links of a collection what a changed errand asks, before the crawl goes on.

Each step is committed by itself, and may be done again: the errand of before is forgotten only after the last
one. Rows are read and committed in pieces, so a large collection takes no more memory than a small one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import Any, TypeVar

from sterna.archive.manifest import UNWANTED, Batch
from sterna.archive.segments import SegmentStore
from sterna.crawler.grammar import PageRow
from sterna.crawler.media import media_rels
from sterna.crawler.predicate import Judge
from sterna.crawler.scope import ScopeRules
from sterna.errors import DamagedSegment
from sterna.home.changes import Changes, Errand
from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.records import Change, Stored
from sterna.home.ledger.versions import tombstone_of
from sterna.model import MEDIA_RELS, Page, Target
from sterna.web.urls import Canonical, fingerprint, site_of

LINKS_AT_ONCE = 20_000
PAGES_AT_ONCE = 1_000
_LINK_COLUMNS = ("from_url", "to_url", "rel")

T = TypeVar("T")
Say = Callable[[str], None]


@dataclass(eq=False, repr=False)
class CatchingUp:
    """One run's reading of the archive; run() once, before anything is leased."""

    ledger: Ledger
    segments: SegmentStore
    errand: Errand
    _: KW_ONLY
    admits: Callable[[Target], bool]  # other sites, by the crawl's borders
    now: float
    say: Say

    def run(self, changes: Changes) -> None:
        """Does it, and says in a line or two what was done."""
        again = ended = judged = found = 0
        if changes.reads_sitemaps:
            self.ledger.forget_passed()
            self.ledger.visit_starts(now=self.now)
        if changes.follows_links:
            found = self._follow()
        if changes.fetches_all:
            again += self.ledger.fetch_again(kind="all", now=self.now)
        elif changes.fetches_unkept:  # before pages are judged: those that fail are not wanted, and known
            again += self.ledger.fetch_again(kind="unkept", now=self.now)
        if changes.judges_pages:
            judged, ended = self._judge()
            again += self.ledger.fetch_again(kind="undigested", now=self.now)
        told = [
            *([f"{_are(judged, 'stored page')} judged again, {ended:,} no longer wanted"] if judged else []),
            *([f"{_are(found, 'link')} followed that had been left out"] if found else []),
            *(["URLs that were too deep are fetched"] if changes.goes_deeper else []),
            *([f"{_are(again, 'page')} fetched again"] if again else []),
        ]
        what = ", ".join(changes.names)
        self.say(f"{what} changed: {'; '.join(told) or 'nothing that is stored is concerned'}")

    # -- links -------------------------------------------------------------------------------------------

    def _follow(self) -> int:
        """Adds the links of stored pages that the scope admits now; how many are new."""
        scope, program = ScopeRules(self.errand.scope), self.errand.program
        prune = Judge(program.prune) if program.prune else None
        canonical = Canonical(self.errand.scope.drop_params)

        def is_wanted(target: Target) -> bool:
            is_pruned = prune is not None and not prune.admits(target)
            return not is_pruned and scope.admits(target.url) and self.admits(target)

        count = 0
        for links in _pieces(self._links(canonical), LINKS_AT_ONCE):
            count += self.ledger.follow(links, admits=is_wanted, now=self.now)
        return count

    def _links(self, canonical: Canonical) -> Iterator[tuple[str, str]]:
        """The links that may be followed, each from a page to a URL."""
        barred = MEDIA_RELS - media_rels(self.errand.program.select)
        for rows in self._rows("link", _LINK_COLUMNS):
            for source, written, rel in rows:
                is_barred = rel in barred or "nofollow" in (rel or "")
                if source and written and not is_barred and (url := canonical(written)):
                    yield source, url

    # -- pages -------------------------------------------------------------------------------------------

    def _judge(self) -> tuple[int, int]:
        """Judges the newest version of each page that is kept: how many were judged, how many are over."""
        select = self.errand.program.select
        assert select
        judge, judged, ended = Judge(select), 0, 0
        for rows in self._rows("page", PageRow._fields):
            for some in _pieces(map(PageRow._make, rows), PAGES_AT_ONCE):
                known = [row for row in some if row.url and row.error != UNWANTED]
                newest = self._newest(known)
                judged += len(newest)
                over = [row for row in newest if judge.judge(row) is not True]
                if over:
                    self._end(over)
                ended += len(over)
        return judged, ended

    def _newest(self, rows: Sequence[PageRow]) -> list[PageRow]:
        """Those that are kept, and whose version is the one that the ledger knows."""
        keys = {(site_of(str(row.url)), fingerprint(str(row.url))): row for row in rows}
        stored = self.ledger.kept_versions(list(keys))
        return [
            row
            for key, row in keys.items()
            if key in stored and stored[key] == Stored(row.status or 0, bytes.fromhex(row.digest or ""))
        ]

    def _end(self, rows: Sequence[PageRow]) -> None:
        """Commits a tombstone for each."""
        pages = [
            tombstone_of(
                Page(
                    url=str(row.url),
                    fingerprint=fingerprint(str(row.url)),
                    depth=row.depth or 0,
                    fetched=self.now,
                    status=row.status or 0,
                    content_type=row.content_type or "",
                    referrer=row.referrer or "",
                )
            )
            for row in rows
        ]
        ended = tuple((site_of(page.url), page.fingerprint) for page in pages)
        batch = Batch(
            number=self.ledger.batch() + 1,
            crawler=self.errand.crawler,
            visits=("",) * len(pages),
            again=(True,) * len(pages),
        )
        segments = self.segments.write_pages([(site_of(page.url), page) for page in pages], batch=batch)
        change = Change(parcels=(), segments=tuple(segments), batch=batch.number, ended=ended)
        self.ledger.commit(change, now=self.now)

    # -- the archive -------------------------------------------------------------------------------------

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[Iterator[tuple[Any, ...]]]:
        """The rows of the table by pieces of its segments; a damaged segment is said and left out."""
        for segment in self.ledger.segments():
            if segment.table == table:
                try:
                    yield from self.segments.rows(segment.name, columns)
                except DamagedSegment as error:
                    self.say(f"{error}; its rows are left out")


def _are(count: int, noun: str) -> str:
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"


def _pieces(values: Iterator[T], size: int) -> Iterator[list[T]]:
    return iter(lambda: list(islice(values, size)), [])
