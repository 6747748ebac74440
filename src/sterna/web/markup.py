"""What the tags of a page say, by their attributes: the part of reading that needs neither tree nor text."""

import re
from collections.abc import Callable, Mapping
from functools import partial

MAX_LINKS = 10_000
MAX_HREFS = 2 * MAX_LINKS  # before they are joined: several can mean one URL, and some mean none
MAX_TITLE_LENGTH = 500
MAX_DESCRIPTION_LENGTH = 1_000
MAX_LINK_TEXT_LENGTH = 200

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
    """Whether a better link to the same target may exist: one to a page, and to follow."""
    return "nofollow" in rel or rel == "srcset"


def merge(known: tuple[str, str] | None, text: str, rel: str) -> tuple[str, str]:
    """Returns text and rel of a target that is linked twice: it may be followed if one link may be."""
    if known is None:
        return text, rel
    return known[0] or text, rel if is_weak(known[1]) and "nofollow" not in rel else known[1]


class Findings:
    """What the tags of a page have said so far, in document order; only its reader fills it."""

    # Seldom wanted, and so not set for every page.
    description = ""
    shared_description = ""  # what is shown of the page where people share it
    headings: tuple[str, ...] = ()
    # Headings and text of what the page itself says, without menus and frames: keywords are made of it.
    content: tuple[tuple[str, ...], str] = ((), "")

    def __init__(self, agent: str) -> None:
        self.agent = agent.lower()
        self.hrefs: dict[str, tuple[str, str]] = {}  # as they are written, with text and rel
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


def rel_of(attributes: Attributes) -> str:
    rel = attributes.get("rel")
    return collapse(rel.lower()) if rel else ""


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


# Either what separates candidates, or a URL with its descriptors, which may hold commas in parentheses.
_CANDIDATE = re.compile(r"[\s,]++|(\S*[^\s,])(?:,|\s++(?:[^,(]|\([^)]*+(?:\)|$))*+,?|$)")


def _read_image(page: Findings, attributes: Attributes) -> None:
    for candidate in _CANDIDATE.finditer(attributes.get("srcset") or ""):
        page.add_link(candidate[1] or "", "srcset")


# The relations whose targets are pages of their own; a shortlink is the same page once more.
_PAGE_RELS = frozenset({
    "alternate", "amphtml", "appendix", "author", "bookmark", "canonical", "chapter", "contents", "copyright",
    "first", "glossary", "help", "home", "index", "last", "license", "next", "prev", "previous",
    "privacy-policy", "section", "start", "subsection", "terms-of-service", "toc", "top", "up",
})  # fmt: skip


def _read_link(page: Findings, attributes: Attributes) -> None:
    rel, media_type = rel_of(attributes), attributes.get("type") or ""
    rels = set(rel.split())
    is_data = "stylesheet" in rels or "json" in media_type or "oembed" in media_type
    if not is_data and rels & _PAGE_RELS:
        page.add_link(attributes.get("href") or "", rel)


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
    "area": _read_area, "base": _read_base, "frame": _read_frame, "html": _read_html,
    "iframe": partial(_read_frame, rel="iframe"), "img": _read_image, "link": _read_link, "meta": _read_meta,
    "source": _read_image,
}  # fmt: skip
