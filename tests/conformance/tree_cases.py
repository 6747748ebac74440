"""Trees: the links of a page by the tests of html5lib, which the Web Platform Tests keep too."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.suites import Case, first_of

from sterna.web.html import ReadPage, read_html
from sterna.web.native.judge import JudgedReader
from sterna.web.urls import Canonical
from sterna.web.walk import read_tree

PAGE = "http://example.org/folder/page"
_SECTION = re.compile(rb"^#(errors|new-errors|document-fragment|script-(?:on|off)|document)$", re.MULTILINE)
_ELEMENT = re.compile(r"\| ( *)<(?!!)([^>]*)>")
_ATTRIBUTE = re.compile(r"\| ( *)href=\"(.*)\"")
_LINKING = frozenset({"a", "area"})


def wpt(folder: Path) -> Iterator[Case]:
    """The links of every whole page that is parsed without scripts, by a tree, and by C where it is sure."""
    ways: dict[str, ReadPage] = {"tree": read_tree, "C": JudgedReader()}
    place = first_of(
        folder / "html5lib-tests" / "tree-construction",
        folder / "wpt" / "html" / "syntax" / "parsing" / "resources",
    )
    for path in sorted(place.glob("*.dat")):
        for number, test in enumerate(re.split(rb"(?:^|\n)#data\n", path.read_bytes())[1:], 1):
            data, *parts = _SECTION.split(test)
            sections = dict(zip(parts[::2], parts[1::2], strict=True))
            if b"document" not in sections or b"document-fragment" in sections or b"script-on" in sections:
                continue
            page = data.removesuffix(b"\n").decode()
            wanted = links_in(sections[b"document"].decode())
            for way, read in ways.items():
                got = [link.url for link in read_html(page, PAGE, Canonical(), read=read).links]
                yield Case(f"{path.stem} {number} by {way}", sorted(got), sorted(wanted))


def links_in(tree: str) -> list[str]:
    """The links of a tree as the tests write it, each once, outside of templates."""
    canonical, found = Canonical(), dict[str, None]()
    inside: list[tuple[int, str]] = []  # the open elements, with their depth
    for line in tree.splitlines():
        element, attribute = _ELEMENT.match(line), _ATTRIBUTE.match(line)
        depth = len((element or attribute or re.match(r"\|?( *)", line))[1])  # type: ignore[index]
        if element:
            inside = [each for each in inside if each[0] < depth]
            inside.append((depth, element[2]))
        elif attribute and inside and inside[-1][0] == depth - 2 and inside[-1][1] in _LINKING:
            is_inert = any(name == "template" for _, name in inside)
            url = None if is_inert else canonical(attribute[2], PAGE)
            if url:
                found.setdefault(url)
    return list(found)
