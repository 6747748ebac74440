"""A site's document root: its files, found beneath it by descriptors, and the paths where they really lie."""

import asyncio
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote_to_bytes

from sterna.errors import ConfigError, FetchError
from sterna.web.bodies import BodyClaim
from sterna.web.http import Request
from sterna.web.kinds import is_withheld
from sterna.web.urls import site_of

INDEX = (b"index.html", b"index.htm")
MAX_LINKS = 40  # symbolic links on the way to one file, as the kernel has it
LARGE_BYTES = 1024 * 1024  # from here on a file is read in a thread

WELL_KNOWN = b".well-known"  # RFC 8615: the one hidden name that is public

_RULES = b".htaccess"

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
    names: tuple[bytes, ...] = ()  # of a file: from its folder to itself, links followed
    links: tuple[bytes, ...] = ()  # the names of the links that stood for it itself, not for a folder above
    paths: tuple[str, ...] = ()  # of the site, under which it really lies: links followed, by every alias
    status: os.stat_result | None = None
    file: int = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    @property
    def name(self) -> bytes:
        return self.names[-1]

    @property
    def size(self) -> int:
        return self.status.st_size if self.status else 0

    @property
    def modified(self) -> str:
        return _date(int(self.status.st_mtime)) if self.status else ""

    async def read(self, max_bytes: int, claim: BodyClaim | None = None) -> bytes | None:
        """The file's beginning, once there is room for it; None if it changed since it was found."""
        if claim:
            await claim.wait(min(self.size, max_bytes))
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


def names_of(path: str) -> list[bytes] | None:
    """The names in a URL's path, an empty one at a folder's end; None if the path is not plain."""
    names = [unquote_to_bytes(name) for name in path.split("/")[1:]] or [b""]
    if any(name in (b".", b"..") or b"/" in name or b"\0" in name for name in names):
        return None
    return names


def resolved_names_of(path: str) -> list[bytes]:
    """The names that a web server may make of a path that is not plain."""
    names: list[bytes] = []
    for name in unquote_to_bytes(path).replace(b"\0", b"").split(b"/"):
        if name == b"..":
            del names[-1:]
        elif name not in (b"", b"."):
            names.append(name)
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
        # Every time: a root may be a link that another release takes over.
        places = [(prefix, _without_links(os.fsencode(folder))) for prefix, folder in self._folders]
        for (prefix, folder), (_, place) in zip(self._folders, places, strict=True):
            if given[: len(prefix)] == prefix:
                way = _Way(folder, place, is_guarded=_is_guarded(place, places))
                entry = way.follow(given[len(prefix) :])
                entry.links, entry.paths = tuple(way.links), tuple(_paths_of(way.place(), places))
                return entry
        return RootEntry(PathKind.MISSING)


def check_open(entry: RootEntry, request: Request) -> None:
    """FetchError if what was found really lies under a path that is closed to this request."""
    site = site_of(request.url)
    if any(f"{site}{path}" in closed for path in entry.paths for closed in request.closed):
        raise FetchError("refused", f"{request.url} leads to a path that is closed to crawlers")


_Places = Sequence[tuple[tuple[bytes, ...], bytes]]  # folders without links, by the names of their URL


def _is_guarded(place: bytes, places: _Places) -> bool:
    """Whether rules for Apache lie above a folder, in another one that it is in."""
    above = [beneath for _, folder in places if (beneath := _beneath(place, folder))]
    return any(
        os.path.lexists(b"/".join([place, *[b".."] * depth, _RULES]))
        for depth in range(1, max((beneath.count(b"/") + 2 for beneath in above), default=1))
    )


def _paths_of(place: bytes, places: _Places) -> Iterator[str]:
    """The paths of the site that stand for a file or folder, which is named without links."""
    for prefix, folder in places:
        beneath = _beneath(place, folder)
        if beneath is not None:
            names = (*prefix, *beneath.split(b"/")) if beneath else prefix
            yield "/" + "/".join(quote(name, safe="") for name in names)


def _without_links(path: bytes) -> bytes:
    try:
        return os.path.realpath(path)
    except OSError:  # a link is exchanged at this moment; no answer would hold for long
        return os.path.normpath(path)


def _beneath(place: bytes, folder: bytes) -> bytes | None:
    """The way from the folder to the place; None if it lies elsewhere."""
    start = folder.rstrip(b"/") + b"/"
    return place[len(start) :] if (place + b"/").startswith(start) else None


def _alias(path: str) -> tuple[bytes, ...]:
    names = names_of(path.rstrip("/")) if path.startswith("/") else None
    if not names or b"" in names:
        raise ConfigError(f"alias {path!r} is invalid; give a path such as /files")
    return tuple(names)


