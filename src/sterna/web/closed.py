"""Paths that a site's owner closed to crawlers, in any spelling that web servers take for the same page."""

import re
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import quote, unquote_to_bytes

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


def merged(paths: Sequence[str], *, max_count: int, max_bytes: int) -> tuple[str, ...]:
    """At most so many paths of at most so many bytes in UTF-8, which close all that these close, or more.

    If there are too many, those that have the longest beginnings in common are replaced by them.
    """
    distinct = tuple(dict.fromkeys(paths))
    if len(distinct) <= max_count and all(len(path.encode()) <= max_bytes for path in distinct):
        return distinct
    # Readings, since `/a` is a beginning of `/a/../b` as it is written, and does not close /b.
    found: list[str] = []
    for reading in sorted({_cut(reading, max_bytes) for path in paths for reading in _readings(path)}):
        if not found or not reading.startswith(found[-1]):
            found.append(reading)
    shared = [len(_common(*pair)) for pair in pairwise(found)]
    # A group ends where the least is shared with the next path.
    ends = sorted(sorted(range(len(shared)), key=shared.__getitem__)[: max_count - 1])
    groups = zip([0, *(end + 1 for end in ends)], [*ends, len(found) - 1], strict=True)
    return tuple(_quoted(_common(found[first], found[last])) for first, last in groups)


def _common(one: str, other: str) -> str:
    """What both begin with."""
    end = next((at for at, (sign, its) in enumerate(zip(one, other, strict=False)) if sign != its), None)
    return min(one, other, key=len) if end is None else one[:end]


def _quoted(reading: str) -> str:
    return quote(reading, encoding="latin-1")


def _cut(reading: str, max_bytes: int) -> str:
    """The longest beginning that has so many bytes when it is quoted."""
    while (over := len(_quoted(reading)) - max_bytes) > 0:
        reading = reading[: -max(over // 3, 1)]  # a character is quoted in three bytes at most
    return reading


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
