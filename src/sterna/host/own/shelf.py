"""The files that a host shows to everybody: sitemap, Atom feed (RFC 4287), changes as JSON lines, and a
listing of all pages with digests, for homes (`wire.listing`).

They are made from the index when first requested, and then kept: from the last survey that ended, without the
paths that the policy closes now.
"""

import asyncio
import logging
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing, suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from sterna.errors import StorageError, UsageError
from sterna.host.calls import Reply, http_error, refusal
from sterna.host.config import HostConfig
from sterna.host.own.index import Change, Index, Survey
from sterna.host.policy.policy import PolicyFile
from sterna.host.site.closed import Closed
from sterna.model import Validator
from sterna.version import __version__
from sterna.web.sitemap_file import write_sitemap
from sterna.web.sitemap_file import xml_address as address
from sterna.web.sitemap_file import xml_text as text
from sterna.web.sitemap_file import xml_time as time_text
from sterna.web.urls import path_of
from sterna.wire.discovery import MEDIA_TYPE
from sterna.wire.listing import MAX_LISTED, Listing, pack_listing
from sterna.wire.problems import problem

FOLDER = "shown"  # in the folder of state
FORMAT = 2  # of the files; files of another format are made again
CHUNK_BYTES = 256 * 1024
MAX_AGE_SECONDS = 600
STALE_SECONDS = 3600.0  # after which an unfinished folder was left by a process that is gone
MOST_LINES = 10_000
MOST = 1_000  # entries of a feed, the latest ones
SITEMAP, ATOM, LINES, PAGES = "sitemap.xml", "changes.atom", "changes.jsonl", "pages"

_TYPES = {
    ".xml": "application/xml",
    ".atom": "application/atom+xml; charset=utf-8",
    ".jsonl": "application/x-ndjson",
    "": MEDIA_TYPE,
}

_log = logging.getLogger(__name__)


class Shelf:
    def __init__(self, config: HostConfig) -> None:
        self._config = config
        self._policy = PolicyFile(config.policy_file, config.policy)
        self._making = asyncio.Lock()  # other requests wait for the files meanwhile

    async def reply(self, name: str, *, known: str = "") -> Reply:
        """The file of this name; `known` is the client's If-None-Match."""
        try:
            async with self._making:
                path = await asyncio.to_thread(self._find, name)
            return _reply(path, known) if path else http_error(404, "Not Found")
        except (StorageError, OSError) as error:
            _log.error("cannot show %s: %s", name, error)
            return refusal(problem("internal"))

    def _find(self, name: str) -> Path | None:
        try:
            index = Index(self._config.state)
        except UsageError:  # there is none yet
            return None
        with closing(index):
            survey = index.last_survey()
            if survey is None:
                return None
            self._policy.look()
            closed = self._policy.policy.closed
            key = (FORMAT, survey.number, survey.ended, sorted(closed), self._config.address)
            digest = blake2b(repr(key).encode(), digest_size=12).hexdigest()
            folder = self._config.state / FOLDER / digest
            if not folder.is_dir():
                self._make(index, survey, folder, closed=Closed(closed))
        path = folder / name
        return path if path.is_file() else None

    def _make(self, index: Index, survey: Survey, folder: Path, *, closed: Closed) -> None:
        """Makes all files or none: several processes may do so at once."""
        address, site = self._config.address, self._config.site
        beside = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
        beside.mkdir(mode=0o700, parents=True)
        try:
            with index.snapshot():
                write_sitemap(index.pages(closed), beside / SITEMAP, base=address)
                feed = atom_of(
                    index.latest(closed), site=site, url=f"{address}/{ATOM}", now=survey.ended or survey.began
                )
                with (beside / ATOM).open("w", encoding="utf-8") as file:
                    file.writelines(feed)
                (beside / PAGES).write_bytes(pack_listing(listing_of(index, survey, closed, site=site)))
                with (beside / LINES).open("wb") as lines:
                    lines.writelines(lines_of(islice(index.changes(closed, newest_first=True), MOST_LINES)))
            try:
                beside.rename(folder)
            except OSError:
                if not folder.is_dir():  # if it is there, another process was faster
                    raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        _sweep(folder)


def listing_of(index: Index, survey: Survey, closed: Closed, *, site: str) -> Listing:
    """The pages as they were when the survey began, or later."""
    digests = islice(index.digests(closed, seen_since=survey.began), MAX_LISTED)
    return Listing(
        site=site, began=survey.began, pages=tuple(Validator(mark, digest=digest) for mark, digest in digests)
    )


def _sweep(folder: Path) -> None:
    for other in folder.parent.iterdir():
        with suppress(FileNotFoundError):  # another process deleted it
            is_in_the_making = (
                other.name.startswith(".") and time.time() - other.stat().st_mtime < STALE_SECONDS
            )
            if other != folder and not is_in_the_making:
                shutil.rmtree(other, ignore_errors=True)


def _reply(path: Path, known: str) -> Reply:
    tag = f'"{path.parent.name}"'
    headers = (("Cache-Control", f"max-age={MAX_AGE_SECONDS}"), ("ETag", tag), ("X-Robots-Tag", "noindex"))
    media_type = _TYPES[path.suffix]
    if tag in known.replace("W/", "").split(", ") or known.strip() == "*":
        return Reply(304, media_type, headers, b"")
    file = path.open("rb")  # it stays readable if it is deleted meanwhile
    size = os.fstat(file.fileno()).st_size
    return Reply(200, media_type, (*headers, ("Content-Length", str(size))), _chunks(file))


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk


# -- changes -----------------------------------------------------------------------------------------------

# RFC 6721 2; a reader that does not know the second namespace ignores its elements.
_NAMES = 'xmlns="http://www.w3.org/2005/Atom" xmlns:at="http://purl.org/atompub/tombstones/1.0"'


def atom_of(latest: Iterable[Change], *, site: str, url: str, now: float) -> Iterator[str]:
    """The feed served at `url`, with the last change of each page; `now` is its time if there is none."""
    entries = list(islice(latest, MOST))
    updated = max((change.told for change in entries), default=now)
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield f"<feed {_NAMES}>\n"
    yield f"<id>{address(url)}</id>\n<title>Changes of {text(site)}</title>\n"
    yield f"<updated>{time_text(updated)}</updated>\n"
    yield f'<link rel="self" type="application/atom+xml" href="{address(url)}"/>\n'
    yield f'<link rel="alternate" href="{address(site + "/")}"/>\n'
    yield f"<author><name>{text(site)}</name></author>\n"
    yield f'<generator version="{__version__}">Sterna</generator>\n'
    for change in entries:
        yield _entry(change)
    yield "</feed>\n"


def lines_of(changes: Iterable[Change]) -> Iterator[bytes]:
    """One JSON object per line."""
    for change in changes:
        row = {
            "n": change.n,
            "kind": change.kind,
            "url": change.url,
            "title": change.title,
            "at": time_text(change.at),
            "told": time_text(change.told),
        }
        yield msgspec.json.encode(row) + b"\n"


def _entry(change: Change) -> str:
    url = address(change.url)
    if change.kind == "deleted":
        return f'<at:deleted-entry ref="{url}" when="{time_text(change.at)}"/>\n'
    published = "" if change.created is None else f"<published>{time_text(change.created)}</published>"
    title = change.title or path_of(change.url)
    return (
        f"<entry><id>{url}</id><title>{text(title)}</title><updated>{time_text(change.at)}</updated>{published}"
        f'<link rel="alternate" href="{url}"/><category term="{change.kind}"/></entry>\n'
    )
