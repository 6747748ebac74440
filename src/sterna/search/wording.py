"""Reads what somebody typed: words, "phrases", title:word, url:word, site:host, and -word for what not.

Any text is understood somehow. What is too much of it is left out, and said.
"""

import re
from typing import Literal

from sterna.archive.disk import clean
from sterna.model import Record
from sterna.search.analysis import tidy

MAX_CHARS = 2_000
MAX_TERMS = 32

Where = Literal["", "title", "url"]

# A minus before it, a field, and then a phrase (which may lack its end) or whatever has no space.
_PART = re.compile(
    r'(?P<minus>-?)(?P<field>(?:title|url|site):)?(?:"(?P<phrase>[^"]*)(?:"|\Z)|(?P<word>[^\s"]+))', re.I
)


class Term(Record, frozen=True):
    """A word or phrase, where it must stand, and whether it must not."""

    text: str
    where: Where = ""
    is_phrase: bool = False
    is_excluded: bool = False


class Asked(Record, frozen=True, kw_only=True):
    """What is asked for."""

    terms: tuple[Term, ...] = ()
    sites: tuple[str, ...] = ()  # one of them
    excluded_sites: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse(words: str) -> Asked:
    """What somebody asks for; never fails."""
    notes = []
    text = tidy(clean(words[: MAX_CHARS + 1]))
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS]
        notes.append(f"only the first {MAX_CHARS:,} characters were read")
    terms: list[Term] = []
    sites: dict[bool, list[str]] = {False: [], True: []}
    for part in _PART.finditer(text):
        is_excluded = bool(part["minus"])
        field = (part["field"] or "").rstrip(":").lower()
        said = part["phrase"] if part["phrase"] is not None else part["word"]
        if len(terms) + len(sites[False]) + len(sites[True]) >= MAX_TERMS:
            notes.append(f"only the first {MAX_TERMS} words were searched")
            break
        if field == "site":
            host = host_named(said)
            sites[is_excluded].extend([host] if host else [])
        elif said.strip():
            where: Where = "title" if field == "title" else "url" if field == "url" else ""
            terms.append(Term(said.strip(), where, part["phrase"] is not None, is_excluded))
    return Asked(
        terms=tuple(dict.fromkeys(terms)),
        sites=tuple(sites[False]),
        excluded_sites=tuple(sites[True]),
        notes=tuple(notes),
    )


def host_named(said: str) -> str:
    """The host, or the whole site, that `site:` names; a path after it says nothing."""
    scheme, separator, rest = said.strip().lower().rpartition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0].strip(".")
    if not authority.isascii():
        try:
            authority = authority.encode("idna").decode()
        except UnicodeError:
            return ""
    return f"{scheme}{separator}{authority}" if authority else ""
