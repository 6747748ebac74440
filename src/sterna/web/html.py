"""What an HTML page says: its title, text and links, and what its author allows."""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError, create_tag

from sterna.errors import ReadError
from sterna.model import Links, Record
from sterna.web.urls import Canonical

MAX_LINKS = 10_000
_MAX_HREFS = 2 * MAX_LINKS  # before they are joined: several can mean one URL, and some mean none
_MAX_TITLE_LENGTH = 500
_MAX_LINK_TEXT_LENGTH = 200
# What is looked at of a link's text, in pieces and in characters of each: links can nest, and each would
# read the text of all the inner ones.
_MAX_LINK_PIECES, _MAX_LINK_PIECE_LENGTH = 64, 1_000


class Html(Record, frozen=True, kw_only=True):
    """What was read of one page."""

    title: str
    text: str
    language: str
    links: Links
    may_index: bool
    may_follow: bool
    may_archive: bool


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
    keeps_text: bool = True,
) -> Html:
    """Reads a page that came from `url`; `x_robots` is its X-Robots-Tag header, `agent` our name in it."""
    try:
        tree = LexborHTMLParser(_tame(text))
    except SelectolaxError as error:
        raise ReadError("parser", f"{url} needs more memory than there is") from error
    page = _walk(tree.root, _Findings(agent.lower()))
    base = (canonical(page.base, url) if page.base else None) or url
    may = read_may(x_robots, page.robots, agent=agent)
    return Html(
        title=page.title,
        text=collapse("".join(page.pieces)),
        language=page.language or page.content_language,
        links=_join(page.hrefs, base, canonical=canonical),
        may_index=may.index,
        may_follow=may.follow,
        may_archive=may.archive,
    )


def collapse(text: str) -> str:
    """Gives the text with each run of white space made one space."""
    return " ".join(text.split())


_LANGUAGE = re.compile(r"\s*([a-z]{2,3})(?:[-_][a-z]{4})?(?:[-_]([a-z]{2}|[0-9]{3}))?(?![a-z0-9])")


def language_of(tags: str) -> str:
    """Gives language and region, "en" or "pt-br", of the first tag of a list; "" where it is none."""
    found = _LANGUAGE.match(tags.lower())
    return "-".join(part for part in found.groups() if part) if found else ""


# Directives of X-Robots-Tag that have a value; any other word before a colon names a crawler.
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_AGENT_NAME = re.compile(r"[a-z_*][a-z0-9_.*/-]*")


def read_may(x_robots: str, metas: Iterable[str] = (), *, agent: str = "sterna") -> May:
    """Tells what X-Robots-Tag and the robots metas allow: the strictest of those that concern us."""
    directives = set(_directives_of(x_robots.lower(), agent.lower()))
    for content in metas:
        directives.update(re.split(r"[\s,;]+", content.lower()))
    is_none = "none" in directives
    return May(
        index=not is_none and "noindex" not in directives,
        follow=not is_none and "nofollow" not in directives,
        archive="noarchive" not in directives,
    )


def _directives_of(x_robots: str, ours: str) -> Iterator[str]:
    agent = ""
    for part in x_robots.split(","):
        word, colon, rest = (piece.strip() for piece in part.partition(":"))
        if colon and word not in _WITH_VALUE and _AGENT_NAME.fullmatch(word):
            agent, word = word, rest
        if agent in ("", "*", ours):
            yield word


# A link whose text is still being read: its href, its rel, and the piece at which its text starts.
_Anchor = tuple[str, str, int]


