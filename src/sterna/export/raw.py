"""What was answered, as it came: exports that are made of WARC files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sterna.export.cdxj import index_line
from sterna.export.progress import Progress
from sterna.export.selection import Source
from sterna.export.sorting import Sorter
from sterna.export.spill import Lookup
from sterna.export.wacz import About, Listed, write_wacz
from sterna.export.warc import Wants, WarcFile, Write, check, copy_wanted, copy_whole, entries
from sterna.version import __version__

_IS_PAGE = "status = 200 AND content_type IN ('text/html', 'application/xhtml+xml')"
_LISTED = "url, coalesce(title, '')"


def write_warc(source: Source, out: BinaryIO, *, folder: Path, progress: Progress) -> tuple[int, str]:
    """Writes all records one after the other; tells how many files, or answers, these are."""
    with _begun(source, folder, progress) as wants:
        counts = [_copy(file, out.write, wants=wants, progress=progress) for file in source.warcs]
    return (sum(counts), "response") if wants else (len(counts), "WARC file")


def write_warcs(source: Source, made: Path, *, folder: Path, progress: Progress) -> tuple[int, str]:
    """Writes the files of the collection into a folder; those without a wanted record are left out."""
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


def write_cdxj(source: Source, out: BinaryIO, *, folder: Path, progress: Progress) -> int:
    """Writes the index of all files, and tells how many answers there are."""
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


def write_package(source: Source, out: BinaryIO, *, folder: Path, progress: Progress) -> int:
    """Writes a WACZ package, and tells how many answers it holds."""
    with _begun(source, folder, progress) as wants:
        # Several starts are fetched at once, so time does not tell the main one.
        starts = source.select("url", and_where=f"{_IS_PAGE} AND depth = 0")
        first = f"{starts} ORDER BY length(url), url LIMIT 1"
        about = About(
            title=source.name,
            software=f"sterna {__version__}",
            main_page=next((url for (url,) in source.engine.run(first).rows), ""),
        )
        pages = (Listed(*row) for row in source.rows(_LISTED, and_where=_IS_PAGE))
        return write_wacz(
            out,
            source.warcs,
            wants=wants or _all,
            pages=pages,
            about=about,
            folder=folder,
            progress=progress,
        )


@contextmanager
def _begun(source: Source, folder: Path, progress: Progress) -> Iterator[Wants | None]:
    """Which URLs are wanted, by the user's condition on their pages; None where there is no condition."""
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


def _copy(file: WarcFile, write: Write, *, wants: Wants | None, progress: Progress) -> int:
    """Copies a file, or what is wanted of it; tells how many answers that is, or 1 for a whole file."""
    if wants is None:
        copy_whole(file, write, progress=progress)
        return 1
    copied = copy_wanted(file, write, wants=wants, progress=progress)
    return sum(entry.heads.kind in ("response", "revisit") for entry in copied)


def _all(_url: str) -> bool:
    return True
