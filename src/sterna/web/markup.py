"""What the tags of a page say, by their attributes: the part of reading that needs neither tree nor text."""

import re
from array import array
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from sterna.model import MEDIA_RELS
from sterna.web.srcset import candidates_of, shown
from sterna.web.urls import Canonical, fingerprint

MAX_LINKS = 10_000
MAX_HREFS = 2 * MAX_LINKS  # before they are joined: several can mean one URL, and some mean none
MAX_MEDIA = 2_000  # links to what a page shows or runs; they take no room from links to pages
MAX_TITLE_LENGTH = 500
MAX_DESCRIPTION_LENGTH = 1_000
MAX_LINK_TEXT_LENGTH = 200
MAX_HEADINGS = 200

Attributes = Mapping[str, str | None]


def collapse(text: str) -> str:
    return " ".join(text.split())


def cut(text: str, length: int) -> str:
    return collapse(text)[:length].rstrip()


_LANGUAGE = re.compile(r"\s*([a-z]{2,3})(?:[-_][a-z]{4})?(?:[-_]([a-z]{2}|[0-9]{3}))?(?![a-z0-9])")


def language_of(tags: str) -> str:
    """Returns language and region, "en" or "pt-br", of the first tag of a list; "" where it is none."""
    found = _LANGUAGE.match(tags.lower())
    return "-".join(part for part in found.groups() if part) if found else ""


def is_weak(rel: str) -> bool:
    """Whether a better link to the same target may exist: one to follow."""
    return "nofollow" in rel


def merge(known: tuple[str, str] | None, text: str, rel: str) -> tuple[str, str]:
    """Returns text and rel of a target that is linked twice: it may be followed if one link may be."""
    if known is None:
        return text, rel
    return known[0] or text, rel if is_weak(known[1]) else known[1]


class Joined(NamedTuple):
    """Links to pages as absolute URLs, each once, in columns of lines that are equally long; and their marks.

    A mark is the fingerprint of a URL, a signed 64-bit integer, or 0 if the link is not to be followed.
    """

    urls: str = ""
    texts: str = ""
    rels: str = ""
    marks: bytes = b""


class Findings:
    """What the tags of a page have said so far, in document order; only its reader fills it."""

    differs = False  # another way to read the page finds something else
    # Seldom wanted, and so not set for every page.
    description = ""
    shared_description = ""  # what is shown of the page where people share it
    headings: tuple[str, ...] = ()
    # Headings and text of what the page itself says, without menus and frames: keywords are made of it.
    content: tuple[tuple[str, ...], str] = ((), "")

    def __init__(self, agent: str) -> None:
        self.agent = agent.lower()
        self.hrefs: dict[str, tuple[str, str]] = {}  # as they are written, with text and rel
        self.media: dict[str, str] = {}  # as they are written, with rel
        self.robots: list[str] = []
        self.title = ""
        self.text = ""
        self.language = ""
        self.content_language = ""
        self.base = ""

    def add_link(self, href: str, rel: str, *, text: str = "") -> None:
        """Adds a link; one that is known already keeps the text and the rel that say more."""
        href = href.partition("#")[0].strip()
        if href and (href in self.hrefs or len(self.hrefs) < MAX_HREFS):
            self.hrefs[href] = merge(self.hrefs.get(href), text, rel)

    def joined(self, base: str, canonical: Canonical) -> Joined:
        """The links to pages, joined to the base; called once, at last."""
        found: dict[str, tuple[str, str]] = {}
        for href, (text, rel) in self.hrefs.items():
            url = canonical(href, base)
            if url is not None and (url in found or len(found) < MAX_LINKS):
                found[url] = merge(found.get(url), text, rel)
        texts = "\n".join([text for text, _ in found.values()])
        rels = "\n".join([rel for _, rel in found.values()])
        marks = array("q", [0 if is_weak(rel) else _mark(url) for url, (_, rel) in found.items()])
        return Joined("\n".join(found), texts, rels, marks.tobytes())

    def add_media(self, href: str | None, rel: str) -> None:
        """Adds a link to what the page shows or runs; an image that usual screens show is never `srcset`."""
        href = (href or "").partition("#")[0].strip()
        # Data is often written into the page itself.
        if not href or href[:5].lower() == "data:":
            return
        if self.media.get(href, "srcset") == "srcset" and (href in self.media or len(self.media) < MAX_MEDIA):
            self.media[href] = rel


# The pages of a site have many of their links in common.
_mark = lru_cache(maxsize=16_384)(fingerprint)


def rel_of(attributes: Attributes) -> str:
    """Returns the rel of a link to a page; our own words for media say nothing there."""
    rel = attributes.get("rel")
    rel = collapse(rel.lower()) if rel else ""
    return "" if rel in MEDIA_RELS else rel


def href_of(attributes: Attributes) -> str:
    """Returns the target of an `a`; "" where it has none, or one in the page itself."""
    href = attributes.get("href") or attributes.get("xlink:href") or ""
    return "" if href[:1] == "#" else href