class _Findings:
    """What the walk has found so far, in document order; only the walk and its readers fill it."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.pieces: list[str] = []  # of the visible text
        self.muted = 0  # how many elements are open whose text nobody sees
        self.hrefs: dict[str, tuple[str, str]] = {}  # as they are written, with text and rel
        self.robots: list[str] = []
        self.title = ""
        self.language = ""
        self.content_language = ""
        self.base = ""

    def close_link(self, anchor: _Anchor) -> None:
        href, rel, start = anchor
        pieces = self.pieces[start : start + _MAX_LINK_PIECES]
        text = collapse("".join([piece[:_MAX_LINK_PIECE_LENGTH] for piece in pieces]))
        self.add_link(href, rel, text=text[:_MAX_LINK_TEXT_LENGTH].rstrip())

    def add_link(self, href: str, rel: str, *, text: str = "") -> None:
        href = href.partition("#")[0].strip()
        if href and (href in self.hrefs or len(self.hrefs) < _MAX_HREFS):
            self.hrefs[href] = _merge(self.hrefs.get(href), text, rel)


def _is_weak(rel: str) -> bool:
    """Tells whether another link to the same target may say more: one to a page, and to follow."""
    return "nofollow" in rel or rel == "srcset"


def _merge(known: tuple[str, str] | None, text: str, rel: str) -> tuple[str, str]:
    """Gives text and rel of a target that is linked twice: it may be followed if one link may be."""
    if known is None:
        return text, rel
    return known[0] or text, rel if _is_weak(known[1]) and "nofollow" not in rel else known[1]


def _join(hrefs: dict[str, tuple[str, str]], base: str, *, canonical: Canonical) -> Links:
    found: dict[str, tuple[str, str]] = {}
    for href, (text, rel) in hrefs.items():
        url = canonical(href, base)
        if url is not None and (url in found or len(found) < MAX_LINKS):
            found[url] = _merge(found.get(url), text, rel)
    texts = "\n".join([text for text, _ in found.values()]).rstrip("\n")
    rels = "\n".join([rel for _, rel in found.values()]).rstrip("\n")
    return Links("\n".join(found), texts, rels)


def _rel_of(attributes: dict[str, str | None]) -> str:
    rel = attributes.get("rel")
    return collapse(rel.lower()) if rel else ""


def _read_a(page: _Findings, node: LexborNode) -> _Anchor | None:
    attributes = node.attributes
    href = attributes.get("href") or attributes.get("xlink:href")
    if not href or href[0] == "#":
        return None
    known = page.hrefs.get(href)
    if known and known[0] and not _is_weak(known[1]):
        return None  # many links stand on a page twice, and reading a second text takes time
    return href, _rel_of(attributes), len(page.pieces)


def _read_area(page: _Findings, node: LexborNode) -> None:
    attributes = node.attributes
    text = collapse(attributes.get("alt") or "")[:_MAX_LINK_TEXT_LENGTH].rstrip()
    page.add_link(attributes.get("href") or "", _rel_of(attributes) or "area", text=text)


def _read_base(page: _Findings, node: LexborNode) -> None:
    page.base = page.base or node.attributes.get("href") or ""


def _read_frame(page: _Findings, node: LexborNode) -> None:
    page.add_link(node.attributes.get("src") or "", node.tag or "")


def _read_html_tag(page: _Findings, node: LexborNode) -> None:
    attributes = node.attributes
    page.language = language_of(attributes.get("lang") or attributes.get("xml:lang") or "")


# Either what separates candidates, or a URL with its descriptors, which may hold commas in parentheses.
_CANDIDATE = re.compile(r"[\s,]++|(\S*[^\s,])(?:,|\s++(?:[^,(]|\([^)]*+(?:\)|$))*+,?|$)")


def _read_image(page: _Findings, node: LexborNode) -> None:
    for candidate in _CANDIDATE.finditer(node.attributes.get("srcset") or ""):
        page.add_link(candidate[1] or "", "srcset")


# The relations whose targets are pages of their own; a shortlink is the same page once more.
_PAGE_RELS = frozenset({
    "alternate", "amphtml", "appendix", "author", "bookmark", "canonical", "chapter", "contents", "copyright",
    "first", "glossary", "help", "home", "index", "last", "license", "next", "prev", "previous",
    "privacy-policy", "section", "start", "subsection", "terms-of-service", "toc", "top", "up",
})  # fmt: skip


def _read_link(page: _Findings, node: LexborNode) -> None:
    attributes = node.attributes
    href, rel, media_type = attributes.get("href") or "", _rel_of(attributes), attributes.get("type") or ""
    rels = set(rel.split())
    is_data = "stylesheet" in rels or "json" in media_type or "oembed" in media_type
    if is_data or not rels & _PAGE_RELS:
        return
    page.add_link(href, rel)


_REFRESH = re.compile(r"""\s*[\d.]+[\s;,]+(?:url\s*=\s*)?(?:"([^"]*)|'([^']*)|(.+))""", re.I | re.S)


def _read_meta(page: _Findings, node: LexborNode) -> None:
    attributes = node.attributes
    content = attributes.get("content") or ""
    pragma = (attributes.get("http-equiv") or "").strip().lower()
    if (attributes.get("name") or "").strip().lower() in ("robots", page.agent):
        page.robots.append(content)
    elif pragma == "content-language":
        page.content_language = page.content_language or language_of(content)
    elif pragma == "refresh" and (found := _REFRESH.match(content)):
        page.add_link(found[1] or found[2] or found[3] or "", "refresh")


def _read_title(page: _Findings, node: LexborNode) -> None:
    if not page.muted and not page.title:  # drawings have titles too
        page.title = collapse(node.text())[:_MAX_TITLE_LENGTH].rstrip()


def _ids(*names: str) -> frozenset[int]:
    """Gives the numbers under which the parser knows these elements; they are fastest to compare."""
    return frozenset(create_tag(name).tag_id for name in names)


_READERS: dict[int, Callable[[_Findings, LexborNode], _Anchor | None]] = {
    create_tag(name).tag_id: reader
    for name, reader in {
        "a": _read_a, "area": _read_area, "base": _read_base, "frame": _read_frame, "html": _read_html_tag,
        "iframe": _read_frame, "img": _read_image, "link": _read_link, "meta": _read_meta,
        "source": _read_image, "title": _read_title,
    }.items()
}  # fmt: skip
_TEXT = 2  # no tag makes these numbers: a text, and in the next set an instruction and a comment
_INLINE = frozenset({0, 4}) | _ids(
    "a", "abbr", "acronym", "area", "b", "base", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn",
    "em", "font", "i", "img", "ins", "kbd", "label", "link", "map", "mark", "meta", "nobr", "q", "rb", "rp",
    "rt", "rtc", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u",
    "var", "wbr",
)  # fmt: skip
_SKIPPED = _ids("iframe", "noembed", "noframes", "script", "style", "template", "title")
_MUTED = _ids("noscript", "svg")  # their links count, their text does not
_SPECIAL = _READERS.keys() | _SKIPPED | _MUTED


class _End(Enum):
    """What ends with an element: a line of text, or a text that nobody sees."""

    BLOCK = 1
    MUTED = 2


_BLOCK = _End.BLOCK  # looking up a member of an Enum takes as long as reading a node
_Stack = list[LexborNode | _Anchor | _End]


def _walk(root: LexborNode | None, page: _Findings) -> _Findings:
    """Reads a tree once, in document order and without recursion: a page nests as deep as it likes."""
    pieces = page.pieces
    stack: _Stack = []  # what follows when the current branch ends: an element's end, then its next sibling
    node = root
    while node is not None or stack:
        if node is None:
            ending = stack.pop()
            if ending is _BLOCK:
                pieces.append(" ")
            elif isinstance(ending, LexborNode):
                node = ending
            elif isinstance(ending, tuple):
                page.close_link(ending)
            else:
                page.muted -= 1
            continue
        tag, following = node.tag_id, node.next
        if tag == _TEXT:
            if not page.muted:
                pieces.append(node.text_content or "")
            node = following
            continue
        if following is not None:
            stack.append(following)
        if tag not in _INLINE:
            pieces.append(" ")
            stack.append(_BLOCK)
        node = _enter(node, tag, page=page, stack=stack) if tag in _SPECIAL else node.first_child
    return page


def _enter(node: LexborNode, tag: int, *, page: _Findings, stack: _Stack) -> LexborNode | None:
    """Reads an element that says something, and gives the child at which to go on."""
    reader = _READERS.get(tag)
    anchor = reader(page, node) if reader else None
    if anchor is not None:
        stack.append(anchor)
    elif tag in _MUTED:
        page.muted += 1
        stack.append(_End.MUTED)
    return None if tag in _SKIPPED else node.first_child


# The standard makes a parser take time with the square of some pages: at each tag it looks through the open
# elements, into each block it copies the open formatting elements, and it compares the attributes of a tag
# with each other. Browsers bound the depth (Blink: 512). We take out the tags that nest and say nothing.
_FEW_TAGS = 2_000
_FEW_CHARS = 100_000
_MAX_TOIL = 50_000_000  # looks at an open element: a third of a second
_TOIL_OF_A_COPY = 50  # in looks; it also takes 300 bytes

_TAG_NAME = re.compile(r"<(/?[a-z][a-z0-9]*+)")
# Elements without an end tag, those that end where their like begins, and the shapes of a drawing.
_NEVER_DEEP = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr", "dd", "dt", "li", "option", "p", "rp", "rt", "tbody", "td", "tfoot", "th", "thead", "tr",
    "circle", "ellipse", "image", "line", "path", "polygon", "polyline", "rect", "stop", "use",
})  # fmt: skip
_FORMATTING = frozenset({
    "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
})  # fmt: skip
_SILENT_TAG = re.compile(
    r"</?(?!(?:a|area|base|frame|frameset|iframe|img|link|meta|noscript|script|source|style|svg|template"
    r"|textarea|title)\b)[a-z][^<>]*+>",
    re.IGNORECASE,
)
_BLOATED_TAG = re.compile(
    r"""<[a-zA-Z][^\s/<>]*+(?:[\s/]++[^\s/<>=]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"']*+))?+){4000,}+"""
)


