"""Which claims of a visit are checked, and how many: its pages, and what it did not bring, with its reason.

A host that altered a share f of its pages is caught by k samples with probability 1 - (1 - f)^k. For an
unknown host 59 samples are drawn, which catch one altered page in twenty with 95 %. A host with a good score
is sampled less, in proportion to the doubt that is left. At most one page in twenty of a visit is checked, so
that checking costs at most a twentieth of ordinary crawling; at least one page is.
"""

from collections.abc import Iterator, Sequence
from math import ceil, log
from random import Random

from msgspec.structs import replace

from sterna.model import Ended, Page, Parcel, Raw, Record, Target
from sterna.trust.excuses import PUT_OFF, SITEMAP, is_excuse
from sterna.trust.judgement import is_plain, state_of
from sterna.trust.refusals import RefusalWitness
from sterna.trust.runs import RunWitness
from sterna.trust.score import Belief, Score, belief
from sterna.trust.sketch import is_light, sketch_of
from sterna.web.urls import fingerprint

ALTERED_SHARE = 0.05
WANTED_DETECTION = 0.95
MOST_SAMPLES = ceil(log(1.0 - WANTED_DETECTION) / log(1.0 - ALTERED_SHARE))
ONE_IN = 20  # pages of a visit, at most
MOST_EXCUSES = 16  # that are tried once one of them turned out to be unfounded
MOST_MOVES = 16  # start pages that moved to another site: each of them is checked
MOST_LATE = 20  # URLs that an honest visit may put off, after requests that failed
MOST_BLOCKED = 64  # if its site asked for a pause or failed, which ended it: one for each connection
OFTEN = 3  # times that a URL was put off, from which it is checked in any case
_UNKNOWN = belief(Score(), 0.0)
MAX_RAW_BYTES = 16 * 1024 * 1024  # of all raw responses in a sample; the largest are not compared


def sample_count(of: Belief, pages: int, *, is_strict: bool = False) -> int:
    """How many of a visit's pages to check; if strict, as many as for an unknown host, without the share."""
    if is_strict:
        return min(MOST_SAMPLES, pages)
    doubt = (1.0 - of.lower) / (1.0 - _UNKNOWN.lower)
    wanted = min(ceil(MOST_SAMPLES * doubt), MOST_SAMPLES)
    return min(max(min(wanted, ceil(pages / ONE_IN)), 1), pages)


class ReportedPage(Record, frozen=True):
    """A page as a host reported it, a large one as a sketch, and the raw response if it is to be compared."""

    page: Page
    raw: Raw | None = None

    @property
    def raw_bytes(self) -> int:
        return len(self.raw.body) + len(self.raw.response_head) if self.raw else 0


