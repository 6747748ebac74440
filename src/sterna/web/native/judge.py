"""Reads pages in C, with the tree as the judge: it reads what C is in doubt of, and a sample of the rest."""

import os
from collections.abc import Collection
from random import Random

from sterna.model import Field
from sterna.web.markup import Findings
from sterna.web.native.reader import NativeReader
from sterna.web.walk import read_tree

ONE_IN = 200  # pages that both read


class JudgedReader:
    """Reads a page in C, or by the tree; where they differ, the tree is right, and its findings say so."""

    def __init__(self, one_in: int = ONE_IN) -> None:
        self._native = NativeReader()
        self._one_in = one_in
        self._chance = Random(os.urandom(16))  # noqa: S311 - who writes pages must not guess it, and cannot

    def __call__(self, text: str, *, agent: str, wants: Collection[Field]) -> Findings:
        found = self._native.read(text, agent=agent, wants=wants)
        if found is None or self._chance.randrange(self._one_in) == 0:
            judged = read_tree(text, agent=agent, wants=wants)
            if found is not None:
                found.hrefs = self._native.hrefs()
                judged.differs = is_different(found, judged, wants)
            return judged
        return found


def is_different(one: Findings, other: Findings, wants: Collection[Field]) -> bool:
    """Whether two readers of a page found something else, of what is wanted."""
    return _told(one, wants) != _told(other, wants)


def _told(page: Findings, wants: Collection[Field]) -> tuple[object, ...]:
    links = list(page.hrefs.items()), list(page.media.items())  # their order counts
    always = (*links, page.robots, page.base, page.language, page.content_language)
    texts = {
        "title": page.title,
        "text": page.text,
        "description": page.description,
        "headings": page.headings,
    }
    return (*always, *(text for field, text in texts.items() if field in wants))