def _tame(text: str) -> str:
    """Gives the text; where it would exhaust a parser, without the tags that do."""
    if len(text) > _FEW_CHARS:
        text = _BLOATED_TAG.sub("<i", text)
    if text.count("<") > _FEW_TAGS and _toil_of(_tags_of(text.lower())) > _MAX_TOIL:
        text = _SILENT_TAG.sub(" ", text)
    return text


def _tags_of(text: str) -> list[str]:
    # Not those in scripts: much that is compared there looks like a tag, as "i<b".
    first, *others = text.split("<script")
    return _TAG_NAME.findall(first + "".join(other.partition("</script")[2] for other in others))


def _toil_of(tags: list[str]) -> int:
    """Gives about how many open elements the parser will look at, or the first number that is too high."""
    opened: dict[str, int] = {}
    depth = copies = toil = 0
    for tag in tags:
        toil += depth + copies
        if tag in _NEVER_DEEP:
            continue
        if tag[0] != "/":
            opened[tag] = opened.get(tag, 0) + 1
            depth += 1
            if tag in _FORMATTING:
                copies += _TOIL_OF_A_COPY
        elif opened.get(name := tag[1:]):
            opened[name] -= 1
            depth -= 1
            if name in _FORMATTING:
                copies -= _TOIL_OF_A_COPY
        if toil > _MAX_TOIL:
            break
    return toil
