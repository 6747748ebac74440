"""`sterna list`: the collections below a folder."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from sterna.cli.flags import JsonOption, argument
from sterna.cli.lines import bytes_text, columns, date_text, say, say_json
from sterna.errors import CollectionError, StorageError, UsageError
from sterna.home.folder import MARKER, CollectionFolder
from sterna.model import Record

MAX_DEPTH = 6  # folders below the one that is named


class Listed(Record, frozen=True, array_like=False, kw_only=True):
    """A collection as the list shows it; `trouble` says why its counts are missing."""

    collection: str
    pages: int = 0
    pending: int = 0
    sites: int = 0
    last: float | None = None  # when a crawl last changed it
    size_bytes: int = 0
    trouble: str = ""


def list_collections(
    folder: Annotated[Path, argument("DIR", "Where to look.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """List the collections below a folder, with their pages, last crawl and size.

    Example: sterna list crawls
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: name one that contains collections, such as crawls")
    found = [_listed(path) for path in sorted(_collections(folder, MAX_DEPTH))]
    if as_json:
        say_json({"collections": found})
        return
    if not found:
        say(f"no collection below {folder}: sterna crawl https://www.example.org/ makes one in crawls/")
        return
    rows = [("pages", "to go", "sites", "last crawl", "size", "")]
    for each in found:
        last = date_text(each.last) if each.last else "never"
        name = f"{each.collection}  ({each.trouble})" if each.trouble else each.collection
        counts = (f"{each.pages:,}", f"{each.pending:,}", f"{each.sites:,}")
        rows.append((*counts, last, bytes_text(each.size_bytes), name))
    say(*columns(rows, right=(0, 1, 2, 4)))


def _collections(folder: Path, depth: int) -> Iterator[Path]:
    """The collections in a folder and below it; links are not followed, unreadable folders left out."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    if any(entry.name == MARKER for entry in entries):
        yield folder
        return
    for entry in entries:
        if depth and entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from _collections(folder / entry.name, depth - 1)


def _listed(path: Path) -> Listed:
    collection, size_bytes = CollectionFolder(path), _size_of(path)
    try:
        with collection.check().open_ledger() as ledger:
            counts = ledger.counts(now=time.time())
        last = collection.ledger_path.stat().st_mtime
    except (CollectionError, StorageError, OSError) as error:
        return Listed(collection=str(path), size_bytes=size_bytes, trouble=str(error))
    return Listed(
        collection=str(path),
        pages=counts.pages,
        pending=counts.pending,
        sites=counts.sites,
        last=last,
        size_bytes=size_bytes,
    )


def _size_of(folder: Path) -> int:
    size_bytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size_bytes += Path(place, name).lstat().st_size
            except OSError:  # a crawl has just merged it into another
                continue
    return size_bytes