class Witness:
    """Watches the parcels of one visit and keeps what a check needs: some claims, and every URL mentioned.

    What was not brought is a claim like a page, with the reason for its error; but refusals are kept apart.
    """

    def __init__(
        self, random: Random, *, runs: RunWitness | None = None, refusals: RefusalWitness | None = None
    ) -> None:
        self._random = random
        self.runs = runs  # of a crawler with rules
        self.refusals = refusals  # of one whose rules judge requests
        # Changed by resume() and see() alone.
        self._sample: list[ReportedPage] = []
        self._moves: list[ReportedPage] = []
        self._sitemaps: dict[int, Target] = {}  # found by the visit
        self.excuses: list[Page] = []  # some, at random
        self._excuse_count = 0
        self.checkable = 0  # claims that could have been kept
        self.mentioned: set[int] = set()  # fingerprints
        self.earliest: float | None = None  # when the first page was fetched, as the host says
        self.pages = 0
        self.ended: Ended | None = None

    @property
    def waiting(self) -> list[Target]:
        """URLs that may still be done without a page."""
        pages = self.refusals.waiting if self.refusals else ()
        return [*self._sitemaps.values(), *pages]

    @property
    def excused(self) -> float:
        """The share of excuses among the claims of the visit."""
        return self._excuse_count / max(self.checkable, 1)

    def resume(self, waiting: Sequence[Target]) -> None:
        """Notes what an earlier run of home saw of the visit, and what is not done since."""
        self._sitemaps |= {fingerprint(each.url): each for each in waiting if each.kind == "sitemap"}
        if self.refusals:
            self.refusals.note(waiting)

    def see(self, parcel: Parcel) -> None:
        for page in parcel.pages:
            self.pages += 1
            self.mentioned.add(page.fingerprint)
            self.earliest = page.fetched if self.earliest is None else min(page.fetched, self.earliest)
            self._note_move(page, parcel.site)
            self._consider(page)
        checkpoint = parcel.checkpoint
        for reason, target in self._left_out(parcel):
            self._consider(_unbrought(target, reason, at=self.earliest or 0.0))
        if self.runs:
            self.runs.see(parcel)
        if self.refusals:
            self.refusals.see(parcel)
        self.mentioned.update(checkpoint.done)
        self.mentioned.update(fingerprint(target.url) for target in checkpoint.found)
        if parcel.ended:  # each parcel repeats those that still wait; most were found before
            self.mentioned.update(fingerprint(target.url) for target in checkpoint.again)
        self.ended = parcel.ended

    def _left_out(self, parcel: Parcel) -> Iterator[tuple[str, Target]]:
        """What a parcel leaves out besides pages, with the reason; start URLs that are done home derives."""
        checkpoint = parcel.checkpoint
        for each in checkpoint.found:
            if each.kind == "sitemap":
                self._sitemaps[fingerprint(each.url)] = each
        for mark in checkpoint.done:
            if sitemap := self._sitemaps.pop(mark, None):
                yield SITEMAP, sitemap
        if parcel.ended:
            late = [each for each in checkpoint.again if each.not_before]
            often = [each for each in checkpoint.again if each.attempts >= OFTEN]
            most = MOST_BLOCKED if parcel.ended in (Ended.BLOCKED, Ended.FAILING) else MOST_LATE
            for each in late if len(late) > most else often:
                yield PUT_OFF, each

    def _consider(self, page: Page) -> None:
        """Keeps a uniform random sample (Vitter's algorithm R), which the host cannot predict."""
        is_excused = is_excuse(page)
        if not (is_plain(page) or is_excused):
            return
        self.checkable += 1
        place = self._place(len(self._sample), self.checkable, MOST_SAMPLES)
        if place < MOST_SAMPLES:
            is_comparable = bool(page.digest) and not page.is_unchanged
            self._sample[place : place + 1] = [
                ReportedPage(_light(page), page.raw if is_comparable else None)
            ]
            self._bound_raws()
        if is_excused:
            self._excuse_count += 1
            place = self._place(len(self.excuses), self._excuse_count, MOST_EXCUSES)
            if place < MOST_EXCUSES:
                self.excuses[place : place + 1] = [_light(page)]

    def _bound_raws(self) -> None:
        """Drops the largest raw responses until the others fit."""
        sample = self._sample
        while sum(each.raw_bytes for each in sample) > MAX_RAW_BYTES:
            largest = max(range(len(sample)), key=lambda place: sample[place].raw_bytes)
            sample[largest] = ReportedPage(sample[largest].page)

    def _place(self, kept: int, count: int, most: int) -> int:
        return kept if kept < most else self._random.randrange(count)

    def _note_move(self, page: Page, site: str) -> None:
        """Notes a start page that moved to another site: home may follow it there."""
        is_moved = page.depth == 0 and state_of(page) == "moved"
        if is_moved and not page.links.urls.startswith(f"{site}/") and len(self._moves) < MOST_MOVES:
            self._moves.append(ReportedPage(_light(page)))

    def draw(self, count: int) -> list[ReportedPage]:
        """A uniform sample of the claims kept, and the start pages that moved to other sites."""
        drawn = self._random.sample(self._sample, min(count, len(self._sample)))
        urls = {each.page.url for each in drawn}
        return drawn + [each for each in self._moves if each.page.url not in urls]


def _unbrought(target: Target, reason: str, *, at: float) -> Page:
    return Page(
        url=target.url,
        fingerprint=fingerprint(target.url),
        depth=target.depth,
        fetched=at,
        error=reason,
        referrer=target.referrer,
    )


def _light(page: Page) -> Page:
    return replace(page, raw=None) if is_light(page) else sketch_of(page)
