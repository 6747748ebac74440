"""The path of a page's file, made of its URL: inside its folder, and one that every disk takes.

A name that says its URL exactly stands as it is; any other carries a hash of the URL. Names that differ only
in case, or in how their letters are composed, are one name on some disks: the later one gets a hash too.
"""

import re
from hashlib import blake2b
from unicodedata import normalize
from urllib.parse import unquote

from sterna.export.spill import Lookup
from sterna.model import Record
from sterna.web.urls import path_of, site_of

SUFFIX = ".md"
_MAX_NAME_BYTES = 64
_MAX_FOLDERS = 10
_HASH_BYTES = (5, 10, 20)  # more of them where fewer are taken already

_UNSAFE = re.compile(r"[^\w.+=,@~-]")
_PAGE = re.compile(r"\.x?html?\Z", re.IGNORECASE)
# Devices on Windows, with any extension.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)


class _Name(Record, frozen=True):
    """A name for a file or a folder, and whether it says exactly what it is made of."""

    text: str
    is_exact: bool


def file_path(url: str) -> str:
    """The relative path for a canonical URL, with slashes."""
    path, _, query = path_of(url).partition("?")
    *folders, last = path.split("/")[1:]
    kept = [folder for folder in folders if folder][:_MAX_FOLDERS]
    names = [_folder(site_of(url).partition("://")[2].replace(":", "_"), is_host=True), *map(_folder, kept)]
    page = _Name("index", True) if not last else _name(_PAGE.sub("", last) or last)
    if query:
        page = _Name(_cut(f"{page.text}_{_name(query).text}"), False)
    is_exact = len(kept) == len(folders) and all(name.is_exact for name in [*names, page])
    whole = "/".join(name.text for name in [*names, page])
    return (whole if is_exact else f"{whole}-{_hash(url, _HASH_BYTES[0])}") + SUFFIX


class Paths:
    """Gives each URL a path of its own."""

    def __init__(self, taken: Lookup) -> None:
        self._taken = taken

    def take(self, url: str) -> str:
        """The path for a URL, which is asked for once."""
        path = file_path(url)
        for hash_bytes in _HASH_BYTES:
            if self._taken.add(normalize("NFKC", path).casefold()):
                break
            path = f"{file_path(url).removesuffix(SUFFIX)}-{_hash(url, hash_bytes)}{SUFFIX}"
        return path


def _folder(segment: str, *, is_host: bool = False) -> _Name:
    name = _name(segment)
    if normalize("NFKC", name.text).casefold().endswith(SUFFIX):
        # Beside it may lie a file of this name.
        return _Name(f"{name.text}_", is_host)
    return _Name(name.text, True) if is_host else name


def _name(segment: str) -> _Name:
    meant = unquote(segment)
    text = _UNSAFE.sub("_", normalize("NFC", meant))
    if text[:1] in (".", "-") or _RESERVED.fullmatch(text):
        text = f"_{text}"  # hidden files, and what a command takes for an option
    text = _cut(text)
    if text.endswith("."):
        text = f"{text[:-1]}_"
    return _Name(text or "_", text == meant)


def _cut(text: str) -> str:
    return text.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")


def _hash(url: str, hash_bytes: int) -> str:
    return blake2b(url.encode(), digest_size=hash_bytes).hexdigest()
