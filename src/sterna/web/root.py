"""A site's document root read as its web server would serve it: the source of a crawler at the site."""

import mimetypes
import os
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from time import perf_counter
from urllib.parse import unquote, urlsplit

from sterna.errors import FetchError
from sterna.web.http import Request, Response

INDEX = ("index.html", "index.htm")
_TYPES = mimetypes.MimeTypes()


class RootFetcher:
    """Answers requests from files; nothing outside the root is ever read, whatever a link or a URL says."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve(strict=True)

    async def fetch(self, request: Request) -> Response:
        """The file that the URL means; 404 where there is none."""
        began = perf_counter()
        path = self._find(unquote(urlsplit(request.url).path))
        if path is None:
            return _response(HTTPStatus.NOT_FOUND, b"", began=began)
        if path.is_dir():
            return self._of_folder(path, request, began=began)
        return _file(path, request, began=began)

    async def close(self) -> None:
        """Nothing is open."""

    def _find(self, written: str) -> Path | None:
        """What lies under a URL's path, within the root."""
        if "\0" in written:
            return None
        try:
            path = (self._root / written.lstrip("/")).resolve(strict=True)
        except OSError:
            return None
        return path if path.is_relative_to(self._root) else None

    def _of_folder(self, folder: Path, request: Request, *, began: float) -> Response:
        address = urlsplit(request.url)
        if not address.path.endswith("/"):
            return _response(
                HTTPStatus.MOVED_PERMANENTLY, b"", began=began, headers=(("location", f"{address.path}/"),)
            )
        for name in INDEX:
            path = self._find(str((folder / name).relative_to(self._root)))
            if path and path.is_file():
                return _file(path, request, began=began)
        return _response(HTTPStatus.FORBIDDEN, b"", began=began)


def _file(path: Path, request: Request, *, began: float) -> Response:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            body = file.read(request.max_bytes + 1)
    except OSError:
        return _response(HTTPStatus.FORBIDDEN, b"", began=began)
    if len(body) > request.max_bytes and not request.may_cut:
        raise FetchError("too_large", f"{request.url} has {status.st_size:,} bytes", wire_bytes=len(body))
    kind, coding = _TYPES.guess_type(path.name)
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
    modified = formatdate(status.st_mtime, usegmt=True)
    headers = [("etag", etag), ("last-modified", modified)]
    if _is_known(request, etag, modified):
        return _response(HTTPStatus.NOT_MODIFIED, b"", began=began, headers=tuple(headers))
    content_type = f"application/{coding}" if coding else kind or "application/octet-stream"
    headers.append(("content-type", content_type))
    return _response(HTTPStatus.OK, body[: request.max_bytes], began=began, headers=tuple(headers))


def _is_known(request: Request, etag: str, modified: str) -> bool:
    given = dict(request.headers)
    if "If-None-Match" in given:
        return etag in given["If-None-Match"]
    return given.get("If-Modified-Since") == modified


def _response(
    status: HTTPStatus, body: bytes, *, began: float, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers)]
    return Response(
        status=status.value,
        head=("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"),
        body=body,
        headers=headers,
        seconds=perf_counter() - began,
        wire_bytes=0,  # nothing crossed a network
    )
