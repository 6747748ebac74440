"""A site's document root: its files, found beneath it by descriptors, and responses made from them."""

import asyncio
import errno
import mimetypes
import os
import re
import stat
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Self
from urllib.parse import unquote_to_bytes

from sterna.errors import ConfigError, FetchError
from sterna.web.http import Request, Response
from sterna.web.urls import path_of

INDEX = (b"index.html", b"index.htm")
MAX_LINKS = 40  # symbolic links on the way to one file, as the kernel has it
LARGE_BYTES = 1024 * 1024  # from here on a file is read in a thread

_TYPES = mimetypes.MimeTypes()
_RULES = b".htaccess"
_WELL_KNOWN = b".well-known"  # RFC 8615: the one hidden name that is public

# What a web server runs instead of showing it, wherever it stands in a name: x.php.txt is run by some.
_SOURCE = re.compile(
    rb"\.(?:php[0-9]?|phtml|phps|pht|phar|inc|py[co]?|wsgi|rb|erb|f?cgi|p[lm]|t?csh|(?:ba|k|z)?sh|lua|tcl"
    rb"|aspx?|asa|as[chm]x|axd|jsp[xf]?|cf[mc]|shtml?|stm|htaccess|htpasswd)(?:\.|\Z)",
    re.IGNORECASE,
)
_COPY = re.compile(rb"(?:~|#|\.(?:bak|old|orig|rej|save|sw[nop]|tmp|dpkg-[a-z]+))\Z", re.IGNORECASE)

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class PathKind(Enum):
    """What a path of the site is on the disk."""

    FILE = auto()
    FOLDER = auto()
    MISSING = auto()  # or outside the root, or neither file nor folder
    CLOSED = auto()  # hidden, a script's source, a copy that an editor left
    GUARDED = auto()  # not world-readable, or under rules that only a web server knows


@dataclass(slots=True)
class RootEntry:
    """What was found; a file is open until the context ends."""

    kind: PathKind
    name: bytes = b""
    status: os.stat_result | None = None
    file: int = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    @property
    def size(self) -> int:
        return self.status.st_size if self.status else 0

    @property
    def modified(self) -> str:
        return _date(int(self.status.st_mtime)) if self.status else ""

    async def read(self, max_bytes: int) -> bytes | None:
        """The file's beginning; None if it changed since it was found."""
        if min(self.size, max_bytes) > LARGE_BYTES:
            # A cancelled caller closes the file under the thread; what pread returns then is discarded.
            return await asyncio.to_thread(self._read, max_bytes)
        return self._read(max_bytes)

    def _read(self, max_bytes: int) -> bytes | None:
        wanted = min(self.size, max_bytes)
        pieces: list[bytes] = []
        at = 0
        while at < wanted and (piece := os.pread(self.file, wanted - at, at)):
            pieces.append(piece)
            at += len(piece)
        now = os.fstat(self.file)
        assert self.status
        if at < wanted or (now.st_size, now.st_mtime_ns) != (self.status.st_size, self.status.st_mtime_ns):
            return None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@lru_cache(maxsize=4096)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


_MISSING = RootEntry(PathKind.MISSING)


def names_of(path: str) -> list[bytes] | None:
    """The names in a URL's path, an empty one at a folder's end; None if the path is not plain."""
    names = [unquote_to_bytes(name) for name in path.split("/")[1:]] or [b""]
    if any(name in (b".", b"..") or b"/" in name or b"\0" in name for name in names):
        return None
    return names


class DocumentRoot:
    """Folders by the URL paths that they stand under; nothing outside them is ever opened.

    Every name is looked up in the descriptor of the folder before it, and no symbolic link is left to the
    kernel: so whoever changes the tree meanwhile cannot lead the way out of it.
    """

    def __init__(self, root: Path, aliases: Sequence[tuple[str, Path]] = ()) -> None:
        folders = {(): root} | {_alias(path): folder for path, folder in aliases}
        self._folders = sorted(folders.items(), key=lambda each: -len(each[0]))  # the longest path counts
        for _, folder in self._folders:
            if not folder.is_dir():
                raise ConfigError(f"document root {folder} is not a folder")

    def find(self, names: Sequence[bytes]) -> RootEntry:
        """What lies under these names, the empty ones left out."""
        given = tuple(name for name in names if name)
        for prefix, folder in self._folders:
            if given[: len(prefix)] == prefix:
                return _Way(folder).follow(given[len(prefix) :])
        return _MISSING


def _alias(path: str) -> tuple[bytes, ...]:
    names = names_of(path.rstrip("/")) if path.startswith("/") else None
    if not names or b"" in names:
        raise ConfigError(f"alias {path!r} is invalid; give a path such as /files")
    return tuple(names)


