"""What an HTML page says: its title, text and links, and what its author allows."""

import re
from collections.abc import Collection, Iterable
from typing import Annotated, Protocol

from msgspec import Meta

from sterna.model import DEFAULT_FIELDS, Field, Links, Record
from sterna.web.css import urls_of_page
from sterna.web.keywords import keywords_of
from sterna.web.markup import Findings
from sterna.web.urls import Canonical
from sterna.web.walk import read_tree

# Each text of a list takes many times its bytes in memory: a reader that got loose must not send millions.
Texts = Annotated[tuple[str, ...], Meta(max_length=50_000)]


class Html(Record, frozen=True, kw_only=True):
    """What was read of one page; nothing but its links and its language where it may not be indexed."""

    title: str = ""
    text: str = ""
    language: str = ""
    links: Links = Links()
    marks: bytes = b""  # of each link to a page, as of `Joined`
    may_index: bool = True
    may_follow: bool = True
    may_archive: bool = True
    description: str = ""
    headings: Texts = ()
    keywords: Texts = ()
    differs: bool = False  # two ways to read it came to different results


class ReadPage(Protocol):
    """Reads what a page says, in one way or another."""

    def __call__(self, text: str, *, agent: str, wants: Collection[Field]) -> Findings: ...


class May(Record, frozen=True):
    """What the author of a page allows with it."""

    index: bool
    follow: bool
    archive: bool


def read_html(
    text: str,
    url: str,
    canonical: Canonical,
    *,
    x_robots: str = "",
    agent: str = "sterna",
    wants: Collection[Field] = DEFAULT_FIELDS,
    reads_css: bool = False,
    read: ReadPage = read_tree,
) -> Html:
    """Reads a page that came from `url`; `x_robots` is its X-Robots-Tag header, `agent` our name in it.

    What the CSS within the page names counts as a link only where `reads_css` says so.
    """
    page = read(text, agent=agent, wants=wants)
    for href in urls_of_page(text) if reads_css else ():
        page.add_media(href, "css")
    base = (canonical(page.base, url) if page.base else None) or url
    may = read_may(x_robots, page.robots, agent=agent)
    shown = wants if may.index else ()
    language = page.language or page.content_language
    links, marks = join(page, base, canonical=canonical)
    keywords: tuple[str, ...] = ()
    if "keywords" in shown:
        headings, own_text = page.content
        keywords = keywords_of(page.title, headings, page.description, own_text, language)
    return Html(
        title=page.title if "title" in shown else "",
        text=page.text if "text" in shown else "",
        language=language,
        links=links,
        marks=marks,
        may_index=may.index,
        may_follow=may.follow,
        may_archive=may.archive,
        description=page.description if "description" in shown else "",
        headings=page.headings if "headings" in shown else (),
        keywords=keywords,
        differs=page.differs,
    )


# Directives of X-Robots-Tag that have a value; any other word before a colon names a crawler.
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_AGENT_NAME = re.compile(r"[a-z_*][a-z0-9_.*/-]*")


def read_may(x_robots: str, metas: Iterable[str] = (), *, agent: str = "sterna") -> May:
    """What X-Robots-Tag and the robots metas allow: the strictest of those that concern us."""
    directives: set[str] = set()
    addressee, ours = "", agent.lower()
    for part in x_robots.lower().split(","):
        word, colon, rest = (piece.strip() for piece in part.partition(":"))
        if colon and word not in _WITH_VALUE and _AGENT_NAME.fullmatch(word):
            addressee, word = word, rest
        if addressee in ("", "*", ours):
            directives.add(word)
    for content in metas:
        directives.update(re.split(r"[\s,;]+", content.lower()))
    is_none = "none" in directives
    return May(
        index=not is_none and "noindex" not in directives,
        follow=not is_none and "nofollow" not in directives,
        archive="noarchive" not in directives,
    )


def join(page: Findings, base: str, *, canonical: Canonical) -> tuple[Links, bytes]:
    """Returns the links as absolute URLs in columns, those to pages first; and the marks of these."""
    found = page.joined(base, canonical)
    needed: dict[str, str] = {}
    for href, rel in page.media.items():
        url = canonical(href, base)
        if url is not None and needed.get(url, "srcset") == "srcset":
            needed[url] = rel
    if not needed:
        return Links(found.urls, found.texts.rstrip("\n"), found.rels.rstrip("\n")), found.marks
    glue = "\n" if found.urls else ""
    urls, rels = (
        glue.join((found.urls, "\n".join(needed))),
        glue.join((found.rels, "\n".join(needed.values()))),
    )
    return Links(urls, found.texts.rstrip("\n"), rels), found.marks
