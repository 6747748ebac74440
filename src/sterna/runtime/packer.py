"""Packs what a visit finds into numbered parcels, each with a checkpoint and as heavy as any home takes it.

Pages, rows and the change of the crawler's facts belong together. URLs may go ahead: a visit that is cut
after them finds them again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from sterna.model import Checkpoint, Ended, Hold, Page, Parcel, Robots, StateChange, Target, Usage, Visit
from sterna.runtime.reins import Gauge
from sterna.web.bodies import BodyClaim
from sterna.web.urls import fingerprint
from sterna.web.weight import MAX_FACT_BYTES, ROW_BYTES, weight_of_facts, weight_of_url

FULL_PAGES = 500
FULL_BYTES = 4 * 1024 * 1024
FIRST_BYTES = 128 * 1024  # of the first parcel, so that it leaves soon; each later one may be twice as large
FULL_URLS = 20_000
MIB = 1 << 20
# In memory at home, of which `wire.weight` allows 72 MiB for a parcel; the rest is for pages.
MOST_URL_BYTES = 16 * MIB
MOST_AGAIN_BYTES = 8 * MIB
MOST_STATE_BYTES = 32 * MIB  # a crawler with more new facts at once is ended
# As they travel, in a parcel of 26 MiB; the rest is for URLs to try again, and for pages that are given up.
MOST_CHANGE_BYTES = 20 * MIB
_NUMBER_BYTES = 16  # of a fact, with the heads of both
_HEAVY_BYTES = 8 * MIB  # of facts and pages, beside which no URLs are sent


class Packer:
    """Changed by the visit's loop alone; `take` empties it."""

    def __init__(
        self, visit: Visit, *, full_bytes: int, full_pages: int = FULL_PAGES, number: int = 0
    ) -> None:
        self._visit = visit
        self._most_bytes = full_bytes
        self._full_pages = full_pages
        self._number = number  # of the last parcel
        self._sent_pages = 0  # in all parcels before
        self.sent_bytes = 0  # of what travels, before compression, in all parcels
        self.reading_seconds = 0.0  # of CPU; the handler adds to it
        self._told = Gauge()  # what the parcels before have reported
        self._full_bytes = FIRST_BYTES
        self._clear()

    def _clear(self) -> None:
        self._pages: list[Page] = []
        self._row_counts: list[int] = []  # of these pages
        self._claims: list[BodyClaim] = []  # the room of large ones
        self._targets: list[Target | None] = []  # of these pages; None for one that is not taken back
        self.found: list[Target] = []  # URLs that are new in the frontier, or have a higher priority
        self.outlinks: list[Target] = []
        self._done: list[tuple[Target, str]] = []  # with an error, if there was one
        self._dropped: list[int] = []  # start URLs that are out of scope
        self.robots: Robots | None = None
        self._rows: list[bytes] = []
        self.errors: Counter[str] = Counter()
        self.unmet: Counter[str] = Counter()  # conditions that pages failed; the handler adds to it
        self._size = self._page_count = 0
        self._url_bytes = self._row_bytes = 0  # in memory at home

    @property
    def is_empty(self) -> bool:
        listed = self._pages or self.found or self.outlinks or self._done or self._dropped
        return not (listed or self.robots or self._rows)

    @property
    def pages_total(self) -> int:
        return self._sent_pages + self._page_count

    @property
    def is_full(self) -> bool:
        return (
            len(self._pages) >= min(self._full_pages, FULL_PAGES)
            or self._size >= self._full_bytes
            or self._row_bytes >= self._most_bytes
            or self._url_bytes >= MOST_URL_BYTES
            or len(self.found) + len(self.outlinks) >= FULL_URLS
        )

    def add_page(
        self,
        page: Page,
        target: Target | None = None,
        *,
        rows: tuple[bytes, ...] = (),
        claim: BodyClaim | None = None,
    ) -> None:
        """Adds a page, a redirect or an error, with what rules send home of it: its URL is done.

        With its target, the page can be taken back. A claim is the caller's again with take_claims().
        """
        if claim:
            self._claims.append(claim)
        self._pages.append(page)
        self._targets.append(target)
        self._row_counts.append(len(rows))
        self.add_rows(rows)
        self._weigh(_size_of(page))
        self._page_count += _is_good(page)

    def add_rows(self, rows: tuple[bytes, ...]) -> None:
        self._rows += rows
        self._row_bytes += ROW_BYTES * len(rows)
        self._weigh(sum(map(len, rows)))

    def add_found(self, target: Target) -> None:
        self.found.append(target)
        self._url_bytes += weight_of_url(target)

    def add_outlink(self, target: Target) -> None:
        self.outlinks.append(target)
        self._url_bytes += weight_of_url(target)

    def take_back(self) -> list[Target]:
        """Removes all pages and rows since the last parcel; returns their targets, which are not done."""
        taken = [target for target in self._targets if target] + [target for target, _ in self._done]
        left = [page for page, target in zip(self._pages, self._targets, strict=True) if target is None]
        self.sent_bytes -= self._size
        self._size = self._page_count = self._row_bytes = 0
        self._pages, self._targets, self._row_counts, self._rows, self._done = [], [], [], [], []
        for page in left:
            self.add_page(page)
        for claim in self.take_claims():
            claim.release()
        return taken

    def take_claims(self) -> list[BodyClaim]:
        """The room of the pages since the last parcel, to be released once they are at home."""
        claims, self._claims = self._claims, []
        return claims

    def _weigh(self, size_bytes: int) -> None:
        self._size += size_bytes
        self.sent_bytes += size_bytes

    def add_done(self, target: Target, *, error: str = "") -> None:
        """Records a URL that left the frontier without a page."""
        self._done.append((target, error))

    def drop(self, mark: int) -> None:
        """Records a start URL that the scope does not admit."""
        self._dropped.append(mark)

    def take(
        self,
        used: Gauge,
        *,
        holds: tuple[Hold, ...],
        delay_seconds: float,
        again: tuple[Target, ...],
        state: StateChange,
        ended: Ended | None,
    ) -> list[Parcel]:
        """The next parcels, with everything since the last one; `used` is what the visit has used in all.

        URLs that are too heavy for one go ahead in parcels of their own.
        """
        ahead = self._ahead(beside_bytes=_weight_of_change(state) + self._size)
        self._number += 1
        visit, told = self._visit, self._told
        good = [page for page in self._pages if _is_good(page)]
        parcel = Parcel(
            visit=visit.id,
            site=visit.site,
            part=visit.part,
            epoch=visit.epoch,
            number=self._number,
            pages=tuple(self._pages),
            outlinks=tuple(self.outlinks),
            checkpoint=Checkpoint(
                found=tuple(self.found),
                done=(*self._dropped, *(fingerprint(target.url) for target, _ in self._done)),
                again=tuple(_first(again)),
            ),
            state=state,
            rows=tuple(self._rows),
            row_counts=tuple(self._row_counts) if self._rows else (),
            holds=holds,
            delay_seconds=delay_seconds,
            robots=self.robots,
            usage=Usage(
                requests=used.requests - told.requests,
                bytes_received=used.read_bytes - told.read_bytes,
                pages=self._page_count,
                unchanged=sum(page.is_unchanged for page in good),
                redirects=sum(map(_is_redirect, self._pages)),
                errors=self._all_errors(),
                kept=sum(page.is_kept for page in good),
                cpu_seconds=used.cpu_seconds - told.cpu_seconds,
                sent_bytes=used.sent_bytes - told.sent_bytes,
            ),
            ended=ended,
            unmet=tuple(self.unmet.items()),
        )
        self._sent_pages += self._page_count
        self._clear()
        self._told = used
        self._full_bytes = min(2 * self._full_bytes, self._most_bytes)
        return [*ahead, parcel]

    def _ahead(self, *, beside_bytes: int) -> list[Parcel]:
        """Parcels of URLs alone, if they are too heavy for one with the rest; they are then taken."""
        has_urls = bool(self._url_bytes or self._dropped)
        if self._url_bytes <= MOST_URL_BYTES and (beside_bytes <= _HEAVY_BYTES or not has_urls):
            return []
        # What a start page moved to is believed only beside the page.
        moved = [target for target in self.outlinks if target.depth == 0]
        outlinks = [target for target in self.outlinks if target.depth > 0]
        ahead = [self._of_urls(found=tuple(some)) for some in _portions(self.found)]
        ahead += [self._of_urls(outlinks=tuple(some)) for some in _portions(outlinks)]
        if self._dropped:
            ahead.append(self._of_urls(done=tuple(self._dropped)))
        self.found, self.outlinks, self._dropped = [], moved, []
        return ahead

    def _of_urls(
        self,
        *,
        found: tuple[Target, ...] = (),
        outlinks: tuple[Target, ...] = (),
        done: tuple[int, ...] = (),
    ) -> Parcel:
        self._number += 1
        visit = self._visit
        return Parcel(
            visit=visit.id,
            site=visit.site,
            part=visit.part,
            epoch=visit.epoch,
            number=self._number,
            outlinks=outlinks,
            checkpoint=Checkpoint(found=found, done=done),
        )

    def _all_errors(self) -> dict[str, int]:
        errors = self.errors + Counter(error for _, error in self._done if error)
        for page in self._pages:
            if not _is_good(page) and not _is_redirect(page):
                errors[page.error or f"http_{page.status}"] += 1
        return dict(errors)


