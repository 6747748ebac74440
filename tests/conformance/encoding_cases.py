"""Encodings: the labels and legacy pages of the Web Platform Tests, and the prescan tests of html5lib."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import webencodings
from tests.conformance.suites import Case, first_of

from sterna.web.charset import charset_of, decode_text

_SPAN = re.compile(r'<span data-cp="([0-9A-Fa-f ]+)"[^>]*>([^<]*)</span>')
# Written in Japanese encodings as bytes that mean another character: the pages are for writing them too.
_WRITTEN_ONLY = frozenset({"A5", "203E", "2212"})
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"'}


def wpt_labels(folder: Path) -> Iterator[Case]:
    """Every label as a Content-Type gives it, and the encoding that it stands for."""
    text = first_of(folder / "wpt" / "encoding" / "resources" / "encodings.js").read_text()
    table = text[text.index("[") : text.rindex("]") + 1]
    for group in json.loads(table[: _end(table)]):
        for encoding in group["encodings"]:
            for label in encoding["labels"]:
                found = decode_text(b"a", charset_of(f'text/html; charset="{label}"'), is_html=False)[1]
                yield Case(label, found.lower(), encoding["name"].lower())


def _end(table: str) -> int:
    """The end of the first array: what follows it is no JSON."""
    return json.JSONDecoder().raw_decode(table)[1]


def wpt_legacy(folder: Path) -> Iterator[Case]:
    """Every page of characters, decoded as its header says: how many of its characters are wrong."""
    root = first_of(folder / "wpt" / "encoding")
    for path in sorted(root.glob("legacy-mb-*/**/*_chars*.html")):
        head = path.with_name(f"{path.name}.headers")
        charset = charset_of(head.read_text()) if head.exists() else None
        text = decode_text(path.read_bytes(), charset)[0]
        spans = _SPAN.findall(text)
        if spans:
            name = path.relative_to(root).as_posix()
            if "japanese" in name:
                spans = [each for each in spans if each[0] not in _WRITTEN_ONLY]
            wrong = sum(_ENTITIES.get(got, got) != _characters(points) for points, got in spans)
            yield Case(name, f"{wrong} wrong", "0 wrong")


def _characters(points: str) -> str:
    return "".join(chr(int(point, 16)) for point in points.split())


def html5lib(folder: Path) -> Iterator[Case]:
    """The encoding that the bytes of a page declare, or windows-1252 where they declare none."""
    for path in sorted(first_of(folder / "html5lib-tests" / "encoding").glob("*.dat")):
        for number, test in enumerate(path.read_bytes().split(b"#data\n")[1:], 1):
            data, _, label = test.partition(b"\n#encoding\n")
            wanted = webencodings.lookup(label.split(b"\n")[0].decode())
            # A byte that UTF-8 never has: what declares nothing is then no UTF-8 by our guess either.
            found = decode_text(data + b"\n\xff", None)[1]
            yield Case(f"{path.stem} {number}", found, wanted.name if wanted else None)
