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
from typing import BinaryIO

from sterna.errors import UsageError, command
from sterna.export.cdxj import blocks, index_line, timestamp
from sterna.export.progress import ExportProgress
from sterna.export.selection import Selection
from sterna.export.spill import Lookup
from sterna.export.warc import Wants, WarcEntry, WarcFile, Write, copy_wanted, copy_whole, entries
from sterna.version import __version__
from sterna.web.sitemap_file import xml_time

_IS_PAGE = "status = 200 AND content_type IN ('text/html', 'application/xhtml+xml')"
_LISTED = "url, coalesce(title, '')"
WACZ_VERSION = "1.1.1"
_INDEX = "index.cdx.gz"


def write_warc(source: Selection, out: BinaryIO) -> tuple[int, str]:
    """Writes all records; returns the number of files, or of responses if there is a condition."""
    with _begun(source) as wants:
        counts = [_copy(file, out.write, wants=wants, progress=source.progress) for file in source.warcs]
    return (sum(counts), "response") if wants else (len(counts), "WARC file")


def write_warcs(source: Selection, made: Path) -> tuple[int, str]:
    """Copies the files into a folder; those without a wanted record are left out."""
    made.mkdir()
    count = 0
    with _begun(source) as wants:
        for file in source.warcs:
            path = made / file.name
            with path.open("xb") as out:
                copied = _copy(file, out.write, wants=wants, progress=source.progress)
            count += copied
            if not copied:
                path.unlink()
    return count, "response" if wants else "WARC file"


def write_cdxj(source: Selection, out: BinaryIO) -> int:
    """Writes the index of all files, and returns the number of responses."""
    count = 0
    with _begun(source) as wants, Lookup(source.scratch / "index") as index:
        for file in source.warcs:
            for entry in entries(file, progress=source.progress):
                line = index_line(entry, filename=file.name)
                if line and (wants is None or wants(entry.heads.url)):
                    count += index.add(line)
        out.writelines(line.encode() for line in index)
    return count


def write_wacz(source: Selection, out: BinaryIO) -> int:
    """Writes a WACZ package and returns the number of its responses."""
    with (
        _begun(source) as wants,
        zipfile.ZipFile(out, "w", allowZip64=True) as archive,
        Lookup(source.scratch / "captures") as captures,
        Lookup(source.scratch / "index") as index,
    ):
        package, count = _Package(archive), 0
        for file in source.warcs:
            for copied in _write_warc(package, file, wants=wants, progress=source.progress):
                if line := index_line(copied, filename=file.name):
                    if copied.heads.kind == "response":
                        captures.put_newest(copied.heads.url, timestamp(copied.heads))
                    count += index.add(line)
        _write_index(package, index)
        with package.entry("pages/pages.jsonl") as write:
            for listed in _page_lines(source.rows(_LISTED, and_where=_IS_PAGE), captures):
                write(listed)
        _write_manifest(package, source, captures)
    return count


@contextmanager
def _begun(source: Selection) -> Iterator[Wants | None]:
    """Which URLs are wanted, by the user's condition on pages; None without a condition."""
    if not source.warcs:
        raise UsageError(
            f"{source.folder} has no WARC files, which a crawl writes with --warc: visit the pages again"
            f" by '{command('crawl', '--into', source.folder, '--warc', '--refresh', '1s')}'"
        )
    source.check()
    with Lookup(source.scratch / "wanted") as wanted:
        if source.where:
            wanted.add_all(url for (url,) in source.rows("url"))
        size_bytes = sum(file.committed_bytes for file in source.warcs)
        source.progress.begin("WARC files", total=size_bytes, unit="bytes")
        yield wanted.__contains__ if source.where else None


def _copy(file: WarcFile, write: Write, *, wants: Wants | None, progress: ExportProgress) -> int:
    """Copies a file and returns 1, or its wanted records and returns the number of responses."""
    if wants is None:
        copy_whole(file, write, progress=progress)
        return 1
    copied = copy_wanted(file, write, wants=wants, progress=progress)
    return sum(entry.heads.kind in ("response", "revisit") for entry in copied)


