"""Whether a page is what a host said: what it told beside what was read from here, once or twice.

Sites change while they are visited, show a page to each visitor a little otherwise, and are out of reach now
and then. None of that is a lie: where something else can be the reason, a page says nothing, neither good nor
bad. What the web server itself says counts as proof: a page that was last modified before the host read it
was the same page then.
"""

from email.utils import parsedate_to_datetime
from enum import StrEnum

from sterna.model import Field, Page, Record
from sterna.trust.comparing import change, differences, plain

RECENT_SECONDS = 600.0  # since the host read it: that an author changed it meanwhile is unlikely
CLOCKS_SECONDS = 60.0  # that a server's clock may be wrong
ALIKE = 0.02  # of the words differ: the page is the same but for a date or a name
NEAR = 0.3  # of the words differ: it may well be another version of the same page
OTHER_VERSION = 0.1  # of the words, that another version of Sterna may read otherwise
MANY_DOUBTS = 2  # pages of a visit that differ and nothing says why: from so many on they count
_GONE = frozenset({404, 410})
_OWN_REASONS = frozenset({"robots"})  # a host's own claim, which can be tested


class Verdict(StrEnum):
    """What became of a page that was checked."""

    SAME = "same"
    ALIKE = "alike"  # it is another at each request, and says the same
    CHANGED = "changed"  # it differs, and time or the visitor may be the reason: says nothing
    UNSEEN = "unseen"  # it could not be had from here: says nothing
    DOUBTFUL = "doubtful"  # it differs, and nothing says why: counts where there are several
    ALTERED = "altered"
    INVENTED = "invented"  # there is no such page
    MISSING = "missing"  # it is there, and the host said that it is not
    OMITTED = "omitted"  # the host said nothing of it, though the way there led past it
    CLOAKED = "cloaked"  # browsers are shown another page


GOOD = frozenset({Verdict.SAME, Verdict.ALIKE})
BAD = frozenset({Verdict.ALTERED, Verdict.INVENTED, Verdict.MISSING, Verdict.OMITTED, Verdict.CLOAKED})


class Finding(Record, frozen=True):
    """A page, what became of it, and why, in a few words."""

    url: str
    verdict: Verdict
    detail: str = ""


class Manner(Record, frozen=True, kw_only=True):
    """How the pages of a visit are to be compared."""

    fields: tuple[Field, ...]  # that the crawler keeps
    least_change: float = 0.0  # below which a known page counts as unchanged
    is_same_version: bool = True  # of Sterna: it reads the same body alike
    is_from_disk: bool = False  # the host reads files: their charset and language may be told otherwise


def is_checkable(page: Page) -> bool:
    """True if what a host says of a page can be tested: that it is there, elsewhere, or not there."""
    return _kind(page) != "" or page.error in _OWN_REASONS


def needs_second_look(told: Page, seen: Page | None, manner: Manner) -> bool:
    """True if one reading does not settle it."""
    if seen is None or not (kind := _kind(seen)):
        return False
    if _claim(told) != kind:
        return True
    return kind != "gone" and _same(told, seen, manner) is None


def judge(
    told: Page,
    seen: Page | None,
    again: Page | None,
    *,
    manner: Manner,
    now: float,
    referrer: Page | None = None,
) -> Finding:
    """What to think of a page that a host told, and that was read from here, twice where it differs.

    Of what was read only what the crawler keeps is given. `referrer` is the page, with its links, on which
    the host says that it found this one.
    """
    if seen is None or not (kind := _kind(seen)):
        return Finding(told.url, Verdict.UNSEEN, _why_unseen(seen))
    claim = _claim(told)
    settled = _same(told, seen, manner) if claim == kind else None
    if settled or (claim == kind == "gone"):
        return settled or Finding(told.url, Verdict.SAME)
    if again is None or not _kind(again):
        return Finding(told.url, Verdict.CHANGED, "it differs, and was not to be had a second time")
    is_recent = now - told.fetched <= RECENT_SECONDS
    if claim != kind:
        return _of_other_kind(told, seen, again, is_recent=is_recent, referrer=referrer)
    if told.is_unchanged and manner.least_change:
        return _little_changed(told, seen, manner)
    return _differing(told, seen, again, manner=manner, is_recent=is_recent)


def cloaked(seen: Page, as_browser: Page | None, again: Page | None) -> Finding | None:
    """Whether browsers are shown another page than crawlers; None if not, or if nobody can tell."""
    if as_browser is None or again is None or not _kind(as_browser) == _kind(again) == _kind(seen) == "there":
        return None
    own = change(seen, again)
    other = change(seen, as_browser)
    if own is None or other is None or other <= own + NEAR:
        return None
    return Finding(seen.url, Verdict.CLOAKED, f"{other:.0%} of its words are others for a browser")


def weighed(findings: list[Finding]) -> list[Finding]:
    """The findings; doubts that come in numbers are none any more."""
    doubts = sum(each.verdict is Verdict.DOUBTFUL for each in findings)
    if doubts < MANY_DOUBTS:
        return findings
    return [
        Finding(each.url, Verdict.ALTERED, each.detail) if each.verdict is Verdict.DOUBTFUL else each
        for each in findings
    ]


# -- one page --------------------------------------------------------------------------------------------


def _kind(page: Page) -> str:
    """What an answer says of the page: there, moved or gone; nothing if the answer is no answer."""
    if page.is_unchanged or (200 <= page.status < 300 and not page.error):
        return "there"
    if page.status in _GONE:
        return "gone"
    if 300 <= page.status < 400 and not page.error:
        return "moved"
    return ""


