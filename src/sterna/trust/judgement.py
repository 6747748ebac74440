"""Whether a page is what a host reported: its report is compared with one or two fetches from here.

Sites change during a visit, vary a page per visitor and are sometimes unreachable. None of that is a lie:
where there may be another reason, a difference counts neither for nor against the host. What the web server
itself says counts as proof: a page last modified before the host read it was the same page then.
"""

from collections.abc import Container
from email.utils import parsedate_to_datetime
from enum import StrEnum

from msgspec.structs import replace

from sterna.model import Field, Links, Page, Record
from sterna.trust.sketch import COMPARED, Sketch, sketch_of
from sterna.web.signature import change_between, likeness_of

RECENT_SECONDS = 600.0  # since the host read it: a change by its author is unlikely
CLOCKS_SECONDS = 60.0  # tolerance for a server's clock
ALIKE = 0.02  # share of differing words up to which a page is the same but for a date or a name
NEAR = 0.3  # share of differing words up to which it may be another version of the same page
OTHER_VERSION = 0.1  # share of words that another version of Sterna may read differently
MANY_DOUBTS = 2  # unexplained differences in a visit from which they count as altered pages
_GONE = frozenset({404, 410})
_OWN_REASONS = frozenset({"robots"})  # a host's own claim, which can be tested


class Judgement(StrEnum):
    """The result for one checked page."""

    SAME = "same"
    ALIKE = "alike"  # differs at each request, with the same content
    CHANGED = "changed"  # differs, and time or the visitor may be the reason: does not count
    UNSEEN = "unseen"  # could not be fetched from here: does not count
    DOUBTFUL = "doubtful"  # differs for no known reason: counts if there are several
    FOUNDED = "founded"  # the host could not bring it, and it cannot be had from here either
    UNFOUNDED = (
        "unfounded"  # the host did not bring it, and it can be had from here: counts if there are many
    )
    ALTERED = "altered"
    INVENTED = "invented"  # there is no such page
    MISSING = "missing"  # it exists, and the host reported that it does not
    OMITTED = "omitted"  # the host did not mention it, though its crawl passed it
    CLOAKED = "cloaked"  # browsers get another page


GOOD = frozenset({Judgement.SAME, Judgement.ALIKE})
BAD = frozenset(
    {Judgement.ALTERED, Judgement.INVENTED, Judgement.MISSING, Judgement.OMITTED, Judgement.CLOAKED}
)


class Finding(Record, frozen=True):
    """A checked page, the judgement, and the reason in a few words."""

    url: str
    verdict: Judgement
    detail: str = ""


class Manner(Record, frozen=True, kw_only=True):
    """How the pages of a visit are compared."""

    fields: tuple[Field, ...]  # that the crawler keeps
    least_change: float = 0.0  # a known page with less change counts as unchanged
    is_same_version: bool = True  # of Sterna: the same body reads alike
    is_from_disk: bool = False  # the host reads files: charset and language may differ from HTTP's


def is_plain(page: Page) -> bool:
    """True if the report says of the page that it exists, moved or does not exist."""
    return _claim(page) != ""


def needs_second_look(reported: Page, seen: Page | None, manner: Manner) -> bool:
    """True if one fetch does not settle it."""
    reported, seen, _ = _alike(reported, seen, None)
    if seen is None or not (state := state_of(seen)):
        return False
    if _claim(reported) != state:
        return True
    return state != "gone" and _same(reported, seen, manner) is None


def judge(
    reported: Page,
    seen: Page | None,
    again: Page | None,
    *,
    manner: Manner,
    now: float,
    referrer: Page | None = None,
) -> Finding:
    """Judges a page that a host reported by one fetch from here, and by a second one where they differ.

    The fetched pages hold only the fields that the crawler keeps. `referrer` is the page, with its links, on
    which the host says that it found this one.
    """
    if seen is None or not (state := state_of(seen)):
        reason = "it was not fetched in time" if seen is None else seen.error or f"HTTP {seen.status}"
        return Finding(reported.url, Judgement.UNSEEN, reason)
    claim = _claim(reported)
    settled = _same(reported, seen, manner) if claim == state else None
    if settled or (claim == state == "gone"):
        return settled or Finding(reported.url, Judgement.SAME)
    if again is None or not state_of(again):
        return Finding(reported.url, Judgement.CHANGED, "it differs, and a second fetch failed")
    is_recent = now - reported.fetched <= RECENT_SECONDS
    if claim != state:
        return _of_other_state(reported, seen, again, is_recent=is_recent, referrer=referrer)
    if reported.is_unchanged and manner.least_change:
        differs = change(reported, seen)
        is_little = differs is not None and differs < manner.least_change + ALIKE
        verdict = Judgement.ALIKE if is_little else Judgement.CHANGED
        return Finding(reported.url, verdict, "it is another version")
    return _differing(reported, seen, again, manner=manner, is_recent=is_recent)


