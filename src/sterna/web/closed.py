"""Paths that a site's owner closed to crawlers, in any spelling that web servers take for the same page."""

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from sterna.web.urls import path_of

_PLAIN = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*+)++/?")  # has only one reading
_ROUNDS = 3  # of percent-decoding: a server behind another may decode once more
_SLASHES = re.compile(r"/{2,}")
_PARAMETER = re.compile(r"[;?#][^/]*")  # of a name; an encoded "?" is part of the path


class ClosedPaths:
    """Closed prefixes, as in robots.txt, and closed words, which are whole paths."""

    def __init__(self, prefixes: Sequence[str], words: Sequence[str] = ()) -> None:
        own = {reading for path in prefixes for reading in _readings(path)}
        self._prefixes = tuple(own)
        self._words = frozenset({*words, *(path.rstrip("/") for path in own)})

    def __contains__(self, url: str) -> bool:
        """Whether this URL of the site is closed; only its path counts."""
        path = path_of(url)
        if _PLAIN.fullmatch(path):
            return self._is_closed(path.lower())
        return any(map(self._is_closed, _readings(path)))

    def _is_closed(self, path: str) -> bool:
        return path.startswith(self._prefixes) or path.rstrip("/") in self._words


def _readings(written: str) -> set[str]:
    """All paths that a server may make of this one."""
    path = written.partition("#")[0].partition("?")[0].encode("utf-8", "replace")
    seen: set[str] = set()
    for _ in range(_ROUNDS):
        seen.update(_resolved(path.decode("latin-1")))  # one character per byte, in any encoding
        decoded = unquote_to_bytes(path)
        if decoded == path:
            break
        path = decoded
    return seen


def _resolved(path: str) -> tuple[str, str]:
    """The path in lower case without dots, double slashes and parameters."""
    path = _PARAMETER.sub("", path.replace("\\", "/").replace("\0", "")).lower()
    # Some servers resolve ".." first, some merge slashes first: "/a//../x" becomes /a/x or /x.
    return _without_dots(_SLASHES.sub("/", path)), _SLASHES.sub("/", _without_dots(path))


def _without_dots(path: str) -> str:
    kept: list[str] = []
    for name in path.split("/")[1:]:
        if name == "..":
            del kept[-1:]
        elif name != ".":
            kept.append(name)
    return "/" + "/".join(kept)