def _claim(told: Page) -> str:
    return "gone" if told.error in _OWN_REASONS else _kind(told)


def _why_unseen(seen: Page | None) -> str:
    if seen is None:
        return "it was not asked for in time"
    return seen.error or f"HTTP {seen.status}"


def _same(told: Page, seen: Page, manner: Manner) -> Finding | None:
    """SAME or ALTERED where one reading proves it; None where it differs."""
    if seen.is_unchanged:
        return Finding(told.url, Verdict.SAME)
    if told.digest != seen.digest or _kind(seen) == "moved":
        is_same_way = _kind(seen) == "moved" and told.links.urls == seen.links.urls
        return Finding(told.url, Verdict.SAME) if is_same_way else None
    if told.is_unchanged or not told.is_kept:
        return Finding(told.url, Verdict.SAME)
    differing = ", ".join(differences(told, seen, manner.fields))
    return _otherwise_read(told, seen, differing, manner) if differing else Finding(told.url, Verdict.SAME)


def _otherwise_read(told: Page, seen: Page, differing: str, manner: Manner) -> Finding:
    """The same bytes, of which something else was made."""
    if manner.is_from_disk and not differences(plain(told), plain(seen), manner.fields):
        return Finding(told.url, Verdict.CHANGED, f"read in another charset: {differing}")
    if not manner.is_same_version and (change(told, seen) or 0.0) <= OTHER_VERSION:
        return Finding(told.url, Verdict.CHANGED, f"read by another version of Sterna: {differing}")
    return Finding(told.url, Verdict.ALTERED, f"its digest is right, and not its {differing}")


def _of_other_kind(told: Page, seen: Page, again: Page, *, is_recent: bool, referrer: Page | None) -> Finding:
    """One says that it is there, the other that it is not, or is elsewhere."""
    claim, kind = _claim(told), _kind(seen)
    if _kind(again) != kind:
        return Finding(told.url, Verdict.CHANGED, "it comes and goes")
    if (claim, kind) == ("there", "gone") and (is_recent or _is_unlinked(told, referrer)):
        return Finding(told.url, Verdict.INVENTED, f"there is no such page: HTTP {seen.status}")
    was_there = not told.error and _is_older(seen, told.fetched)
    if (claim, kind) == ("gone", "there") and (is_recent or was_there):
        said = "robots.txt forbids it" if told.error else f"HTTP {told.status}"
        return Finding(told.url, Verdict.MISSING, f"it is there, and was said to be not: {said}")
    # Who is sent elsewhere may depend on where one comes from.
    is_doubtful = is_recent and kind != "moved"
    verdict = Verdict.DOUBTFUL if is_doubtful else Verdict.CHANGED
    return Finding(told.url, verdict, f"it was said to be {claim}, and is {kind}")


def _is_unlinked(told: Page, referrer: Page | None) -> bool:
    """True if the host cannot have found the page where it says: nothing there leads to it, then as now."""
    if referrer is None or _kind(referrer) != "there" or not _is_older(referrer, told.fetched):
        return False
    return told.url not in referrer.links.urls.split("\n")


def _is_older(seen: Page, than: float) -> bool:
    """True if the web server says that the page was not modified since that time."""
    modified = _time(seen.modified)
    return modified is not None and modified + CLOCKS_SECONDS < than


def _little_changed(told: Page, seen: Page, manner: Manner) -> Finding:
    """A page that counts as unchanged because little of it is new."""
    differs = change(told, seen)
    is_little = differs is not None and differs < manner.least_change + ALIKE
    return Finding(told.url, Verdict.ALIKE if is_little else Verdict.CHANGED, "it is another version of it")


def _differing(told: Page, seen: Page, again: Page, *, manner: Manner, is_recent: bool) -> Finding:
    if not seen.digest:
        return Finding(told.url, Verdict.CHANGED, "it may not be indexed, as it is seen from here")
    differs = change(told, seen)
    share = "its body differs" if differs is None else f"{differs:.0%} of its words differ"
    if again.digest != seen.digest or _kind(again) != _kind(seen):
        return _changing(told, share, differs, own=change(seen, again), is_recent=is_recent)
    if _is_older(seen, told.fetched):
        what = "said to be unchanged" if told.is_unchanged else share
        return Finding(told.url, Verdict.ALTERED, f"{what}; the site has it unmodified since {seen.modified}")
    if _time(seen.modified) is not None:
        return Finding(told.url, Verdict.CHANGED, f"{share}; modified {seen.modified}")
    if differs is not None and differs <= NEAR:
        is_alike = differs == 0.0 and not differences(told, seen, manner.fields)
        return Finding(told.url, Verdict.ALIKE if is_alike else Verdict.CHANGED, share)
    return Finding(told.url, Verdict.DOUBTFUL if is_recent else Verdict.CHANGED, share)


def _changing(
    told: Page, share: str, differs: float | None, *, own: float | None, is_recent: bool
) -> Finding:
    """A page that is another at each request: it should differ from ours as ours do from each other."""
    if differs is None or own is None:
        return Finding(told.url, Verdict.CHANGED, "it is another at each request")
    detail = f"{share}, at each request {own:.0%}"
    if differs <= own + ALIKE:
        return Finding(told.url, Verdict.ALIKE, detail)
    is_doubtful = is_recent and differs > own + NEAR
    return Finding(told.url, Verdict.DOUBTFUL if is_doubtful else Verdict.CHANGED, detail)


def _time(written: str) -> float | None:
    """An HTTP date in seconds; None if it is none."""
    try:
        return parsedate_to_datetime(written).timestamp() if written else None
    except (ValueError, TypeError, OverflowError):
        return None
