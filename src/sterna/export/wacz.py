"""WACZ 1.1.1: WARC files, their index and a list of pages in one ZIP file (specs.webrecorder.net/wacz)."""

import hashlib
import json
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from sterna.export.cdxj import blocks, index_line, timestamp
from sterna.export.progress import Progress
from sterna.export.sorting import Sorter
from sterna.export.spill import Lookup
from sterna.export.warc import Entry, Wants, WarcFile, copy_wanted
from sterna.model import Record

VERSION = "1.1.1"
_INDEX = "index.cdx.gz"


class Listed(Record, frozen=True):
    """A page for the list of pages."""

    url: str
    title: str


class About(Record, frozen=True):
    """What the package says of itself."""

    title: str
    software: str
    main_page: str = ""  # its URL


class _Written:
    """A file in the package that is being written."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._hasher = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes) -> None:
        self._stream.write(data)
        self._hasher.update(data)
        self._size_bytes += len(data)

    def described(self, path: str) -> dict[str, str | int]:
        name, digest = path.rpartition("/")[2].lower(), f"sha256:{self._hasher.hexdigest()}"
        return {"name": name, "path": path, "hash": digest, "bytes": self._size_bytes}


class _Package:
    """The ZIP file, and what its manifest will say of each file in it."""

    def __init__(self, package: zipfile.ZipFile) -> None:
        self._package = package
        self.resources: list[dict[str, str | int]] = []

    @contextmanager
    def entry(self, path: str, *, is_packed: bool = False, size_bytes: int = 0) -> Iterator[_Written]:
        """A file to write; `is_packed` where it is compressed already, `size_bytes` at most if known."""
        info = zipfile.ZipInfo(path, time.gmtime()[:6])
        info.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        info.file_size = size_bytes  # so the ZIP file knows whether its numbers are wide enough
        with self._package.open(info, "w") as stream:
            written = _Written(stream)
            yield written
        self.resources.append(written.described(path))


def write_wacz(
    out: IO[bytes],
    files: Iterable[WarcFile],
    *,
    wants: Wants,
    pages: Iterable[Listed],
    about: About,
    folder: Path,
    progress: Progress,
) -> int:
    """Writes the package, and tells how many answers it holds; `folder` takes what memory does not."""
    with zipfile.ZipFile(out, "w", allowZip64=True) as archive, Lookup(folder / "captures") as captures:
        package, sorter, count = _Package(archive), Sorter(folder), 0
        for file in files:
            for copied in _write_warc(package, file, wants=wants, progress=progress):
                if line := index_line(copied, filename=file.name):
                    if copied.heads.kind == "response":
                        captures.put_newest(copied.heads.url, timestamp(copied.heads))
                    sorter.add(line)
                    count += 1
        _write_index(package, sorter.lines())
        with package.entry("pages/pages.jsonl") as entry:
            for line in _page_lines(pages, captures):
                entry.write(line)
        main_page_at = captures.get(about.main_page)
        _write_manifest(archive, package.resources, about, main_page_at=main_page_at)
    return count


def _write_warc(package: _Package, file: WarcFile, *, wants: Wants, progress: Progress) -> Iterator[Entry]:
    """Copies what is wanted of a file; the package has no such file where nothing is."""
    with ExitStack() as opened:
        written: list[_Written] = []

        def write(data: bytes) -> None:
            if not written:
                path = f"archive/{file.name}"
                entry = package.entry(path, is_packed=True, size_bytes=file.committed_bytes)
                written.append(opened.enter_context(entry))
            written[0].write(data)

        yield from copy_wanted(file, write, wants=wants, progress=progress)


def _write_index(package: _Package, lines: Iterator[bytes]) -> None:
    pointers: list[bytes] = []
    with package.entry(f"indexes/{_INDEX}", is_packed=True) as entry:
        for block in blocks(lines, filename=_INDEX):
            entry.write(block.data)
            pointers.append(block.pointer)
    with package.entry("indexes/index.idx") as entry:
        entry.write(b"".join(pointers))


def _page_lines(pages: Iterable[Listed], captures: Lookup) -> Iterator[bytes]:
    """The list of those pages of which the package has an answer."""
    yield _json_line({"format": "json-pages-1.0", "id": "pages", "title": "All Pages"})
    for page in pages:
        at = captures.get(page.url)
        if at is not None:
            number = hashlib.sha256(page.url.encode()).hexdigest()[:16]
            stated = {"id": number, "url": page.url, "ts": _rfc3339(at), "title": page.title or page.url}
            yield _json_line(stated)


def _write_manifest(
    archive: zipfile.ZipFile,
    resources: list[dict[str, str | int]],
    about: About,
    *,
    main_page_at: str | None,
) -> None:
    now = _time(datetime.now(UTC))
    stated = {
        "profile": "data-package",
        "resources": resources,
        "wacz_version": VERSION,
        "title": about.title,
        "created": now,
        "modified": now,
        "software": about.software,
    }
    if main_page_at:
        stated |= {"mainPageUrl": about.main_page, "mainPageDate": _rfc3339(main_page_at)}
    manifest = json.dumps(stated, indent=2).encode()
    digest = {"path": "datapackage.json", "hash": f"sha256:{hashlib.sha256(manifest).hexdigest()}"}
    package = _Package(archive)
    with package.entry("datapackage.json") as entry:
        entry.write(manifest)
    with package.entry("datapackage-digest.json") as entry:
        entry.write(json.dumps(digest, indent=2).encode())


def _rfc3339(at: str) -> str:
    return _time(datetime.strptime(at, "%Y%m%d%H%M%S").replace(tzinfo=UTC))


def _json_line(stated: dict[str, str]) -> bytes:
    return json.dumps(stated).encode() + b"\n"


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
