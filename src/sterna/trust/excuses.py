"""Excuses: what a host did not bring, with its reason, and whether that reason holds from here.

A page may be too slow, too large or put off for the host, and not for us a moment later: one such page proves
nothing. A host that hides pages has many, and all of them can be had from here.
"""

from msgspec.structs import replace

from sterna.model import Page
from sterna.trust.judgement import Finding, Judgement, is_plain, state_of

MANY = 5  # unfounded excuses, from which they count: fewer may be the site's own trouble
UNFOUNDED_SHARE = 0.9  # of the excuses that were tried
LARGE_BYTES = 1024 * 1024  # a host may take a page for too large that is read here
PUT_OFF, SITEMAP = "put_off", "sitemap"  # the reasons for a URL to be tried again, and for one without a page
# What a fetch from here does not test: the owner closed the page, or rules fail on it (see `runs`).
_UNTESTED = frozenset({"refused", "rules"})


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


def weighed(findings: list[Finding]) -> list[Finding]:
    """The findings; many unfounded excuses count, but together only as one missing page."""
    unfounded = [each for each in findings if each.verdict is Judgement.UNFOUNDED]
    count = len(unfounded) + sum(each.verdict is Judgement.FOUNDED for each in findings)
    if len(unfounded) < MANY or len(unfounded) < UNFOUNDED_SHARE * count:
        return findings
    first = unfounded[0]
    detail = f"{first.detail}, as can {len(unfounded) - 1} more of {count} that were tried"
    return [
        replace(each, verdict=Judgement.MISSING, detail=detail) if each is first else each
        for each in findings
    ]
