"""Finds the links of a page by patterns, without a tree, where it is sure that a tree has the same ones.

A parser's tree decides which links a page has, and in which order. So this looks for whatever makes a tree
differ from the mere order of the tags: brackets in attributes, links that hold links, tags between the cells
of a table, elements with rules of their own. Where it meets such a thing it gives None, and the caller builds
the tree. Every pattern takes time in proportion to the page, whatever the page holds.

Text is not its business: finding out which tags a parser would ignore takes as long as building the tree.
"""

import html
import re
from html.entities import html5
from itertools import chain, pairwise

from sterna.web.markup import MAX_HREFS, READERS, Findings, href_of, is_weak, rel_of


class _Unsure(Exception):
    """Only a tree can tell."""


def scan(text: str, *, agent: str) -> Findings | None:
    """Returns the links of a page and what concerns them, or None where the page needs a tree."""
    try:
        return _scan(text, agent)
    except _Unsure:
        if not _UPPER_NAME.search(text):
            return None
    try:
        return _scan(_UPPER_NAME.sub(lambda found: found[0].lower(), text), agent)
    except _Unsure:
        return None


_UPPER_NAME = re.compile(r"</?[a-z]*+[A-Z][a-zA-Z]*+")


def _scan(text: str, agent: str) -> Findings:
    if "\0" in text:
        raise _Unsure
    markup = _HIDDEN.sub(_show, text)
    tags, specials = _tags_of(markup)
    if _UNCLEAR in specials:
        if _UPPER_NAME.search(markup):
            raise _Unsure
        markup = _escape_brackets(markup)
        tags, specials = _tags_of(markup)
    if not specials <= {"", _TABLE} or len(tags) > MAX_HREFS:
        raise _Unsure
    # No link may be moved out of a table, or hold one, in which links end before it does.
    if _TABLE in specials and (
        ("a", "table") in pairwise(_LINK_OR_TABLE.findall(markup)) or _MISPLACED.search(markup)
    ):
        raise _Unsure
    if len(markup) > 100_000 and _LONG_TAG.search(markup):
        raise _Unsure  # the tree is built without such tags
    page = Findings(agent)
    if _read(page, tags):
        # No link may hold another tag that says something: a link is told at its end.
        names = [name.lower() for name in _LINK_OR_OTHER.findall(markup)]
        if ("a", "") in pairwise(names):
            raise _Unsure
    return page


# White space in a tag, its quoted values without brackets, and the rest of a tag that has only such values
# and no other quotes: where the end of a tag could be doubted, this does not match.
_W = r"[ \t\n\r\f]"
_QUOTED = r"""(?:"[^"<>]*+"|'[^'<>]*+')"""
_REST = (
    rf"""(?:>|[^<>"'=]*+(?:=(?:"[^"<>]*+"|{_W}*+(?:{_QUOTED}|(?=[^ \t\n\r\f"'<>=])))"""
    r"""[^<>"'=]*+)*+>)"""
)
_NAME_END = r"(?=[ \t\n\r\f/>])"

_SHAPES = (
    "circle|clipPath|defs|ellipse|g|line|linearGradient|mask|path|polygon|polyline|rect|stop|text|tspan|use"
)
# Comments, elements whose content is no markup, and drawings without links. One that does not end takes the
# rest of the page at once, so that the rest is not looked through again and again.
_HIDDEN = re.compile(
    rf"""<(?:
        !--(?!-?>)(?:[^-]++|-(?!-!?>))*+(?:-->|())
        |script{_NAME_END}({_REST})(?:[^<]++|<(?!/?script))*+(?:</script{_W}*+>|())
        |style{_NAME_END}{_REST}(?:[^<]++|<(?!/style))*+(?:</style{_W}*+>|())
        |title{_NAME_END}{_REST}[^<]*+(?:</title{_W}*+>|())
        |svg{_NAME_END}{_REST}
            (?:[^<]++|</?(?:{_SHAPES}){_NAME_END}{_REST}|<title>[^<]*+</title>)*+(?:</svg>|())
    )""",
    re.VERBOSE,
)


_OF_SCRIPT = 2  # the group of a script's attributes; the empty groups are of what does not end


