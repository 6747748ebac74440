"""Excuses: what a host did not bring, with its reason, and whether that reason holds from here.

A page may be too slow, too large or put off for the host, and not for us a moment later: one such page proves
nothing. A host that hides pages has many that can be had from here: more than its site's trouble explains.
"""

from math import sqrt

from msgspec.structs import replace

from sterna.model import Page, Record
from sterna.trust.judgement import Finding, Judgement, is_plain, state_of

MANY = 5  # unfounded excuses, from which they count: fewer may be the site's own trouble
UNFOUNDED_SHARE = 0.9  # of what rules did, if they remember: the host's may have been in another state
TRIES = 3  # failed requests, after which a visit gives a page up
WORSE = 3.0  # times as many requests as from here may have failed at the host
LARGE_BYTES = 1024 * 1024  # a host may take a page for too large that is read here
PUT_OFF, SITEMAP = "put_off", "sitemap"  # the reasons for a URL to be tried again, and for one without a page
# What a fetch from here does not test: the owner closed the page, or rules fail on it (see `runs`).
_UNTESTED = frozenset({"refused", "rules"})
_FAILURES = frozenset({"connect", "timeout", "network", "empty", "truncated", "dns", "proxy"})


class Trouble(Record, frozen=True):
    """How the site failed in the check too."""

    requests: int = 0  # for pages that came
    failures: int = 0  # of these requests
    broken: float = 0.0  # the share of claims that did not come from here at all

    @property
    def explained(self) -> float:
        """The share of claims that an honest visit may have given up."""
        # By chance the check sees fewer failures than there are: two standard deviations are added.
        failing = (self.failures + 2 * sqrt(self.failures)) / max(self.requests, 1)
        return (WORSE * failing) ** TRIES + self.broken


def is_excuse(page: Page) -> bool:
    """True if the report only says why the page was not brought."""
    return not is_plain(page) and page.error not in _UNTESTED


def tried(excuse: Page, seen: Page | None) -> Finding:
    """Judges an excuse by one fetch from here."""
    said = f"not brought: {excuse.error or f'HTTP {excuse.status}'}"
    if seen is None:
        return Finding(excuse.url, Judgement.UNSEEN, "it was not fetched in time")
    is_large = excuse.error == "too_large" and seen.size > LARGE_BYTES
    is_sitemap = excuse.error == SITEMAP and not seen.content_type.endswith("html")
    if state_of(seen) != "there" or is_large or is_sitemap:
        return Finding(excuse.url, Judgement.FOUNDED, said)
    return Finding(excuse.url, Judgement.UNFOUNDED, f"{said}; it can be fetched from here")


def is_broken(page: Page) -> bool:
    """True if the site failed to answer, after all tries."""
    return page.status >= 500 or page.error in _FAILURES or page.error.startswith("http_")


def weighed(findings: list[Finding], *, excused: float, trouble: Trouble) -> list[Finding]:
    """The findings; if many excuses are unfounded, they count together as one missing page.

    They are compared with all claims, of which `excused` is the share of excuses. Pages that a visit to a
    site in such trouble gives up are no lie, nor as many more as cannot be had from here at all.
    """
    unfounded = _count(findings, Judgement.UNFOUNDED)
    tried = unfounded + _count(findings, Judgement.FOUNDED)
    is_lie = unfounded >= MANY and excused * unfounded / tried > trouble.explained
    return together(findings, tried) if is_lie else findings


def together(findings: list[Finding], tried: int) -> list[Finding]:
    """The findings, with the unfounded ones as one missing page."""
    first = next(each for each in findings if each.verdict is Judgement.UNFOUNDED)
    more = _count(findings, Judgement.UNFOUNDED) - 1
    detail = f"{first.detail}; so it is with {more} more of {tried} that were tried"
    return [
        replace(each, verdict=Judgement.MISSING, detail=detail) if each is first else each
        for each in findings
    ]


def _count(findings: list[Finding], verdict: Judgement) -> int:
    return sum(each.verdict is verdict for each in findings)