def is_too_heavy(state: StateChange) -> bool:
    """True if a change of a crawler's facts is too much for any parcel, or one of them too large."""
    facts = [len(fact) for _, fact in state.added]
    numbers = _NUMBER_BYTES * (len(facts) + len(state.removed))
    return (
        _weight_of_change(state) > MOST_STATE_BYTES
        or numbers + sum(facts) + len(state.memory or b"") > MOST_CHANGE_BYTES
        or max(facts, default=0) > MAX_FACT_BYTES
    )


def _weight_of_change(state: StateChange) -> int:
    facts = sum(len(fact) for _, fact in state.added)
    return weight_of_facts(len(state.added), len(state.removed)) + facts + len(state.memory or b"")


def _portions(targets: Iterable[Target]) -> Iterator[list[Target]]:
    """The URLs in the portions of a parcel each."""
    portion, weight = list[Target](), 0
    for target in targets:
        portion.append(target)
        weight += weight_of_url(target)
        if weight >= MOST_URL_BYTES:
            yield portion
            portion, weight = [], 0
    if portion:
        yield portion


def _first(again: Iterable[Target]) -> Iterator[Target]:
    """The first URLs of which a parcel can carry all; home still has the others, as waiting."""
    left = MOST_AGAIN_BYTES
    for target in again:
        left -= weight_of_url(target)
        if left < 0:
            return
        yield target


def _is_good(page: Page) -> bool:
    return not page.error and (page.status == 304 or 200 <= page.status < 300)


def _is_redirect(page: Page) -> bool:
    return not page.error and page.status != 304 and 300 <= page.status < 400


def _size_of(page: Page) -> int:
    """The approximate size of the page on the wire, in characters."""
    size = len(page.url) + len(page.title) + len(page.text) + len(page.html) + len(page.description)
    size += len(page.links.urls) + len(page.links.texts)
    size += sum(map(len, page.keywords)) + sum(map(len, page.headings))
    size += sum(len(text) for _, texts in page.extracts for text in texts)
    return size + (len(page.raw.body) if page.raw else 0)