def _show(found: re.Match[str]) -> str:
    """Leaves a bare tag: its bracket is noticed where only an attribute looked like something hidden."""
    if found.lastindex is None:
        return "<!>"
    if found.lastindex != _OF_SCRIPT:
        raise _Unsure
    rest = found[_OF_SCRIPT]
    return f"<script{rest}" if "src" in rest.lower() else "<!>"


_SPECIAL = (
    "applet|frame|frameset|iframe|image|marquee|math|noembed|noframes|object|plaintext|select|svg|table|template"
    "|textarea|xmp"
)
_SAYING = "a|area|audio|base|html|img|link|meta|script|source|track|video"
# How common names begin that say nothing here; the pattern after it is right without it, but slower.
_COMMON = (
    r"[cdegjkqruwyz]|p(?!l)|s[pmtua](?!yle)|t(?:[dhtbf]|r(?!ack))|h[1-6re]|l[ai](?!nk)|b(?!a)|i(?=[ >n])"
)
_PLAIN_TAG = (
    rf"(?:/[a-z0-9]++>|(?:{_COMMON})[a-z0-9]*+{_NAME_END}{_REST}"
    rf"|(?!(?:{_SAYING}|{_SPECIAL}){_NAME_END})/?[a-z][a-z0-9]*+{_NAME_END}{_REST}"
    r"|[!?](?!--)[^<>]*+>)"
)
_PLAIN_ATTRIBUTE = rf"""{_W}++(?:accesskey|class|id|name|style|target|title)="[^"<>]*+\""""
_UNCLEAR, _TABLE = "<", "<table"
# Passes over plain tags, then gives the href of a plain link; or the name of another tag that says something
# and the rest of it; or the begin of a special tag, which is "<" alone where the end of a tag is not clear.
_TELLING = re.compile(
    rf"""(?:[^<]*+<{_PLAIN_TAG})*+[^<]*+(?:\Z
        |<a(?:{_PLAIN_ATTRIBUTE})*+{_W}++href="([^"<>]*+)"(?:{_PLAIN_ATTRIBUTE})*+{_W}*+>
        |<({_SAYING}|iframe(?=[^>]*+>[^<]*+</iframe>)){_NAME_END}({_REST})
        |<(?:select(?=[^>]*+>(?:[^<]++|</?opt(?:ion|group){_NAME_END}[^>]*+>)*+</select>)
            |textarea(?=[^>]*+>[^<]*+</textarea>)){_NAME_END}{_REST}
        |(<table(?={_NAME_END}{_REST})|<(?!table)(?:{_SPECIAL}){_NAME_END}|<)
    )""",
    re.VERBOSE,
)
_Tags = list[tuple[str, str, str, str]]


def _tags_of(markup: str) -> tuple[_Tags, set[str]]:
    """Returns the tags that say something, as the pattern does, and which special ones are among them."""
    tags: _Tags = _TELLING.findall(markup)
    return tags, {special for _, _, _, special in tags}


_TAGS_AND_TEXT = re.compile(rf"(?:[^<]*+<(?:[a-zA-Z/]{_REST}|[!?][^<>]*+>))*+[^<]*+")
_TAG_WITH_BRACKETS = re.compile(
    rf"""<[a-zA-Z][^<>"'=]*+(?:={_W}*+(?:"[^"]*+"|'[^']*+'|(?=[^ \t\n\r\f"'<>=]))[^<>"'=]*+)*+>"""
)
# In a value: what was put there for something hidden, and names whose case may have been changed.
_LEFT_IN_VALUE = re.compile(r"<!>|</?[a-z]")
_LONG_TAG = re.compile(r"<[^>]{8000}")


def _escape_brackets(markup: str) -> str:
    """Returns the markup with the brackets in attributes written as references."""
    pieces: list[str] = []
    at = 0
    while (plain := _TAGS_AND_TEXT.match(markup, at)) and (end := plain.end()) < len(markup):
        found = _TAG_WITH_BRACKETS.match(markup, end)
        if found is None or _LEFT_IN_VALUE.search(found[0], 1):
            raise _Unsure
        pieces += markup[at:end], "<", found[0][1:-1].replace("<", "&lt;").replace(">", "&gt;"), ">"
        at = found.end()
    return "".join([*pieces, markup[at:]])