class _Way:
    """One walk from a folder to what lies beneath it."""

    def __init__(self, folder: Path, place: bytes, *, is_guarded: bool) -> None:
        self._folder = folder
        self._place = place  # of the folder, without links
        self._is_guarded = is_guarded
        # All of these are changed by the walk.
        self._open: list[int] = []  # descriptors, from the folder down to where it stands
        self._names: list[bytes] = []  # of these descriptors, without the folder
        self._left: deque[bytes] = deque()  # names still to come, the next one included
        self._count = 0  # links so far
        self.links: list[bytes] = []  # those of them that stood for the last name

    def place(self) -> bytes:
        """Where the walk led to, without links; if it ended before, where the kernel would have led it.

        Nothing is read there by the second way: but a web server may go it.
        """
        here = b"/".join([self._place.rstrip(b"/"), *self._names])
        return _without_links(b"/".join([here, *self._left])) if self._left else here

    def follow(self, names: Sequence[bytes]) -> RootEntry:
        self._left.extend(names)
        try:
            self._open.append(os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            kind = PathKind.GUARDED if self._is_guarded or self._has_rules() else PathKind.FOLDER
            while self._left and kind is PathKind.FOLDER:
                kind = self._step(self._left[0])
            return self._file() if kind is PathKind.FILE else RootEntry(kind)
        except PermissionError:
            return RootEntry(PathKind.GUARDED)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO):
                raise FetchError("disk", error.strerror or "") from error
            return RootEntry(PathKind.MISSING)
        finally:
            for descriptor in self._open:
                os.close(descriptor)

    def _step(self, name: bytes) -> PathKind:
        """Takes one step to `name`, the next one; returns what is there."""
        if name == b"..":  # of a link: a URL's path holds none
            if not self._names:
                return PathKind.MISSING
            self._go_up()
            self._left.popleft()
            return PathKind.FOLDER
        if name.startswith(b".") and not (name == WELL_KNOWN and not self._names):
            return PathKind.CLOSED
        self._open.append(os.open(name, _LOOK, dir_fd=self._open[-1]))
        mode = os.fstat(self._open[-1]).st_mode
        if stat.S_ISLNK(mode):
            return self._follow_link()
        if stat.S_ISDIR(mode):
            kind = PathKind.FOLDER if mode & stat.S_IXOTH and not self._has_rules() else PathKind.GUARDED
        else:
            kind = PathKind.FILE if stat.S_ISREG(mode) and len(self._left) == 1 else PathKind.MISSING
        if kind in (PathKind.FILE, PathKind.FOLDER):
            self._names.append(self._left.popleft())
        return kind

    def _go_up(self) -> None:
        os.close(self._open.pop())
        self._names.pop()

    def _follow_link(self) -> PathKind:
        """Puts the names that the link stands for in the place of its own."""
        self._count += 1
        link = self._open.pop()
        try:
            target = os.readlink(b"", dir_fd=link)
        finally:
            os.close(link)
        if len(self._left) == 1:
            self.links.append(self._left[0])
        if self._count > MAX_LINKS:
            return PathKind.MISSING
        beneath = self._from_folder(target) if target.startswith(b"/") else target
        if beneath is None:
            return PathKind.MISSING
        self._left.popleft()
        self._left.extendleft(name for name in reversed(beneath.split(b"/")) if name not in (b"", b"."))
        return PathKind.FOLDER

    def _from_folder(self, target: bytes) -> bytes | None:
        """An absolute path as one from the folder, to which the walk goes back; None if it lies elsewhere."""
        for folder in (self._place, os.fsencode(self._folder.absolute())):
            beneath = _beneath(target, folder)
            if beneath is not None:
                while self._names:
                    self._go_up()
                return beneath
        return None

    def _has_rules(self) -> bool:
        """Whether the folder has a .htaccess, whose rules only Apache knows."""
        return os.access(_RULES, os.F_OK, dir_fd=self._open[-1], follow_symlinks=False)

    def _file(self) -> RootEntry:
        status, name = os.fstat(self._open[-1]), self._names[-1]
        if any(map(is_withheld, (name, *self.links))) or status.st_mode & 0o111:
            return RootEntry(PathKind.CLOSED)
        if not status.st_mode & stat.S_IROTH:
            return RootEntry(PathKind.GUARDED)
        file = os.open(name, _READ, dir_fd=self._open[-2])
        opened = os.fstat(file)
        if (opened.st_dev, opened.st_ino, opened.st_mode) != (status.st_dev, status.st_ino, status.st_mode):
            os.close(file)
            return RootEntry(PathKind.MISSING)
        return RootEntry(PathKind.FILE, tuple(self._names), status=opened, file=file)
