"""Packs what a visit finds into numbered parcels, each with a checkpoint."""

from collections import Counter

from sterna.model import Checkpoint, Ended, Hold, Page, Parcel, Robots, StateChange, Target, Usage, Visit

FULL_PAGES = 500
FULL_BYTES = 4 * 1024 * 1024
FIRST_BYTES = 128 * 1024  # of the first parcel, so that it leaves soon; each later one may be twice as large
FULL_URLS = 20_000


class Packer:
    """Changed by the visit's loop alone; `take` empties it."""

    def __init__(self, visit: Visit, *, full_bytes: int = FULL_BYTES) -> None:
        self._visit = visit
        self._most_bytes = full_bytes
        self._number = 0
        self.pages_total = 0
        self.sent_bytes = 0  # of what travels, before compression, in all parcels
        self.reading_seconds = 0.0  # of CPU; the handler adds to it
        self._told_cpu_seconds, self._told_bytes = 0.0, 0
        self._full_bytes = FIRST_BYTES
        self._clear()

    def _clear(self) -> None:
        self._pages: list[Page] = []
        self._found: list[Target] = []
        self._outlinks: list[Target] = []
        self._done: list[int] = []
        self._robots: Robots | None = None
        self._rows: list[bytes] = []
        self._errors: Counter[str] = Counter()
        self._size = self._page_count = self._kept = self._unchanged = self._redirects = 0

    @property
    def is_empty(self) -> bool:
        return not (self._pages or self._found or self._outlinks or self._done or self._robots or self._rows)

    @property
    def is_full(self) -> bool:
        return (
            len(self._pages) >= FULL_PAGES
            or self._size >= self._full_bytes
            or len(self._found) + len(self._outlinks) >= FULL_URLS
        )

    def add_page(self, page: Page) -> None:
        """Adds a page, a redirect or an error: its URL is done."""
        self._pages.append(page)
        self._weigh(_size_of(page))
        if page.error:
            self._errors[page.error] += 1
        elif page.status == 304 or 200 <= page.status < 300:
            self._page_count += 1
            self.pages_total += 1
            self._kept += page.is_kept
            self._unchanged += page.is_unchanged
        elif 300 <= page.status < 400:
            self._redirects += 1
        else:
            self._errors[f"http_{page.status}"] += 1

    def add_rows(self, rows: tuple[bytes, ...]) -> None:
        """Adds facts that rules send home."""
        self._rows += rows
        self._weigh(sum(map(len, rows)))

    def _weigh(self, size_bytes: int) -> None:
        self._size += size_bytes
        self.sent_bytes += size_bytes

    def add_found(self, target: Target) -> None:
        self._found.append(target)

    def add_outlink(self, target: Target) -> None:
        self._outlinks.append(target)

    def add_done(self, fingerprint: int, *, error: str = "") -> None:
        """Records a URL that left the frontier without a page."""
        self._done.append(fingerprint)
        if error:
            self._errors[error] += 1

    def count_error(self, kind: str) -> None:
        self._errors[kind] += 1

    def set_robots(self, robots: Robots) -> None:
        self._robots = robots

    def take(
        self,
        *,
        requests: int,
        bytes_received: int,
        holds: tuple[Hold, ...],
        delay_seconds: float,
        cpu_seconds: float = 0.0,
        again: tuple[Target, ...] = (),
        state: StateChange | None = None,
        ended: Ended | None = None,
    ) -> Parcel:
        """The next parcel, with everything since the last one; `cpu_seconds` is the sum of all parcels."""
        self._number += 1
        visit = self._visit
        parcel = Parcel(
            visit=visit.id,
            site=visit.site,
            part=visit.part,
            epoch=visit.epoch,
            number=self._number,
            pages=tuple(self._pages),
            outlinks=tuple(self._outlinks),
            checkpoint=Checkpoint(found=tuple(self._found), done=tuple(self._done), again=again),
            state=state or StateChange(),
            rows=tuple(self._rows),
            holds=holds,
            delay_seconds=delay_seconds,
            robots=self._robots,
            usage=Usage(
                requests=requests,
                bytes_received=bytes_received,
                pages=self._page_count,
                unchanged=self._unchanged,
                redirects=self._redirects,
                errors=dict(self._errors),
                kept=self._kept,
                cpu_seconds=cpu_seconds - self._told_cpu_seconds,
                sent_bytes=self.sent_bytes - self._told_bytes,
            ),
            ended=ended,
        )
        self._clear()
        self._told_cpu_seconds, self._told_bytes = cpu_seconds, self.sent_bytes
        self._full_bytes = min(2 * self._full_bytes, self._most_bytes)
        return parcel


def _size_of(page: Page) -> int:
    """The approximate size of the page on the wire, in characters."""
    size = len(page.url) + len(page.title) + len(page.text) + len(page.html) + len(page.description)
    size += len(page.links.urls) + len(page.links.texts)
    size += sum(map(len, page.keywords)) + sum(map(len, page.headings))
    size += sum(len(text) for _, texts in page.extracts for text in texts)
    return size + (len(page.raw.body) if page.raw else 0)