def cloaked(seen: Page, as_browser: Page | None, again: Page | None) -> Finding | None:
    """CLOAKED if browsers get another page than crawlers; None if they do not, or if it is unknown."""
    if as_browser is None or again is None:
        return None
    if not state_of(as_browser) == state_of(again) == state_of(seen) == "there":
        return None
    own = change(seen, again)
    other = change(seen, as_browser)
    if own is None or other is None or other <= own + NEAR:
        return None
    return Finding(seen.url, Judgement.CLOAKED, f"{other:.0%} of its words differ for a browser")


def weighed(findings: list[Finding]) -> list[Finding]:
    """The findings; if several are doubtful, these count as altered."""
    doubtful = [each for each in findings if each.verdict is Judgement.DOUBTFUL]
    if len(doubtful) < MANY_DOUBTS:
        return findings
    return [replace(each, verdict=Judgement.ALTERED) if each in doubtful else each for each in findings]


# -- one page ----------------------------------------------------------------------------------------------


def state_of(page: Page) -> str:
    """What a response says of the page: there, moved or gone; empty if it says nothing."""
    if page.is_unchanged or (200 <= page.status < 300 and not page.error):
        return "there"
    if page.status in _GONE:
        return "gone"
    if 300 <= page.status < 400 and not page.error:
        return "moved"
    return ""


def _alike(reported: Page, seen: Page | None, again: Page | None) -> tuple[Page, Page | None, Page | None]:
    """The pages, all of them sketches if one is."""
    if not any(isinstance(page, Sketch) for page in (reported, seen, again)):
        return reported, seen, again
    return sketch_of(reported), seen and sketch_of(seen), again and sketch_of(again)


def _claim(reported: Page) -> str:
    return "gone" if reported.error in _OWN_REASONS else state_of(reported)


def _same(reported: Page, seen: Page, manner: Manner) -> Finding | None:
    """What one fetch proves; None where the bodies differ."""
    same, is_moved = Finding(reported.url, Judgement.SAME), state_of(seen) == "moved"
    if not seen.is_unchanged and (reported.digest != seen.digest or is_moved):
        return same if is_moved and reported.links.urls == seen.links.urls else None
    has_text = reported.is_kept and not (seen.is_unchanged or reported.is_unchanged)
    differing = ", ".join(_differences(reported, seen, manner.fields)) if has_text else ""
    if not differing:
        return same
    is_sketch = isinstance(reported, Sketch)
    if manner.is_from_disk and (is_sketch or not _differences(_plain(reported), _plain(seen), manner.fields)):
        return Finding(reported.url, Judgement.CHANGED, f"read in another charset: {differing}")
    if not manner.is_same_version and (change(reported, seen) or 0.0) <= OTHER_VERSION:
        return Finding(reported.url, Judgement.CHANGED, f"read by another version of Sterna: {differing}")
    return Finding(reported.url, Judgement.ALTERED, f"its digest matches, but not its {differing}")


def _of_other_state(
    reported: Page, seen: Page, again: Page, *, is_recent: bool, referrer: Page | None
) -> Finding:
    """Judges a page of which host and site disagree whether it exists, or where."""
    claim, state = _claim(reported), state_of(seen)
    if state_of(again) != state:
        return Finding(reported.url, Judgement.CHANGED, "it comes and goes")
    # The referrer, unmodified since the host read it, has no link to the page.
    is_unlinked = (
        referrer is not None
        and not isinstance(referrer, Sketch)  # which links it has is not known any more
        and state_of(referrer) == "there"
        and _is_older(referrer, reported.fetched)
        and reported.url not in referrer.links.urls.split("\n")
    )
    if (claim, state) == ("there", "gone") and (is_recent or is_unlinked):
        return Finding(reported.url, Judgement.INVENTED, f"there is no such page: HTTP {seen.status}")
    was_there = not reported.error and _is_older(seen, reported.fetched)
    if (claim, state) == ("gone", "there") and (is_recent or was_there):
        said = "robots.txt forbids it" if reported.error else f"HTTP {reported.status}"
        return Finding(reported.url, Judgement.MISSING, f"it exists, but was reported missing: {said}")
    # A redirect may depend on where the request comes from.
    is_doubtful = is_recent and state != "moved"
    verdict = Judgement.DOUBTFUL if is_doubtful else Judgement.CHANGED
    return Finding(reported.url, verdict, f"it was reported {claim}, and is {state}")


