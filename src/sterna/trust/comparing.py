"""Comparing two readings of a page: which fields differ, and how much of what it says."""

from collections.abc import Container

from msgspec.structs import replace

from sterna.model import Links, Page
from sterna.web.signature import change_between, likeness_of


def change(one: Page, other: Page) -> float | None:
    """Which share of the words is another; None where there are none to compare."""
    ours, theirs = _words(one), _words(other)
    if ours and theirs:
        return 1.0 - len(ours & theirs) / len(ours | theirs)
    if one.likeness and (theirs or other.likeness):
        return change_between(one.likeness, other.likeness or likeness_of(other.text))
    return None


def differences(told: Page, seen: Page, fields: Container[str]) -> list[str]:
    """Which of the fields that travelled are not what was read here; `headers` are others each time."""
    parts = {
        "title": told.title == seen.title,
        "description": told.description == seen.description,
        "keywords": told.keywords == seen.keywords,
        "headings": told.headings == seen.headings,
        "language": told.language == seen.language,
        "links": told.links == seen.links,
        "text": told.text == seen.text,
        "html": told.html == seen.html,
    }
    found = [name for name, is_same in parts.items() if name in fields and not is_same]
    return found + ["selectors"] * (told.extracts != seen.extracts)


def plain(page: Page) -> Page:
    """Of a page what reads alike in any charset."""
    texts = {name: _ascii(getattr(page, name)) for name in ("title", "description", "text", "html")}
    links = Links(page.links.urls, _ascii(page.links.texts), page.links.rels)
    headings = tuple(map(_ascii, page.headings))
    extracts = tuple((name, tuple(map(_ascii, found))) for name, found in page.extracts)
    return replace(page, **texts, links=links, headings=headings, extracts=extracts, keywords=(), language="")


def _words(page: Page) -> set[str]:
    extracts = (text for _, texts in page.extracts for text in texts)
    texts = (
        page.title,
        page.description,
        page.text,
        page.links.urls,
        *page.keywords,
        *page.headings,
        *extracts,
    )
    return set(" ".join(texts).lower().split())


def _ascii(text: str) -> str:
    return " ".join(text.encode("ascii", "ignore").decode().split())
