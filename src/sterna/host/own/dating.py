"""When a page really changed, as far as can be known: by the server's date or by what surveys saw. Pure.

A date of the server is believed if it lies in the past and is not simply the time of the request, as programs
write it. A file that was touched and is the same did not change, whatever its date; one that changed under an
old date (copied with its times) changed when a survey saw it.

What a server dates counts as changed with its first new byte. A page that nobody dates was made by a program,
and may hold a clock, a counter or a list of what is new elsewhere: of its words so many must be other ones,
since the last survey or, by the likeness that was kept, since it last changed.
"""

from email.utils import parsedate_to_datetime

from sterna.model import Page, Record
from sterna.web.signature import change_between

LEAST_CHANGE = 0.1  # of the words of a page without a date
FRESH_SECONDS = 60.0  # a date nearer to the request is no better than the time of the request itself
EARLIEST = 662_688_000.0  # 1991: before there was a web, a date stands for none, as 1970 mostly does


class Before(Record, frozen=True, kw_only=True):
    """What the index holds of a page."""

    title: str
    text: str  # as the last survey saw it; needed only where the digest is another now
    digest: bytes
    likeness: bytes  # as it was when the page last really changed: small changes add up
    modified: str  # as the server wrote it
    lastmod: float | None
    read: float  # when it last came whole, and with that date
    seen: float


class Verdict(Record, frozen=True):
    """What became of a page; `kind` is empty where nothing did that is worth telling."""

    kind: str  # "created", "updated" or ""
    at: float  # when that happened
    lastmod: float | None  # None where nobody can know
    is_soft: bool = False  # other bytes, but the same page


def date_of(modified: str, fetched: float) -> float | None:
    """The time that a server's Last-Modified tells; None where it tells nothing."""
    try:
        time = parsedate_to_datetime(modified).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return time if EARLIEST <= time <= fetched - FRESH_SECONDS else None


def judge_new(page: Page, *, since: float | None) -> Verdict:
    """Of a page that the index does not hold; `since` is when all pages of the site were known, if ever."""
    date = date_of(page.modified, page.fetched)
    if since is None:
        # Nobody knows when it was made, but its server may know when it was last changed.
        return Verdict("updated" if date else "", date or page.fetched, date)
    at = date if date and date > since else page.fetched
    return Verdict("created", at, date or page.fetched)


def judge_again(before: Before, page: Page) -> Verdict:
    """Of a page that the index holds, which was answered once more."""
    if page.status == 304 or page.digest == before.digest:
        return Verdict("", page.fetched, before.lastmod)
    if not (_is_dated(before, page) or _is_other(before, page)):
        return Verdict("", page.fetched, before.lastmod, is_soft=True)
    date = date_of(page.modified, page.fetched)
    at = date if date and date > before.seen else page.fetched
    return Verdict("updated", at, at)


def _is_dated(before: Before, page: Page) -> bool:
    """Whether the server itself says that the page is a new one."""
    if not page.modified or page.modified == before.modified:
        return False
    # A date of just now may be that of the request; not of a page that had a date of its own before.
    dates = date_of(page.modified, page.fetched), date_of(before.modified, before.read)
    return any(date is not None for date in dates)


def _is_other(before: Before, page: Page) -> bool:
    if page.title != before.title or change_between(before.likeness, page.likeness) >= LEAST_CHANGE:
        return True
    # Of few words a likeness tells little.
    old, new = set(before.text.split()), set(page.text.split())
    return len(old ^ new) >= LEAST_CHANGE * (len(old) + len(new))
