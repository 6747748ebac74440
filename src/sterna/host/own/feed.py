"""The changes of the site for those who follow it: Atom (RFC 4287) with tombstones, and JSON lines."""

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from sterna.host.own.index import Change
from sterna.version import __version__
from sterna.web.urls import path_of
from sterna.web.xml import address, text, time

MOST = 1_000  # entries of a feed, the latest ones

# RFC 6721 2; a reader that does not know the second name passes over what is in it.
_NAMES = 'xmlns="http://www.w3.org/2005/Atom" xmlns:at="http://purl.org/atompub/tombstones/1.0"'


def atom_of(latest: Iterable[Change], *, site: str, url: str, now: float) -> Iterator[str]:
    """The feed that is served at `url`: each page once, as it last changed; `now` is when nothing did yet."""
    entries = list(islice(latest, MOST))
    updated = max((change.told for change in entries), default=now)
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield f"<feed {_NAMES}>\n"
    yield f"<id>{address(url)}</id>\n<title>Changes of {text(site)}</title>\n"
    yield f"<updated>{time(updated)}</updated>\n"
    yield f'<link rel="self" type="application/atom+xml" href="{address(url)}"/>\n'
    yield f'<link rel="alternate" href="{address(site + "/")}"/>\n'
    yield f"<author><name>{text(site)}</name></author>\n"
    yield f'<generator version="{__version__}">Sterna</generator>\n'
    for change in entries:
        yield _tombstone(change) if change.kind == "deleted" else _entry(change)
    yield "</feed>\n"


def lines_of(changes: Iterable[Change]) -> Iterator[bytes]:
    """One JSON object a line."""
    for change in changes:
        row = {
            "n": change.n,
            "kind": change.kind,
            "url": change.url,
            "title": change.title,
            "at": time(change.at),
            "told": time(change.told),
        }
        yield msgspec.json.encode(row) + b"\n"


def _entry(change: Change) -> str:
    url = address(change.url)
    published = "" if change.created is None else f"<published>{time(change.created)}</published>"
    title = change.title or path_of(change.url)
    return (
        f"<entry><id>{url}</id><title>{text(title)}</title><updated>{time(change.at)}</updated>{published}"
        f'<link rel="alternate" href="{url}"/><category term="{change.kind}"/></entry>\n'
    )


def _tombstone(change: Change) -> str:
    return f'<at:deleted-entry ref="{address(change.url)}" when="{time(change.at)}"/>\n'