class _Way:
    """One walk from a folder to what lies beneath it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Both are changed by the walk.
        self._open: list[int] = []  # descriptors, from the folder down to where it stands
        self._links = 0

    def follow(self, names: Sequence[bytes]) -> RootEntry:
        try:
            self._open.append(os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            kind = PathKind.GUARDED if self._has_rules() else PathKind.FOLDER
            name, left = b"", deque(names)
            while left and kind is PathKind.FOLDER:
                name = left.popleft()
                kind = self._step(name, left)
            return self._file(name) if kind is PathKind.FILE else RootEntry(kind)
        except PermissionError:
            return RootEntry(PathKind.GUARDED)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO):
                raise FetchError("disk", error.strerror or "") from error
            return _MISSING
        finally:
            for descriptor in self._open:
                os.close(descriptor)

    def _step(self, name: bytes, names: deque[bytes]) -> PathKind:
        """Takes one step to `name`; returns what is there."""
        if name == b"..":  # of a link: a URL's path holds none
            if len(self._open) == 1:
                return PathKind.MISSING
            os.close(self._open.pop())
            return PathKind.FOLDER
        if name.startswith(b".") and not (name == _WELL_KNOWN and len(self._open) == 1):
            return PathKind.CLOSED
        self._open.append(os.open(name, _LOOK, dir_fd=self._open[-1]))
        mode = os.fstat(self._open[-1]).st_mode
        if stat.S_ISLNK(mode):
            return self._follow_link(names)
        if stat.S_ISDIR(mode):
            return PathKind.FOLDER if mode & stat.S_IXOTH and not self._has_rules() else PathKind.GUARDED
        return PathKind.FILE if stat.S_ISREG(mode) and not names else PathKind.MISSING

    def _follow_link(self, names: deque[bytes]) -> PathKind:
        """Puts the names that the link stands for in front of those that are left."""
        self._links += 1
        link = self._open.pop()
        try:
            target = os.readlink(b"", dir_fd=link)
        finally:
            os.close(link)
        beneath = self._from_folder(target) if target.startswith(b"/") else target
        if beneath is None or self._links > MAX_LINKS:
            return PathKind.MISSING
        names.extendleft(name for name in reversed(beneath.split(b"/")) if name not in (b"", b"."))
        return PathKind.FOLDER

    def _from_folder(self, target: bytes) -> bytes | None:
        """An absolute path as one from the folder, to which the walk goes back; None if it lies elsewhere."""
        for folder in (self._folder.resolve(), self._folder.absolute()):
            prefix = os.fsencode(folder)
            if (target + b"/").startswith(prefix + b"/"):
                while len(self._open) > 1:
                    os.close(self._open.pop())
                return target[len(prefix) :]
        return None

    def _has_rules(self) -> bool:
        """Whether the folder has a .htaccess, whose rules only Apache knows."""
        return os.access(_RULES, os.F_OK, dir_fd=self._open[-1], follow_symlinks=False)

    def _file(self, name: bytes) -> RootEntry:
        status = os.fstat(self._open[-1])
        if _SOURCE.search(name) or _COPY.search(name) or status.st_mode & 0o111:
            return RootEntry(PathKind.CLOSED)
        if not status.st_mode & stat.S_IROTH:
            return RootEntry(PathKind.GUARDED)
        file = os.open(name, _READ, dir_fd=self._open[-2])
        opened = os.fstat(file)
        if (opened.st_dev, opened.st_ino, opened.st_mode) != (status.st_dev, status.st_ino, status.st_mode):
            os.close(file)
            return _MISSING
        return RootEntry(PathKind.FILE, name, opened, file)


class RootFetcher:
    """Answers like a web server with only these files; withholds what a server would run or hide."""

    def __init__(self, root: Path, aliases: Sequence[tuple[str, Path]] = ()) -> None:
        self._root = DocumentRoot(root, aliases)

    async def fetch(self, request: Request) -> Response:
        """The file for the URL; 404 without one."""
        path, mark, query = path_of(request.url).partition("?")
        names = names_of(path)
        if names is None:
            return answer_of(HTTPStatus.NOT_FOUND)
        with self._root.find(names) as entry:
            if entry.kind is PathKind.FILE and names[-1]:
                return await _of_file(entry, request)
            if entry.kind is PathKind.FOLDER and names[-1]:
                location = ("location", f"{path}/{mark}{query}")
                return answer_of(HTTPStatus.MOVED_PERMANENTLY, headers=(location,))
        if entry.kind is not PathKind.FOLDER:  # also for a file with a slash behind its name
            is_guarded = entry.kind is PathKind.GUARDED
            return answer_of(HTTPStatus.FORBIDDEN if is_guarded else HTTPStatus.NOT_FOUND)
        for index in INDEX:
            with self._root.find([*names, index]) as entry:
                if entry.kind is PathKind.FILE:
                    return await _of_file(entry, request)
        return answer_of(HTTPStatus.FORBIDDEN)


async def _of_file(entry: RootEntry, request: Request) -> Response:
    if entry.size > request.max_bytes and not request.may_cut:
        raise FetchError("too_large", f"{request.url} has {entry.size:,} bytes")
    assert entry.status
    etag = f'"{entry.status.st_mtime_ns:x}-{entry.size:x}"'
    headers = [("etag", etag), ("last-modified", entry.modified)]
    if _is_known(request, etag, entry.modified):
        return answer_of(HTTPStatus.NOT_MODIFIED, headers=headers)
    headers.append(("content-type", _type_of(b".".join(entry.name.split(b".")[1:][-2:]))))
    body = await entry.read(request.max_bytes)
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