_OF_TABLE = rf"(?:table|t(?:r|d|h|body|head|foot)|caption|col(?:group)?){_NAME_END}"
# A tag of a table's frame, and after it something that is none: a parser moves that before the table.
_MISPLACED = re.compile(
    rf"<(?:table|/?t(?:r|body|head|foot)|/t[dh]|/caption|/?col(?:group)?){_NAME_END}[^>]*+>"
    rf"(?:{_W}++|<!>|<script{_NAME_END}[^>]*+>)*+(?!</?{_OF_TABLE}|\Z)"
)
_LINK_OR_TABLE = re.compile(rf"<(/?a|table){_NAME_END}")


_LINK_OR_OTHER = re.compile(rf"<(?:(/?a)|area|base|iframe|link|meta){_NAME_END}", re.IGNORECASE)
_MEDIA = frozenset({"audio", "img", "script", "source", "track", "video"})  # told apart from links to pages


def _read(page: Findings, tags: _Tags) -> bool:
    """Reads the tags; True if one that is no link came after a link, and may be inside it."""
    hrefs = page.hrefs
    is_after_link = is_mixed = has_root = False
    for href, name, rest, _ in tags:
        if href:
            is_after_link = True
            target = (_decode(href) if "&" in href else href).partition("#")[0].strip()
            if target and (target not in hrefs or is_weak(hrefs[target][1])):
                hrefs[target] = ("", "")
        elif name == "a":
            is_after_link = True
            if "href" in rest.lower():  # many only name a place
                attributes = _attributes_of(rest)
                page.add_link(href_of(attributes), rel_of(attributes))
        elif name and _tells(page, name, rest):
            if name == "html" and has_root:
                raise _Unsure  # a second one adds its attributes to the first
            has_root = has_root or name == "html"
            READERS[name](page, _attributes_of(rest))
            is_mixed = is_mixed or (is_after_link and name not in _MEDIA)
    if any("\r" in href for href in chain(hrefs, page.media)):
        raise _Unsure  # a parser makes it a line feed
    page.hrefs = {href: ("", rel) for href, (_, rel) in hrefs.items()}
    return is_mixed


# Of which something is read only with one of these in it; a reference could be part of such a word.
_SELDOM = {"meta": ("robots", "refresh", "language", "&")}


def _tells(page: Findings, name: str, rest: str) -> bool:
    """Whether a tag may say something, which most metas do not."""
    if name not in _SELDOM:
        return True
    lower = rest.lower()
    return any(word in lower for word in _SELDOM[name]) or (name == "meta" and page.agent in lower)


_ATTRIBUTE_NAME = r"[!#-&(-.0-;?-~]++"
_VALUE = rf"""(?:{_W}*+={_W}*+(?:"([^"]*+)"|'([^']*+)'|([^ \t\n\r\f"'>]++)))?+"""
_ATTRIBUTE = re.compile(rf"({_ATTRIBUTE_NAME}){_VALUE}")
_ATTRIBUTES = re.compile(rf"(?:[ \t\n\r\f/]*+{_ATTRIBUTE_NAME}{_VALUE})*+[ \t\n\r\f/]*+>")


def _attributes_of(rest: str) -> dict[str, str | None]:
    """Returns the attributes of a tag, of which `rest` is what follows its name."""
    if "\r" in rest or not _ATTRIBUTES.fullmatch(rest):
        raise _Unsure
    attributes: dict[str, str | None] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(rest[:-1]):
        attributes.setdefault(name.lower(), _decode(double or single or bare))
    return attributes


_REFERENCE = re.compile(r"&(?:#[xX]?[0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))")
_NUMBER = re.compile(r"&#(?:[xX]([0-9a-fA-F]++)|([0-9]++))")


def _decode(value: str) -> str:
    """Returns an attribute's value with its references replaced; there, unlike in text, "&copy=1" is none."""
    return _REFERENCE.sub(_decode_one, value) if "&" in value else value


def _decode_one(found: re.Match[str]) -> str:
    reference = found[0]
    if reference[1] != "#":
        return html5.get(reference[1:], reference)
    number = _NUMBER.match(reference)
    if number:
        digits = number[1] or number[2]
        point = int(digits, 16 if number[1] else 10) if len(digits) <= 7 else 0
        # Only of these every reader takes the character for what it is.
        if not (32 <= point < 127 or 160 <= point < 0xD800 or 0xE000 <= point < 0xFDD0):
            raise _Unsure
    return html.unescape(reference)
