"""Packs what a visit finds into numbered parcels, each with its checkpoint."""

from collections import Counter

from sterna.model import Checkpoint, Ended, Hold, Page, Parcel, Robots, Target, Usage, Visit

FULL_PAGES = 500
FULL_BYTES = 4 * 1024 * 1024
FULL_URLS = 20_000


class Packer:
    """Changed by the visit's loop alone; `take` empties it."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._number = 0
        self.pages_total = 0
        self._clear()

    def _clear(self) -> None:
        self._pages: list[Page] = []
        self._found: list[Target] = []
        self._outlinks: list[Target] = []
        self._done: list[int] = []
        self._robots: Robots | None = None
        self._errors: Counter[str] = Counter()
        self._size = self._page_count = self._unchanged = self._redirects = 0

    @property
    def is_empty(self) -> bool:
        return not (self._pages or self._found or self._outlinks or self._done or self._robots)

    @property
    def is_full(self) -> bool:
        return (
            len(self._pages) >= FULL_PAGES
            or self._size >= FULL_BYTES
            or len(self._found) + len(self._outlinks) >= FULL_URLS
        )

    def add_page(self, page: Page) -> None:
        """A page, a redirect or an error that ends a URL's turn."""
        self._pages.append(page)
        self._size += len(page.text) + len(page.links.urls) + len(page.links.texts)
        self._size += len(page.raw.body) if page.raw else 0
        if page.error:
            self._errors[page.error] += 1
        elif page.status == 304 or 200 <= page.status < 300:
            self._page_count += 1
            self.pages_total += 1
            self._unchanged += page.is_unchanged
        elif 300 <= page.status < 400:
            self._redirects += 1
        else:
            self._errors[f"http_{page.status}"] += 1

    def add_found(self, target: Target) -> None:
        self._found.append(target)

    def add_outlink(self, target: Target) -> None:
        self._outlinks.append(target)

    def add_done(self, fingerprint: int, *, error: str = "") -> None:
        """A URL that left the frontier without a page."""
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
        again: tuple[Target, ...] = (),
        ended: Ended | None = None,
    ) -> Parcel:
        """The next parcel, with everything since the last one."""
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
            ),
            ended=ended,
        )
        self._clear()
        return parcel
