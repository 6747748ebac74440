"""Responses made of the files in a document root alone, where no web server decides what is public."""

import logging
import mimetypes
import os
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path

from sterna.errors import FetchError
from sterna.web.document_root import (
    INDEX,
    WELL_KNOWN,
    DocumentRoot,
    PathKind,
    RootEntry,
    check_open,
    names_of,
)
from sterna.web.http import Request, Response
from sterna.web.kinds import Kinds
from sterna.web.urls import path_of

MAX_TOLD = 20  # kinds of withheld files in the log

_log = logging.getLogger(__name__)
_TYPES = mimetypes.MimeTypes()


class RootFetcher:
    """Answers like a web server with only these files; withholds what a server would run or hide.

    No server decides what is public here, so only files of kinds that sites publish are shown.
    """

    def __init__(
        self, root: Path, aliases: Sequence[tuple[str, Path]] = (), *, kinds: Sequence[str] = ()
    ) -> None:
        self._root = DocumentRoot(root, aliases)
        self._kinds = Kinds(kinds)
        self._told: set[bytes] = set()  # kinds that the log names; changed by _is_shown() alone

    async def fetch(self, request: Request) -> Response:
        """The file for the URL; 404 without one. FetchError if it lies under a closed path."""
        path, mark, query = path_of(request.url).partition("?")
        names = names_of(path)
        if names is None:
            return answer_of(HTTPStatus.NOT_FOUND)
        with self._root.find(names) as entry:
            check_open(entry, request)
            if entry.kind is PathKind.FILE and names[-1]:
                return await self._answer(entry, request)
            if entry.kind is PathKind.FOLDER and names[-1]:
                location = ("location", f"{path}/{mark}{query}")
                return answer_of(HTTPStatus.MOVED_PERMANENTLY, headers=(location,))
        if entry.kind is not PathKind.FOLDER:  # also for a file with a slash behind its name
            is_guarded = entry.kind is PathKind.GUARDED
            return answer_of(HTTPStatus.FORBIDDEN if is_guarded else HTTPStatus.NOT_FOUND)
        for index in INDEX:
            with self._root.find([*names, index]) as entry:
                if entry.links:  # otherwise it lies in the folder, which is open
                    check_open(entry, request)
                if entry.kind is PathKind.FILE:
                    return await self._answer(entry, request)
        return answer_of(HTTPStatus.FORBIDDEN)

    async def _answer(self, entry: RootEntry, request: Request) -> Response:
        if not self._is_shown(entry):
            return answer_of(HTTPStatus.NOT_FOUND)
        return await _of_file(entry, request)

    def _is_shown(self, entry: RootEntry) -> bool:
        """Whether the file is of a published kind, by its own name and by those of links to it."""
        is_well_known = entry.names[0] == WELL_KNOWN
        for name in (entry.name, *entry.links):
            if self._kinds.have(name, is_well_known=is_well_known):
                continue
            kind = name.rpartition(b".")[2] if b"." in name else b""
            if kind not in self._told and len(self._told) < MAX_TOLD:
                self._told.add(kind)
                _log.warning("%s is withheld: %s", entry.paths[0], _reason(kind))
            return False
        return True


def _reason(kind: bytes) -> str:
    if not kind:
        return "it is, or a link to it is, a file without an extension"
    return f"{os.fsdecode(kind)!a} is not a kind of file that sites publish; --kind adds one"


async def _of_file(entry: RootEntry, request: Request) -> Response:
    if entry.size > request.max_bytes and not request.may_cut:
        raise FetchError("too_large", f"{request.url} has {entry.size:,} bytes")
    assert entry.status
    etag = f'"{entry.status.st_mtime_ns:x}-{entry.size:x}"'
    headers = [("etag", etag), ("last-modified", entry.modified)]
    if _is_known(request, etag, entry.modified):
        return answer_of(HTTPStatus.NOT_MODIFIED, headers=headers)
    headers.append(("content-type", _type_of(b".".join(entry.name.split(b".")[1:][-2:]))))
    body = await entry.read(request.max_bytes, request.claim)
    if body is None:
        raise FetchError("truncated", f"{request.url} changed while it was read")
    return answer_of(HTTPStatus.OK, body, headers=headers)


@lru_cache(maxsize=1024)
def _type_of(suffixes: bytes) -> str:
    kind, coding = _TYPES.guess_type(f"name.{os.fsdecode(suffixes)}")
    return f"application/{coding}" if coding else kind or "application/octet-stream"


def _is_known(request: Request, etag: str, modified: str) -> bool:
    given = dict(request.headers)
    if "If-None-Match" in given:
        return etag in given["If-None-Match"]
    return given.get("If-Modified-Since") == modified


def answer_of(status: HTTPStatus, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()) -> Response:
    """A response made here: it took no server's time, and nothing crossed a network."""
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers)]
    return Response(
        status=status.value,
        head=("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"),
        body=body,
        headers=tuple(headers),
        seconds=0.0,
        wire_bytes=0,
    )
