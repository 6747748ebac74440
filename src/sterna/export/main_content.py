"""The main content of a page: its tree without menus, banners, footers and lists of links.

It looks at the tree once, without recursion, and so takes time in proportion to the page. Where almost
nothing would be left, the whole page counts as its content.
"""

import re
from dataclasses import dataclass

from selectolax.lexbor import LexborNode

from sterna.web.walk import TEXT, UNSEEN

_FRAMES = frozenset({"aside", "button", "dialog", "footer", "form", "menu", "nav", "search", "select"})
_ROLES = frozenset({
    "alert", "alertdialog", "banner", "complementary", "contentinfo", "dialog", "menu", "navigation",
    "search",
})  # fmt: skip
# In the class or id of an element that is no part of an article, each as a word of its own.
_NAMED = re.compile(
    r"(?:^|[\s_-])(?:ads?|advert\w*|banner|breadcrumbs?|comments?|consent|cookies?|footer|masthead|menu|nav|navbar"
    r"|navigation|newsletter|pagination|pager|popup|promo|related|share|sharing|sidebar|skip|social|sponsored"
    r"|subscribe|toc|toolbar)(?:$|[\s_-])",
    re.IGNORECASE,
)
_CONTENT = frozenset({"article", "body", "html", "main"})  # whatever their class is called
_LISTS = frozenset({"div", "dl", "ol", "p", "section", "table", "td", "ul"})
_MOST_LINKED, _LEAST_LINKS = 0.75, 4  # the share of its text that a menu has in links, and their number
_LEAST_LETTERS, _LEAST_SHARE = 200, 0.05  # of the page's own text, else the whole page is kept


@dataclass(slots=True)
class _Open:
    """An element whose end the walk has not reached, and what it has found in it so far."""

    node: LexborNode
    is_link: bool
    is_frame: bool
    letters: int = 0
    linked: int = 0
    links: int = 0
    left_out: int = 0  # letters of frames in it


def frames_of(body: LexborNode, *, root: LexborNode) -> frozenset[int]:
    """The elements below `root` to be left out, by their `mem_id`; none if nothing else would be left."""
    found: set[int] = set()
    outer = _Open(root, is_link=False, is_frame=False)
    stack: list[_Open] = [outer]
    node = root.first_child
    while stack:
        if node is None:
            done = stack.pop()
            if not stack:
                break
            _close(done, stack[-1], found)
            node = done.node.next
        elif node.tag_id == TEXT:
            letters = len((node.text_content or "").strip())
            stack[-1].letters += letters
            node = node.next
        elif not node.is_element_node or node.tag_id in UNSEEN:
            node = node.next
        else:
            is_frame = _is_frame(node, is_page=root.mem_id == body.mem_id and len(stack) < 5)
            stack.append(_Open(node, is_link=node.tag == "a", is_frame=is_frame))
            node = node.first_child
    left = outer.letters - outer.left_out
    return frozenset(found) if left >= max(_LEAST_LETTERS, _LEAST_SHARE * outer.letters) else frozenset()


def root_of(body: LexborNode) -> LexborNode:
    """The element that the page says is its content, if it has exactly one of the kind; else its body."""
    for selector in ("main, [role=main]", "article"):
        found = body.css(selector)
        if len(found) == 1 and len((found[0].text() or "").strip()) >= _LEAST_LETTERS:
            return found[0]
    return body


def _close(done: _Open, parent: _Open, found: set[int]) -> None:
    """Judges an element at its end, and adds what it has to the one around it."""
    if done.is_link:
        done.linked, done.links = done.letters, 1
    is_menu = (
        done.node.tag in _LISTS
        and done.links >= _LEAST_LINKS
        and done.linked > _MOST_LINKED * max(done.letters - done.left_out, 1)
    )
    if done.is_frame or is_menu:
        found.add(done.node.mem_id)
        parent.left_out += done.letters
    else:
        parent.left_out += done.left_out
        parent.linked += done.linked
        parent.links += done.links
    parent.letters += done.letters


def _is_frame(node: LexborNode, *, is_page: bool) -> bool:
    tag, attributes = node.tag or "", node.attributes
    if tag in _CONTENT:
        return False
    if tag in _FRAMES or (tag == "header" and is_page):
        return True
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    if (attributes.get("role") or "").strip().lower() in _ROLES:
        return True
    named = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    return tag not in ("pre", "code", "h1", "table") and len(named) > 1 and bool(_NAMED.search(named[:500]))
