"""Which pages of a visit are checked, and how many.

A host that altered a share f of its pages is caught by k samples with probability 1 - (1 - f)^k. For an
unknown host 59 samples are drawn, which catch one altered page in twenty with 95 %. A host with a good score
is sampled less, in proportion to the doubt that is left. At most one page in twenty of a visit is checked, so
that checking costs at most a twentieth of ordinary crawling; at least one page is.
"""

import re
from math import ceil, log
from random import Random

from msgspec.structs import replace

from sterna.errors import ReadError
from sterna.model import Ended, Page, Parcel, Record
from sterna.trust.judgement import is_checkable
from sterna.trust.score import Belief, Score, belief
from sterna.web.content_coding import decode_body
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint

ALTERED_SHARE = 0.05
WANTED_DETECTION = 0.95
MOST_SAMPLES = ceil(log(1.0 - WANTED_DETECTION) / log(1.0 - ALTERED_SHARE))
ONE_IN = 20  # pages of a visit, at most
_UNKNOWN = belief(Score(), 0.0)
_MAX_RAW_BYTES = 8 * 1024 * 1024
_CODING = re.compile(rb"^[ \t]*content-encoding[ \t]*:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


def sample_count(of: Belief, pages: int, *, is_strict: bool = False) -> int:
    """How many of a visit's pages to check; if strict, as many as for an unknown host, without the share."""
    if is_strict:
        return min(MOST_SAMPLES, pages)
    doubt = (1.0 - of.lower) / (1.0 - _UNKNOWN.lower)
    wanted = min(ceil(MOST_SAMPLES * doubt), MOST_SAMPLES)
    return min(max(min(wanted, ceil(pages / ONE_IN)), 1), pages)


class ReportedPage(Record, frozen=True):
    """A page as a host reported it, without the raw response, which is compared on arrival."""

    page: Page
    has_false_raw: bool = False  # the raw response does not match the digest


class Witness:
    """Watches the parcels of one visit and keeps what a check needs: some pages, and every URL mentioned."""

    def __init__(self, random: Random) -> None:
        self._random = random
        # Changed by see() alone.
        self._sample: list[ReportedPage] = []
        self.checkable = 0  # pages that could have been kept
        self.mentioned: set[int] = set()  # fingerprints
        self.earliest: float | None = None  # when the first page was fetched, as the host says
        self.pages = 0
        self.ended: Ended | None = None

    def see(self, parcel: Parcel) -> None:
        for page in parcel.pages:
            self.pages += 1
            self.mentioned.add(page.fingerprint)
            self.earliest = page.fetched if self.earliest is None else min(page.fetched, self.earliest)
            if is_checkable(page):
                self._consider(page)
        checkpoint = parcel.checkpoint
        self.mentioned.update(checkpoint.done)
        self.mentioned.update(fingerprint(target.url) for target in (*checkpoint.found, *checkpoint.again))
        self.ended = parcel.ended

    def _consider(self, page: Page) -> None:
        """Keeps a uniform random sample (Vitter's algorithm R), which the host cannot predict."""
        self.checkable += 1
        kept = len(self._sample)
        place = kept if kept < MOST_SAMPLES else self._random.randrange(self.checkable)
        if place < MOST_SAMPLES:
            self._sample[place : place + 1] = [ReportedPage(replace(page, raw=None), _has_false_raw(page))]

    def draw(self, count: int) -> list[ReportedPage]:
        """A uniform sample of the pages kept."""
        return self._random.sample(self._sample, min(count, len(self._sample)))


def _has_false_raw(page: Page) -> bool:
    """True if the response for the archive does not match the digest."""
    if page.raw is None or not page.digest or page.is_unchanged:
        return False
    found = _CODING.search(page.raw.response_head)
    coding = found[1].strip().decode("latin-1") if found else ""
    try:
        body = decode_body(page.raw.body, coding, max_bytes=_MAX_RAW_BYTES)
    except ReadError:
        return False  # too large, or unreadable for a reader too: then the page reports the error
    return digest_of(body) != page.digest
