"""Samples: the visits by which pages of a host are read from here, and what of them is compared. Pure."""

import secrets
from collections.abc import Sequence

from msgspec.structs import replace

from sterna.model import Budget, Crawler, Field, Keep, Known, Links, Page, Program, Target, Visit

READ_SECONDS = 600.0


def reading(visit: Visit, pages: Sequence[Page], *, is_first: bool) -> Visit:
    """A visit that reads these pages and follows nothing; what is said to be unchanged is asked for so."""
    unchanged = {page.fingerprint for page in pages if page.is_unchanged} if is_first else set[int]()
    return replace(
        visit,
        id=f"check-{secrets.token_hex(8)}",
        crawler=_reader(visit.crawler),
        starts=tuple(Target(page.url) for page in pages),
        known=Known(
            validators=tuple(each for each in visit.known.validators if each.fingerprint in unchanged)
        ),
        budget=Budget(
            # Redirects are followed.
            pages=2 * len(pages),
            seconds=READ_SECONDS,
            depth=0,
        ),
        within=(),
    )


def trimmed(page: Page, keep: Keep) -> Page:
    """Of a page that was read here, what a crawler would have sent home."""
    empty: dict[Field, object] = {
        "title": "",
        "description": "",
        "keywords": (),
        "headings": (),
        "text": "",
        "language": "",
        "links": Links(),
        "html": "",
    }
    is_redirect = 300 <= page.status < 400  # its link is where it leads, and goes home in any case
    gone = {
        name: value
        for name, value in empty.items()
        if name not in keep.fields and not (is_redirect and name == "links")
    }
    page = replace(page, **gone)
    if keep.share >= 1.0:
        return page
    return replace(page, text=_begin(page.text, keep.share), html=_begin(page.html, keep.share))


def _reader(crawler: Crawler) -> Crawler:
    """The crawler that reads alike, and decides nothing."""
    program = crawler.program
    fields = tuple(dict.fromkeys((*program.keep.fields, *program.needs, "links")))
    return replace(
        crawler,
        scope=replace(crawler.scope, use_sitemaps=False),
        program=Program(keep=Keep(fields=fields, selectors=program.keep.selectors), needs=program.needs),
        facts=(),
        keeps_raw=False,
    )


def _begin(text: str, share: float) -> str:
    return text[: round(len(text) * share)]
