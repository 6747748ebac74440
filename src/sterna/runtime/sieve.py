"""What of a page is kept: its selection is judged, and fields that are not kept are removed.

A reader does this where it can, so that unwanted fields do not even leave the reader. Pages without a body
are judged by `runtime.pages`, which also strips those of a crawler with rules after the rules judged them.
"""

from functools import lru_cache
from typing import Any

import msgspec

from sterna.crawler.grammar import PageRow, describe
from sterna.crawler.predicate import Judge
from sterna.model import Keep, Page, Predicate, Record
from sterna.web.document import Document, Fetched
from sterna.web.urls import site_of

_TEXTS, _LISTS = ("title", "description", "text", "language", "html"), ("keywords", "headings")
_MAX_TOLD, _MAX_WORDS = 12, 120  # conditions, and letters of one
_EMPTY = {**dict.fromkeys(_TEXTS, ""), **dict.fromkeys(_LISTS, ())}


class Sift(Record, frozen=True):
    """How the pages of a visit are sifted; encoded once a visit, decoded once a reader."""

    select: Predicate | None = None
    keep: Keep = Keep()
    has_rules: bool = False


def sift_document(document: Document, fetched: Fetched) -> Document:
    """The document with its judgement; without rules, also without the fields that are not kept."""
    how, judge = _decoded(fetched.sift)
    row = _row(document, fetched)
    is_selected = judge is None or judge.judge(row) is True
    is_told = not is_selected and fetched.kind == "page" and 200 <= fetched.status < 300
    unmet = () if not is_told else tuple(words for words, part in _parts(fetched.sift) if not part.judge(row))
    gone = {} if how.has_rules else gone_fields(document, how.keep, is_kept=is_selected)
    return msgspec.structs.replace(document, is_selected=is_selected, unmet=unmet, **gone)


@lru_cache(maxsize=64)
def _decoded(sift: bytes) -> tuple[Sift, Judge | None]:
    how = msgspec.msgpack.decode(sift, type=Sift)
    return how, Judge(how.select) if how.select else None


@lru_cache(maxsize=64)
def _parts(sift: bytes) -> tuple[tuple[str, Judge], ...]:
    """The conditions that must all hold, in words; those after the twelfth are not told."""
    select = _decoded(sift)[0].select
    assert select
    parts = select.parts if select.op == "and" else (select,)
    return tuple((_shortened(describe(part)), Judge(part)) for part in parts[:_MAX_TOLD])


def _shortened(words: str) -> str:
    return words if len(words) <= _MAX_WORDS else f"{words[: _MAX_WORDS - 3]}..."


def _row(document: Document, fetched: Fetched) -> PageRow:
    return PageRow(
        url=fetched.url,
        site=site_of(fetched.url),
        depth=fetched.depth,
        referrer=fetched.referrer,
        status=fetched.status,
        content_type=document.content_type,
        digest=document.digest.hex() if document.may_index else None,
        size=document.size,
        **{name: getattr(document, name) for name in _EMPTY},
    )


def gone_fields(page: Document | Page, keep: Keep, *, is_kept: bool) -> dict[str, Any]:
    """The fields that are not kept, or only in part, with their new values."""
    gone: dict[str, Any] = {
        name: empty for name, empty in _EMPTY.items() if not is_kept or name not in keep.fields
    }
    if not is_kept:
        gone["extracts"] = ()
    elif keep.share < 1.0:
        for name, text in (("text", page.text), ("html", page.html)):
            gone.setdefault(name, text[: round(len(text) * keep.share)])
    return gone
