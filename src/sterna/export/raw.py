"""Exports made of WARC files: copies of them, their CDXJ index, and a WACZ package.

WACZ 1.1.1 is WARC files, their index and a list of pages in one ZIP file (specs.webrecorder.net/wacz).
"""

import hashlib
import json
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, BinaryIO

from sterna.export.cdxj import blocks, index_line, timestamp
from sterna.export.progress import ExportProgress
from sterna.export.selection import Selection
from sterna.export.spill import Lookup, Sorter
from sterna.export.warc import Wants, WarcEntry, WarcFile, Write, check, copy_wanted, copy_whole, entries
from sterna.version import __version__

_IS_PAGE = "status = 200 AND content_type IN ('text/html', 'application/xhtml+xml')"
_LISTED = "url, coalesce(title, '')"
WACZ_VERSION = "1.1.1"
_INDEX = "index.cdx.gz"


def write_warc(
    source: Selection, out: BinaryIO, *, folder: Path, progress: ExportProgress
) -> tuple[int, str]:
    """Writes all records; returns the number of files, or of responses if there is a condition."""
    with _begun(source, folder, progress) as wants:
        counts = [_copy(file, out.write, wants=wants, progress=progress) for file in source.warcs]
    return (sum(counts), "response") if wants else (len(counts), "WARC file")


def write_warcs(source: Selection, made: Path, *, folder: Path, progress: ExportProgress) -> tuple[int, str]:
    """Copies the files into a folder; those without a wanted record are left out."""
    made.mkdir()
    count = 0
    with _begun(source, folder, progress) as wants:
        for file in source.warcs:
            path = made / file.name
            with path.open("xb") as out:
                copied = _copy(file, out.write, wants=wants, progress=progress)
            count += copied
            if not copied:
                path.unlink()
    return count, "response" if wants else "WARC file"


def write_cdxj(source: Selection, out: BinaryIO, *, folder: Path, progress: ExportProgress) -> int:
    """Writes the index of all files, and returns the number of responses."""
    sorter, count = Sorter(folder), 0
    with _begun(source, folder, progress) as wants:
        for file in source.warcs:
            for entry in entries(file, progress=progress):
                line = index_line(entry, filename=file.name)
                if line and (wants is None or wants(entry.heads.url)):
                    sorter.add(line)
                    count += 1
    out.writelines(sorter.lines())
    return count


def write_wacz(source: Selection, out: BinaryIO, *, folder: Path, progress: ExportProgress) -> int:
    """Writes a WACZ package and returns the number of its responses; `folder` takes what exceeds memory."""
    with (
        _begun(source, folder, progress) as wants,
        zipfile.ZipFile(out, "w", allowZip64=True) as archive,
        Lookup(folder / "captures") as captures,
    ):
        package, sorter, count = _Package(archive), Sorter(folder), 0
        for file in source.warcs:
            for copied in _write_warc(package, file, wants=wants or _all, progress=progress):
                if line := index_line(copied, filename=file.name):
                    if copied.heads.kind == "response":
                        captures.put_newest(copied.heads.url, timestamp(copied.heads))
                    sorter.add(line)
                    count += 1
        _write_index(package, sorter.lines())
        with package.entry("pages/pages.jsonl") as entry:
            for line in _page_lines(source.rows(_LISTED, and_where=_IS_PAGE), captures):
                entry.write(line)
        main_page = _main_page(source)
        described = _described(source.name, package.resources, main_page, at=captures.get(main_page))
        _write_manifest(archive, described)
    return count


@contextmanager
def _begun(source: Selection, folder: Path, progress: ExportProgress) -> Iterator[Wants | None]:
    """Which URLs are wanted, by the user's condition on pages; None without a condition."""
    check(source.warcs, folder=source.folder)
    source.check()
    size_bytes = sum(file.committed_bytes for file in source.warcs)
    if not source.where:
        progress.begin("WARC files", total=size_bytes, unit="bytes")
        yield None
        return
    with Lookup(folder / "wanted") as wanted:
        wanted.add_all(url for (url,) in source.rows("url"))
        progress.begin("WARC files", total=size_bytes, unit="bytes")
        yield wanted.__contains__


def _copy(file: WarcFile, write: Write, *, wants: Wants | None, progress: ExportProgress) -> int:
    """Copies a file and returns 1, or its wanted records and returns the number of responses."""
    if wants is None:
        copy_whole(file, write, progress=progress)
        return 1
    copied = copy_wanted(file, write, wants=wants, progress=progress)
    return sum(entry.heads.kind in ("response", "revisit") for entry in copied)


def _all(_url: str) -> bool:
    return True


# --- WACZ packages


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
    """The ZIP file, and the entries of its manifest."""

    def __init__(self, package: zipfile.ZipFile) -> None:
        self._package = package
        self.resources: list[dict[str, str | int]] = []

    @contextmanager
    def entry(self, path: str, *, is_packed: bool = False, size_bytes: int = 0) -> Iterator[_Written]:
        """A file to write; `is_packed`: already compressed; `size_bytes`: the most it may have, if known."""
        info = zipfile.ZipInfo(path, time.gmtime()[:6])
        info.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        info.file_size = size_bytes  # decides whether the entry needs ZIP64
        with self._package.open(info, "w") as stream:
            written = _Written(stream)
            yield written
        self.resources.append(written.described(path))


def _write_warc(
    package: _Package, file: WarcFile, *, wants: Wants, progress: ExportProgress
) -> Iterator[WarcEntry]:
    """Copies the wanted records of a file; without any, the package lacks the file."""
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


def _main_page(source: Selection) -> str:
    # Several starts are fetched at once, so the time does not tell the main one.
    starts = source.select("url", and_where=f"{_IS_PAGE} AND depth = 0")
    first = f"{starts} ORDER BY length(url), url LIMIT 1"
    return next((url for (url,) in source.engine.run(first).rows), "")


def _page_lines(pages: Iterable[tuple[str, str]], captures: Lookup) -> Iterator[bytes]:
    """The list of those pages, with their titles, of which the package has a response."""
    yield _json_line({"format": "json-pages-1.0", "id": "pages", "title": "All Pages"})
    for url, title in pages:
        at = captures.get(url)
        if at is not None:
            number = hashlib.sha256(url.encode()).hexdigest()[:16]
            yield _json_line({"id": number, "url": url, "ts": _rfc3339(at), "title": title or url})


def _described(
    title: str, resources: list[dict[str, str | int]], main_page: str, *, at: str | None
) -> dict[str, object]:
    """The package as its manifest describes it; `at` is when its main page was captured."""
    now = _time(datetime.now(UTC))
    stated: dict[str, object] = {
        "profile": "data-package",
        "resources": resources,
        "wacz_version": WACZ_VERSION,
        "title": title,
        "created": now,
        "modified": now,
        "software": f"sterna {__version__}",
    }
    if at:
        stated |= {"mainPageUrl": main_page, "mainPageDate": _rfc3339(at)}
    return stated


def _write_manifest(archive: zipfile.ZipFile, stated: dict[str, object]) -> None:
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
