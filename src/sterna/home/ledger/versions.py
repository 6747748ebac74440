"""What the report of a page means for what is stored of it: a version, a tombstone, or nothing."""

from enum import Enum, auto

import msgspec

from sterna.archive.manifest import UNWANTED
from sterna.home.ledger.records import Standing
from sterna.model import Page

# What an answer says of a page for good: that it moved, or is gone.
_ENDS = frozenset({301, 308, 404, 410})
# No answers of the page: its owner, or the site, does not let it be asked for.
_FORBIDDEN = frozenset({"robots", "closed"})


class Fate(Enum):
    """What becomes of a report."""

    VERSION = auto()  # a row with all that came
    TOMBSTONE = auto()  # a row which says that the page is gone, or no longer wanted
    SEEN = auto()  # no row; the ledger has the answer
    FAILED = auto()  # no row, and the ledger keeps what it knows: the page as it was is the newest


def fate_of(page: Page, before: Standing | None) -> Fate:
    """What becomes of the report of a page, of which the ledger has `before`."""
    if page.is_unchanged:
        return Fate.SEEN
    if before is None:
        return Fate.VERSION if page.is_kept else Fate.SEEN
    if before.is_good and _is_failure(page) and (before.is_kept or not page.is_kept):
        return Fate.FAILED
    if page.is_kept:
        is_same = before.is_kept and (before.status, before.error) == (page.status, page.error)
        return Fate.SEEN if is_same and not 200 <= page.status < 400 else Fate.VERSION
    return Fate.TOMBSTONE if before.is_kept and _is_conclusive(page) else Fate.SEEN


def standing_after(page: Page, before: Standing | None) -> Standing:
    """What the ledger knows of a page after this report."""
    if before and (page.is_unchanged or fate_of(page, before) is Fate.FAILED):
        return before
    stays = before is not None and before.is_kept and not _is_conclusive(page)
    return Standing(page.status, page.error, page.is_kept or stays)


def tombstone_of(page: Page) -> Page:
    """The row that ends a page: what was asked, when, and the answer."""
    return Page(
        url=page.url,
        fingerprint=page.fingerprint,
        depth=page.depth,
        fetched=page.fetched,
        status=page.status,
        error=UNWANTED,
        content_type=page.content_type,
        referrer=page.referrer,
    )


def as_judged(page: Page, before: Standing | None) -> Page:
    """An unchanged page is wanted if it was: nothing of it came that could be judged."""
    if page.is_unchanged and before:
        return msgspec.structs.replace(page, is_kept=before.is_kept)
    return page


def _is_failure(page: Page) -> bool:
    """True if nothing was learnt of the page: no answer, or a server in trouble."""
    return page.status >= 500 or (page.status == 0 and page.error not in _FORBIDDEN)


def _is_conclusive(page: Page) -> bool:
    return not page.error and (200 <= page.status < 300 or page.status in _ENDS)
