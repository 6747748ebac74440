"""What of a page is kept: its selection is judged, and fields that are not kept are removed.

A reader does this where it can, so that unwanted fields do not even leave the reader. Pages without a body
are judged here, and those of a crawler with rules are stripped after the rules have judged them.
"""

from functools import lru_cache
from typing import TypeVar

import msgspec

from sterna.crawler.grammar import PageRow
from sterna.crawler.predicate import Judge, row_of
from sterna.model import Keep, Links, Page, Predicate, Program, Record, Visit
from sterna.runtime.engine.messages import PageView, Verdict
from sterna.web.document import Document, Fetched
from sterna.web.urls import site_of

_EMPTY = {
    "title": "",
    "description": "",
    "keywords": (),
    "headings": (),
    "text": "",
    "language": "",
    "html": "",
}
Sifted = TypeVar("Sifted", Document, Page)


class Sift(Record, frozen=True):
    """How the pages of a visit are sifted; encoded once a visit, decoded once a reader."""

    select: Predicate | None = None
    keep: Keep = Keep()
    has_rules: bool = False


class Sifter:
    """Sifts the pages of one visit."""

    def __init__(self, visit: Visit) -> None:
        program = visit.crawler.program
        self._keep = program.keep
        self._judge = Judge(program.select) if program.select else None
        self.encoded = b"" if _takes_all(program) else msgspec.msgpack.encode(_sift_of(program))

    def judged(self, page: Page, site: str) -> Page:
        """A page that no reader has seen, judged by the selection."""
        if self._judge is None or page.is_unchanged:
            return page
        return msgspec.structs.replace(page, is_kept=self._judge.judge(row_of(page, site)) is True)

    def stripped(self, page: Page, verdict: Verdict) -> Page:
        """The page as the rules decided, without the fields that are not kept."""
        is_kept = page.is_kept if verdict.is_kept is None else verdict.is_kept
        page = msgspec.structs.replace(_strip(page, self._keep, is_kept=is_kept), is_kept=is_kept)
        return page if is_kept else msgspec.structs.replace(page, links=Links(), headers=())


def sift_document(
    document: Document, fetched: Fetched, *, depth: int, referrer: str, sift: bytes
) -> Document:
    """The document with its judgement; without rules, also without the fields that are not kept."""
    how, judge = _decoded(sift)
    is_selected = judge is None or judge.judge(_row(document, fetched, depth, referrer)) is True
    if not how.has_rules:
        document = _strip(document, how.keep, is_kept=is_selected)
    return msgspec.structs.replace(document, is_selected=is_selected)


def view_of(page: Page, document: Document | None, *, site: str) -> PageView:
    """What the rules see of a page."""
    return PageView(
        url=page.url,
        site=site,
        status=page.status,
        error=page.error,
        depth=page.depth,
        referrer=page.referrer,
        content_type=page.content_type,
        size=page.size,
        title=page.title,
        description=page.description,
        language=page.language,
        selected=page.is_kept,
        keywords=page.keywords,
        headings=page.headings,
        text=page.text,
        html=page.html,
        links=document.links if document else page.links,
        extracts=page.extracts,
    )


def _takes_all(program: Program) -> bool:
    read = {*program.needs, "language"} - {"headers"}  # a language is read in any case
    is_all_kept = read.issubset(program.keep.fields)
    return program.select is None and program.keep.share == 1.0 and is_all_kept


def _sift_of(program: Program) -> Sift:
    return Sift(program.select, program.keep, bool(program.rules))


@lru_cache(maxsize=64)
def _decoded(sift: bytes) -> tuple[Sift, Judge | None]:
    how = msgspec.msgpack.decode(sift, type=Sift)
    return how, Judge(how.select) if how.select else None


def _row(document: Document, fetched: Fetched, depth: int, referrer: str) -> PageRow:
    return PageRow(
        url=fetched.url,
        site=site_of(fetched.url),
        depth=depth,
        referrer=referrer or None,
        status=fetched.status,
        content_type=document.content_type or None,
        title=document.title or None,
        description=document.description or None,
        text=document.text or None,
        language=document.language or None,
        digest=document.digest.hex() if document.may_index else None,
        size=document.size,
        keywords=document.keywords or None,
        headings=document.headings or None,
        html=document.html or None,
    )


def _strip(page: Sifted, keep: Keep, *, is_kept: bool) -> Sifted:
    gone = {name: empty for name, empty in _EMPTY.items() if not is_kept or name not in keep.fields}
    if not is_kept:
        gone["extracts"] = ()
    elif keep.share < 1.0:
        gone |= {"text": _begin(page.text, keep.share), "html": _begin(page.html, keep.share)} | gone
    return msgspec.structs.replace(page, **gone)


def _begin(text: str, share: float) -> str:
    return text[: round(len(text) * share)]
