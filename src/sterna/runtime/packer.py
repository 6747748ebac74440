"""Packs what a visit finds into numbered parcels, each with a checkpoint."""

from collections import Counter

from sterna.model import Checkpoint, Ended, Hold, Page, Parcel, Robots, StateChange, Target, Usage, Visit
from sterna.runtime.reins import Gauge

FULL_PAGES = 500
FULL_BYTES = 4 * 1024 * 1024
FIRST_BYTES = 128 * 1024  # of the first parcel, so that it leaves soon; each later one may be twice as large
FULL_URLS = 20_000


class Packer:
    """Changed by the visit's loop alone; `take` empties it."""

    def __init__(self, visit: Visit, *, full_bytes: int) -> None:
        self._visit = visit
        self._most_bytes = full_bytes
        self._number = 0
        self.pages_total = 0
        self.sent_bytes = 0  # of what travels, before compression, in all parcels
        self.reading_seconds = 0.0  # of CPU; the handler adds to it
        self._told = Gauge()  # what the parcels before have reported
        self._full_bytes = FIRST_BYTES
        self._clear()

    def _clear(self) -> None:
        self._pages: list[Page] = []
        self.found: list[Target] = []  # URLs that are new in the frontier, or have a higher priority
        self.outlinks: list[Target] = []
        self._done: list[int] = []
        self.robots: Robots | None = None
        self._rows: list[bytes] = []
        self.errors: Counter[str] = Counter()
        self._size = self._page_count = self._kept = self._unchanged = self._redirects = 0

    @property
    def is_empty(self) -> bool:
        return not (self._pages or self.found or self.outlinks or self._done or self.robots or self._rows)

    @property
    def is_full(self) -> bool:
        return (
            len(self._pages) >= FULL_PAGES
            or self._size >= self._full_bytes
            or len(self.found) + len(self.outlinks) >= FULL_URLS
        )

    def add_page(self, page: Page) -> None:
        """Adds a page, a redirect or an error: its URL is done."""
        self._pages.append(page)
        self._weigh(_size_of(page))
        if page.error:
            self.errors[page.error] += 1
        elif page.status == 304 or 200 <= page.status < 300:
            self._page_count += 1
            self.pages_total += 1
            self._kept += page.is_kept
            self._unchanged += page.is_unchanged
        elif 300 <= page.status < 400:
            self._redirects += 1
        else:
            self.errors[f"http_{page.status}"] += 1

    def add_rows(self, rows: tuple[bytes, ...]) -> None:
        self._rows += rows
        self._weigh(sum(map(len, rows)))

    def _weigh(self, size_bytes: int) -> None:
        self._size += size_bytes
        self.sent_bytes += size_bytes

    def add_done(self, fingerprint: int, *, error: str = "") -> None:
        """Records a URL that left the frontier without a page."""
        self._done.append(fingerprint)
        if error:
            self.errors[error] += 1

    def take(
        self,
        used: Gauge,
        *,
        holds: tuple[Hold, ...],
        delay_seconds: float,
        again: tuple[Target, ...],
        state: StateChange,
        ended: Ended | None,
    ) -> Parcel:
        """The next parcel, with everything since the last one; `used` is what the visit has used in all."""
        self._number += 1
        visit, told = self._visit, self._told
        parcel = Parcel(
            visit=visit.id,
            site=visit.site,
            part=visit.part,
            epoch=visit.epoch,
            number=self._number,
            pages=tuple(self._pages),
            outlinks=tuple(self.outlinks),
            checkpoint=Checkpoint(found=tuple(self.found), done=tuple(self._done), again=again),
            state=state,
            rows=tuple(self._rows),
            holds=holds,
            delay_seconds=delay_seconds,
            robots=self.robots,
            usage=Usage(
                requests=used.requests - told.requests,
                bytes_received=used.read_bytes - told.read_bytes,
                pages=self._page_count,
                unchanged=self._unchanged,
                redirects=self._redirects,
                errors=dict(self.errors),
                kept=self._kept,
                cpu_seconds=used.cpu_seconds - told.cpu_seconds,
                sent_bytes=used.sent_bytes - told.sent_bytes,
            ),
            ended=ended,
        )
        self._clear()
        self._told = used
        self._full_bytes = min(2 * self._full_bytes, self._most_bytes)
        return parcel


def _size_of(page: Page) -> int:
    """The approximate size of the page on the wire, in characters."""
    size = len(page.url) + len(page.title) + len(page.text) + len(page.html) + len(page.description)
    size += len(page.links.urls) + len(page.links.texts)
    size += sum(map(len, page.keywords)) + sum(map(len, page.headings))
    size += sum(len(text) for _, texts in page.extracts for text in texts)
    return size + (len(page.raw.body) if page.raw else 0)
