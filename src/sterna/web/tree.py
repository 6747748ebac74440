"""The tree that a parser makes of any text, after what would exhaust the parser is taken out.

The standard makes a parser take time with the square of some pages: at each tag it looks through the open
elements, into each block it copies the open formatting elements, and it compares the attributes of a tag with
each other. Browsers bound the depth (Blink: 512). We take out the tags that nest and say nothing.
"""

import re

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, SelectolaxError

from sterna.errors import ReadError

# With its events the parser takes time with the square of the options of a select.
_WITHOUT_EVENTS = LexborDocumentOptions.WO_EVENTS.value
_FEW_TAGS = 2_000
_FEW_CHARS = 100_000
_MAX_TOIL = 50_000_000  # visits to an open element: a third of a second
_TOIL_OF_A_COPY = 50  # in visits; it also takes 300 bytes

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
_FORMATTING_TAG = re.compile(rf"<(?:{'|'.join(sorted(_FORMATTING))})[\s/>]", re.IGNORECASE)
_SILENT_TAG = re.compile(
    r"</?(?!(?:a|area|base|frame|frameset|iframe|img|link|meta|noscript|script|source|style|svg|template"
    r"|textarea|title)\b)[a-z][^<>]*+>",
    re.IGNORECASE,
)
_BLOATED_TAG = re.compile(
    r"""<[a-zA-Z][^\s/<>]*+(?:[\s/]++[^\s/<>=]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"']*+))?+){4000,}+"""
)


def parse(text: str) -> LexborHTMLParser:
    """Returns the tree of any text; where it would exhaust a parser, without the tags that do."""
    if len(text) > _FEW_CHARS:
        text = _BLOATED_TAG.sub("<i", text)
    if _may_exhaust(text) and _toil_of(text.lower()) > _MAX_TOIL:
        text = _SILENT_TAG.sub(" ", text)
    try:
        return LexborHTMLParser(text, options=_WITHOUT_EVENTS)
    except SelectolaxError as error:
        raise ReadError("parser", "out of memory while parsing the page") from error


def _may_exhaust(text: str) -> bool:
    """Whether the tags could nest badly enough; counting is cheaper than measuring."""
    count = text.count("<")
    if count <= _FEW_TAGS:
        return False
    copies = _TOIL_OF_A_COPY * len(_FORMATTING_TAG.findall(text))
    return count * (count // 2 + copies) > _MAX_TOIL


def _toil_of(text: str) -> int:
    """Returns about how many open elements the parser will visit, or the first number that is too high."""
    # Without scripts: much that is compared there looks like a tag, as "i<b".
    first, *others = text.split("<script")
    tags = _TAG_NAME.findall(first + "".join(other.partition("</script")[2] for other in others))
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
