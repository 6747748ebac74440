"""The two files that a page needs, its style and its picture, named by their hashes: they keep for ever."""

from hashlib import sha256
from importlib.resources import files

from sterna.model import Record

FOR_EVER = "public, max-age=31536000, immutable"


class Asset(Record, frozen=True, kw_only=True):
    """A file that never changes under its name."""

    path: str
    media_type: str
    content: bytes


def _asset(name: str, media_type: str) -> Asset:
    content = (files("sterna.search.page") / name).read_bytes()
    stem, _, ending = name.rpartition(".")
    path = f"/{stem}-{sha256(content).hexdigest()[:16]}.{ending}"
    return Asset(path=path, media_type=media_type, content=content)


STYLE = _asset("style.css", "text/css; charset=utf-8")
ICON = _asset("icon.svg", "image/svg+xml")