def _is_older(seen: Page, than: float) -> bool:
    """True if the web server says that the page was not modified since that time."""
    modified = _time(seen.modified)
    return modified is not None and modified + CLOCKS_SECONDS < than


def _differing(reported: Page, seen: Page, again: Page, *, manner: Manner, is_recent: bool) -> Finding:
    if not seen.digest:
        return Finding(reported.url, Judgement.CHANGED, "the site forbids indexing it from here")
    differs = change(reported, seen)
    share = "its body differs" if differs is None else f"{differs:.0%} of its words differ"
    if again.digest != seen.digest or state_of(again) != state_of(seen):
        return _changing(reported, share, differs, own=change(seen, again), is_recent=is_recent)
    if _is_older(seen, reported.fetched):
        what = "reported unchanged" if reported.is_unchanged else share
        return Finding(
            reported.url, Judgement.ALTERED, f"{what}; the site has it unmodified since {seen.modified}"
        )
    if _time(seen.modified) is not None:
        return Finding(reported.url, Judgement.CHANGED, f"{share}; modified {seen.modified}")
    if differs is not None and differs <= NEAR:
        is_alike = differs == 0.0 and not _differences(reported, seen, manner.fields)
        return Finding(reported.url, Judgement.ALIKE if is_alike else Judgement.CHANGED, share)
    return Finding(reported.url, Judgement.DOUBTFUL if is_recent else Judgement.CHANGED, share)


def _changing(
    reported: Page, share: str, differs: float | None, *, own: float | None, is_recent: bool
) -> Finding:
    """Judges a page that varies per request: it should differ from ours as ours differ from each other."""
    if differs is None or own is None:
        return Finding(reported.url, Judgement.CHANGED, "it differs at each request")
    detail = f"{share}, at each request {own:.0%}"
    if differs <= own + ALIKE:
        return Finding(reported.url, Judgement.ALIKE, detail)
    is_doubtful = is_recent and differs > own + NEAR
    return Finding(reported.url, Judgement.DOUBTFUL if is_doubtful else Judgement.CHANGED, detail)


def _time(written: str) -> float | None:
    """An HTTP date in seconds; None if it is malformed or empty."""
    try:
        return parsedate_to_datetime(written).timestamp() if written else None
    except (ValueError, TypeError, OverflowError):
        return None


# -- two readings of a page --------------------------------------------------------------------------------


def change(one: Page, other: Page) -> float | None:
    """The share of words that differ; None if there are none to compare."""
    ours, theirs = _words(one), _words(other)
    if ours and theirs:
        return 1.0 - len(ours & theirs) / len(ours | theirs)
    if one.likeness and (theirs or other.likeness):
        return change_between(one.likeness, other.likeness or likeness_of(other.text))
    return None


def _differences(reported: Page, seen: Page, fields: Container[str]) -> list[str]:
    """The kept fields that differ; headers are not compared, because they always differ."""
    if isinstance(reported, Sketch):
        return ["texts"] if reported.html != seen.html else []
    kept = [name for name in COMPARED if name in fields]
    found = [name for name in kept if getattr(reported, name) != getattr(seen, name)]
    return found + ["selectors"] * (reported.extracts != seen.extracts)


def _plain(page: Page) -> Page:
    """The page reduced to what reads alike in any charset."""
    texts = {name: _ascii(getattr(page, name)) for name in ("title", "description", "text", "html")}
    links = Links(page.links.urls, _ascii(page.links.texts), page.links.rels)
    headings = tuple(map(_ascii, page.headings))
    extracts = tuple((name, tuple(map(_ascii, found))) for name, found in page.extracts)
    return replace(page, **texts, links=links, headings=headings, extracts=extracts, keywords=(), language="")


def _words(page: Page) -> set[str]:
    extracts = (text for _, texts in page.extracts for text in texts)
    # Versions of Sterna read links to media differently: see CHANGELOG, 0.4.0.
    named = (page.title, page.description, page.text, *page.links.to_pages())
    return set(" ".join((*named, *page.keywords, *page.headings, *extracts)).lower().split())


def _ascii(text: str) -> str:
    return " ".join(text.encode("ascii", "ignore").decode().split())