# --- WACZ packages


class _Package:
    """The ZIP file, and the entries of its manifest."""

    def __init__(self, package: zipfile.ZipFile) -> None:
        self._package = package
        self.resources: list[dict[str, str | int]] = []

    @contextmanager
    def entry(self, path: str, *, is_packed: bool = False, size_bytes: int = 0) -> Iterator[Write]:
        """A file to write; `is_packed`: already compressed; `size_bytes`: the most it may have, if known."""
        info = zipfile.ZipInfo(path, time.gmtime()[:6])
        info.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        info.file_size = size_bytes  # decides whether the entry needs ZIP64
        hasher, written_bytes = hashlib.sha256(), 0
        with self._package.open(info, "w") as stream:

            def write(data: bytes) -> None:
                nonlocal written_bytes
                stream.write(data)
                hasher.update(data)
                written_bytes += len(data)

            yield write
        name, digest = path.rpartition("/")[2].lower(), f"sha256:{hasher.hexdigest()}"
        self.resources.append({"name": name, "path": path, "hash": digest, "bytes": written_bytes})


def _write_warc(
    package: _Package, file: WarcFile, *, wants: Wants | None, progress: ExportProgress
) -> Iterator[WarcEntry]:
    """Copies the wanted records of a file; without any, the package lacks the file."""
    with ExitStack() as opened:
        begun: list[Write] = []

        def write(data: bytes) -> None:
            if not begun:
                path = f"archive/{file.name}"
                entry = package.entry(path, is_packed=True, size_bytes=file.committed_bytes)
                begun.append(opened.enter_context(entry))
            begun[0](data)

        yield from copy_wanted(file, write, wants=wants, progress=progress)


def _write_index(package: _Package, lines: Iterable[str]) -> None:
    pointers: list[str] = []
    with package.entry(f"indexes/{_INDEX}", is_packed=True) as write:
        for data, pointer in blocks(lines, filename=_INDEX):
            write(data)
            pointers.append(pointer)
    with package.entry("indexes/index.idx") as write:
        write("".join(pointers).encode())


def _page_lines(pages: Iterable[tuple[str, str]], captures: Lookup) -> Iterator[bytes]:
    """The list of those pages, with their titles, of which the package has a response."""
    yield b'{"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}\n'
    for url, title in pages:
        at = captures.get(url)
        if at is not None:
            number = hashlib.sha256(url.encode()).hexdigest()[:16]
            listed = {"id": number, "url": url, "ts": _rfc3339(at), "title": title or url}
            yield json.dumps(listed).encode() + b"\n"


def _write_manifest(package: _Package, source: Selection, captures: Lookup) -> None:
    # Several starts are fetched at once, so the time does not tell the main one.
    starts = source.select("url", and_where=f"{_IS_PAGE} AND depth = 0")
    first = source.engine.run(f"{starts} ORDER BY length(url), url LIMIT 1")
    main_page = next((url for (url,) in first.rows), "")
    now = xml_time(time.time())
    stated = {
        "profile": "data-package",
        "resources": package.resources,
        "wacz_version": WACZ_VERSION,
        "title": source.name,
        "created": now,
        "modified": now,
        "software": f"sterna {__version__}",
    }
    if at := captures.get(main_page):
        stated |= {"mainPageUrl": main_page, "mainPageDate": _rfc3339(at)}
    manifest = json.dumps(stated, indent=2).encode()
    digest = {"path": "datapackage.json", "hash": f"sha256:{hashlib.sha256(manifest).hexdigest()}"}
    with package.entry("datapackage.json") as write:
        write(manifest)
    with package.entry("datapackage-digest.json") as write:
        write(json.dumps(digest, indent=2).encode())


def _rfc3339(at: str) -> str:
    return xml_time(datetime.strptime(at, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp())
