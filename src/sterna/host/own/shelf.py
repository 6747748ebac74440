"""The files that a host shows to everybody: made of the index when they are first asked for, and then kept.

They are those of the last survey that ended, under the paths that the policy closes now.
"""

import asyncio
import logging
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from sterna.errors import StorageError, UsageError
from sterna.host.config import HostConfig
from sterna.host.own.feed import atom_of, lines_of
from sterna.host.own.index import Index, Survey
from sterna.host.policy.policy import PolicyFile
from sterna.host.service import Reply, nowhere, refusal
from sterna.host.site.closed import Closed
from sterna.web.sitemap_file import write_sitemap
from sterna.wire.problems import problem

FOLDER = "shown"  # in the folder of state
FORMAT = 1  # of what is made; another one makes it anew
SMALL_BYTES = 1024 * 1024
CHUNK_BYTES = 256 * 1024
MAX_AGE_SECONDS = 600
STALE_SECONDS = 3600.0  # after which what is still being made was left by a process that is gone
MOST_LINES = 10_000
SITEMAP, ATOM, LINES = "sitemap.xml", "changes.atom", "changes.jsonl"

_TYPES = {
    ".xml": "application/xml",
    ".atom": "application/atom+xml; charset=utf-8",
    ".jsonl": "application/x-ndjson",
}

_log = logging.getLogger(__name__)


class Shelf:
    """What one host shows."""

    def __init__(self, config: HostConfig) -> None:
        self._config = config
        self._policy = PolicyFile(config.policy_file, config.policy)
        self._making = asyncio.Lock()  # whoever comes meanwhile waits for what is made

    async def reply(self, name: str, *, known: str = "") -> Reply:
        """The file of this name; `known` is the client's If-None-Match."""
        try:
            async with self._making:
                path = await asyncio.to_thread(self._find, name)
            return await _reply(path, known) if path else nowhere(404, "Not Found")
        except (StorageError, OSError) as error:
            _log.error("%s cannot be shown: %s", name, error)
            return refusal(problem("internal"))

    def _find(self, name: str) -> Path | None:
        try:
            index = Index(self._config.state)
        except UsageError:  # there is none yet
            return None
        try:
            survey = index.last_survey()
            if survey is None:
                return None
            self._policy.look()
            closed = self._policy.policy.closed
            folder = self._config.state / FOLDER / self._key(survey, closed)
            if not folder.is_dir():
                self._make(index, survey, folder, closed=Closed(closed))
        finally:
            index.close()
        path = folder / name
        return path if path.is_file() else None

    def _key(self, survey: Survey, closed: tuple[str, ...]) -> str:
        seen = (FORMAT, survey.number, survey.ended, sorted(closed), self._config.address)
        return blake2b(repr(seen).encode(), digest_size=12).hexdigest()

    def _make(self, index: Index, survey: Survey, folder: Path, *, closed: Closed) -> None:
        """All of it or nothing: several processes may make the same at once."""
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
                with (beside / LINES).open("wb") as lines:
                    lines.writelines(lines_of(islice(index.changes(closed, newest_first=True), MOST_LINES)))
            try:
                beside.rename(folder)
            except OSError:
                if not folder.is_dir():  # where it is, somebody else was quicker
                    raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        _sweep(folder)


def _sweep(folder: Path) -> None:
    """Deletes what was made before."""
    for other in folder.parent.iterdir():
        is_in_the_making = other.name.startswith(".") and time.time() - _time_of(other) < STALE_SECONDS
        if other != folder and not is_in_the_making:
            shutil.rmtree(other, ignore_errors=True)


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


async def _reply(path: Path, known: str) -> Reply:
    tag = f'"{path.parent.name}"'
    headers = (("Cache-Control", f"max-age={MAX_AGE_SECONDS}"), ("ETag", tag), ("X-Robots-Tag", "noindex"))
    media_type = _TYPES[path.suffix]
    if tag in known.replace("W/", "").split(", ") or known.strip() == "*":
        return Reply(304, media_type, headers, b"")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # whoever sweeps it away meanwhile takes nothing
    size = os.fstat(descriptor).st_size
    if size > SMALL_BYTES:
        return Reply(200, media_type, (*headers, ("Content-Length", str(size))), _chunks(descriptor))
    try:
        return Reply(200, media_type, headers, await asyncio.to_thread(os.read, descriptor, size))
    finally:
        os.close(descriptor)


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    try:
        while chunk := await asyncio.to_thread(os.read, descriptor, CHUNK_BYTES):
            yield chunk
    finally:
        os.close(descriptor)