def _read_area(page: Findings, attributes: Attributes) -> None:
    text = cut(attributes.get("alt") or "", MAX_LINK_TEXT_LENGTH)
    page.add_link(attributes.get("href") or "", rel_of(attributes) or "area", text=text)


def _read_base(page: Findings, attributes: Attributes) -> None:
    page.base = page.base or attributes.get("href") or ""


def _read_frame(page: Findings, attributes: Attributes, *, rel: str = "frame") -> None:
    page.add_link(attributes.get("src") or "", rel)


def _read_html(page: Findings, attributes: Attributes) -> None:
    page.language = language_of(attributes.get("lang") or attributes.get("xml:lang") or "")


def _read_image(page: Findings, attributes: Attributes) -> None:
    page.add_media(attributes.get("src"), "img")
    read_srcset(page, attributes.get("srcset") or "", attributes.get("sizes") or "")


def read_srcset(page: Findings, written: str, sizes: str) -> None:
    """Adds the candidates of an image, if it has any; those that usual screens show are no others."""
    if written:
        candidates = candidates_of(written)
        usual = shown(candidates, sizes)
        for url, _ in candidates:
            page.add_media(url, "img" if url in usual else "srcset")


def _read_source(page: Findings, attributes: Attributes) -> None:
    page.add_media(attributes.get("src"), "media")
    read_srcset(page, attributes.get("srcset") or "", attributes.get("sizes") or "")


def _read_player(page: Findings, attributes: Attributes) -> None:
    page.add_media(attributes.get("src"), "media")
    page.add_media(attributes.get("poster"), "img")


def _read_script(page: Findings, attributes: Attributes) -> None:
    page.add_media(attributes.get("src"), "script")


# The relations whose targets are pages of their own; a shortlink is the same page once more.
_PAGE_RELS = frozenset({
    "alternate", "amphtml", "appendix", "author", "bookmark", "canonical", "chapter", "contents", "copyright",
    "first", "glossary", "help", "home", "index", "last", "license", "next", "prev", "previous",
    "privacy-policy", "section", "start", "subsection", "terms-of-service", "toc", "top", "up",
})  # fmt: skip


_ICON_RELS = frozenset({"icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon"})
_PRELOADED = {"font": "font", "image": "img", "script": "script", "style": "stylesheet"}


def _read_link(page: Findings, attributes: Attributes) -> None:
    rel, media_type = collapse((attributes.get("rel") or "").lower()), attributes.get("type") or ""
    rels = set(rel.split())
    if media := _media_rel(rels, attributes):
        page.add_media(attributes.get("href"), media)
    elif rels & _PAGE_RELS and "json" not in media_type and "oembed" not in media_type:
        page.add_link(attributes.get("href") or "", rel)


def _media_rel(rels: set[str], attributes: Attributes) -> str:
    """Returns the rel of a `link` to what the page needs; "" where it leads to something else."""
    if "stylesheet" in rels:
        return "stylesheet"
    if rels & _ICON_RELS:
        return "icon"
    if "modulepreload" in rels:
        return "script"
    return _PRELOADED.get((attributes.get("as") or "").lower(), "") if "preload" in rels else ""


_REFRESH = re.compile(r"""\s*[\d.]+[\s;,]+(?:url\s*=\s*)?(?:"([^"]*)|'([^']*)|(.+))""", re.I | re.S)


def _read_meta(page: Findings, attributes: Attributes) -> None:
    content = attributes.get("content") or ""
    pragma = (attributes.get("http-equiv") or "").strip().lower()
    if (attributes.get("name") or "").strip().lower() in ("robots", page.agent):
        page.robots.append(content)
    elif pragma == "content-language":
        page.content_language = page.content_language or language_of(content)
    elif pragma == "refresh" and (href := refresh_of(content)):
        page.add_link(href, "refresh")


def refresh_of(content: str) -> str:
    """Where a Refresh header or meta leads; "" if it only loads the page again."""
    found = _REFRESH.match(content)
    return found[1] or found[2] or found[3] or "" if found else ""


def read_described_meta(page: Findings, attributes: Attributes) -> None:
    """Reads a meta where the page's description is wanted too."""
    _read_meta(page, attributes)
    name = (attributes.get("name") or attributes.get("property") or "").strip().lower()
    if name == "description":
        page.description = page.description or cut(attributes.get("content") or "", MAX_DESCRIPTION_LENGTH)
    elif name == "og:description":
        content = attributes.get("content") or ""
        page.shared_description = page.shared_description or cut(content, MAX_DESCRIPTION_LENGTH)


# Those of `a` and `title` are not here: they have texts, which a tree and a scan find in their own ways.
READERS: dict[str, Callable[[Findings, Attributes], None]] = {
    "area": _read_area, "audio": _read_player, "base": _read_base, "frame": _read_frame, "html": _read_html,
    "iframe": partial(_read_frame, rel="iframe"), "img": _read_image, "link": _read_link, "meta": _read_meta,
    "script": _read_script, "source": _read_source, "track": _read_player, "video": _read_player,
}  # fmt: skip
