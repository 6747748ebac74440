"""What a visit at a host told, as far as a check needs it: some pages, and every URL that it mentioned."""

from random import Random

from msgspec.structs import replace

from sterna.errors import ReadError
from sterna.model import Ended, Page, Parcel, Record
from sterna.trust.judgement import is_checkable
from sterna.trust.sampling import MOST_SAMPLES, Reservoir
from sterna.web.content_coding import decode_body
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint

_MAX_RAW_BYTES = 8 * 1024 * 1024


class Told(Record, frozen=True):
    """A page as a host told it, without its raw response, which is compared here."""

    page: Page
    has_false_raw: bool = False  # it is not what the digest is of


class Witness:
    """Sees the parcels of one visit as they come."""

    def __init__(self, random: Random) -> None:
        self._pages: Reservoir[Told] = Reservoir(MOST_SAMPLES, random)
        # Changed by see() alone.
        self.mentioned: set[int] = set()  # fingerprints
        self.earliest: float | None = None  # when the first page was fetched, as the host says
        self.pages = 0
        self.ended: Ended | None = None

    def see(self, parcel: Parcel) -> None:
        for page in parcel.pages:
            self._see(page)
        checkpoint = parcel.checkpoint
        self.mentioned.update(checkpoint.done)
        self.mentioned.update(fingerprint(target.url) for target in (*checkpoint.found, *checkpoint.again))
        self.ended = parcel.ended

    def _see(self, page: Page) -> None:
        self.pages += 1
        self.mentioned.add(page.fingerprint)
        self.earliest = page.fetched if self.earliest is None else min(page.fetched, self.earliest)
        if is_checkable(page) and (place := self._pages.place()) is not None:
            self._pages.keep(place, Told(replace(page, raw=None), _has_false_raw(page)))

    @property
    def checkable(self) -> int:
        """How many of the pages could be checked."""
        return self._pages.shown

    def draw(self, count: int) -> list[Told]:
        """The pages to check: see `Reservoir`."""
        return self._pages.draw(count)


def _has_false_raw(page: Page) -> bool:
    """True if the response that goes into the archive is not the one that the digest is of."""
    if page.raw is None or not page.digest or page.is_unchanged:
        return False
    try:
        body = decode_body(page.raw.body, _coding(page.raw.response_head), max_bytes=_MAX_RAW_BYTES)
    except ReadError:
        return False  # too large, or a reader could not read it either: its page says so
    return digest_of(body) != page.digest


def _coding(head: bytes) -> str:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-encoding":
            return value.strip().decode("latin-1")
    return ""
