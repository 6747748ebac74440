"""One export: what is asked for, whether it can be made, and the file or folder in the end."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import BinaryIO, Literal, get_args

from sterna.archive.disk import storage_errors
from sterna.errors import UsageError
from sterna.export import raw
from sterna.export.folder import write_folder
from sterna.export.progress import ExportProgress
from sterna.export.selection import Selection
from sterna.export.tables import Form, make_sitemap, write_rows
from sterna.export.workbench import bench, check_file, check_folder, is_stream, publish
from sterna.model import Record

ExportFormat = Literal["jsonl", "parquet", "csv", "warc", "cdxj", "wacz", "sitemap", "markdown"]
_ENDINGS: dict[ExportFormat, str] = {
    "jsonl": ".jsonl",
    "parquet": ".parquet",
    "csv": ".csv",
    "warc": ".warc.gz",
    "cdxj": ".cdxj",
    "wacz": ".wacz",
    "sitemap": "-sitemap.xml",
    "markdown": "-markdown",
}
_ROWS = get_args(Form)


class ExportJob(Record, frozen=True, kw_only=True):
    """What to make, and where; `place` may be `-`."""

    kind: ExportFormat
    place: Path
    table: str = "page"
    base: str = ""  # of a sitemap: the URL of the folder in which it will be served
    force: bool = False

    @property
    def is_stream(self) -> bool:
        return is_stream(self.place)

    @property
    def is_folder(self) -> bool:
        """True for many files in a folder of their own."""
        is_warc_file = self.is_stream or self.place.name.endswith(_ENDINGS["warc"])
        return self.kind == "markdown" or (self.kind == "warc" and not is_warc_file)


class Exported(Record, frozen=True):
    """What an export made: `count` of what `noun` names, in these places."""

    count: int
    noun: str
    places: tuple[Path, ...] = ()
    size_bytes: int = 0


def default_place(kind: ExportFormat, *, name: str, table: str = "page") -> Path:
    """Where an export goes by default: into the current folder, under the collection's name."""
    return Path(f"{name}{'' if table == 'page' else f'-{table}'}{_ENDINGS[kind]}")


def check_job(job: ExportJob) -> None:
    """UsageError if options contradict each other, or the place is taken or unsuitable."""
    if job.table != "page" and job.kind not in _ROWS:
        raise UsageError(f"--table goes with --to {', '.join(_ROWS)}: --to {job.kind} is made of pages")
    if job.base and job.kind != "sitemap":
        raise UsageError("--base goes with --to sitemap")
    if job.is_stream:
        if job.kind in ("wacz", "markdown"):
            raise UsageError(f"--to {job.kind} needs a file or folder, not a pipe: name it with --out")
    elif job.kind == "wacz" and job.place.suffix != ".wacz":
        raise UsageError(f"--out {job.place}: the name of a WACZ file must end with .wacz")
    elif job.is_folder:
        check_folder(job.place)
    else:
        check_file(job.place, force=job.force)


@contextmanager
def workplace(job: ExportJob) -> Iterator[Path]:
    """A folder for unfinished output and for data that exceeds memory."""
    with bench(Path(gettempdir()) / "sterna-export" if job.is_stream else job.place) as folder:
        yield folder


def make(
    source: Selection, job: ExportJob, *, folder: Path, stdout: BinaryIO, progress: ExportProgress
) -> Exported:
    """Makes the export; `folder` is its workplace."""
    if job.is_folder:
        return _make_folder(source, job, folder=folder, progress=progress)
    if job.kind == "sitemap":
        return _make_sitemap(source, job, folder=folder, stdout=stdout, progress=progress)
    if job.is_stream:
        with _stream_errors(job.place), _stream(job.place, stdout) as out:
            return _write(source, job, out, folder=folder, progress=progress)
    made = folder / "made"
    with storage_errors(job.place.absolute().parent):
        with made.open("xb") as file:
            written = _write(source, job, file, folder=folder, progress=progress)
        size_bytes = made.stat().st_size
    publish(made, job.place, force=job.force)
    return Exported(written.count, written.noun, (job.place,), size_bytes)


def _write(
    source: Selection, job: ExportJob, out: BinaryIO, *, folder: Path, progress: ExportProgress
) -> Exported:
    match job.kind:
        case "jsonl" | "csv" | "parquet" as form:
            if form == "parquet" and out.isatty():
                raise UsageError("parquet is binary: add --out FILE, or pipe it into another program")
            return Exported(write_rows(source, out, table=job.table, form=form, progress=progress), "row")
        case "warc":
            return Exported(*raw.write_warc(source, out, folder=folder, progress=progress))
        case "cdxj":
            return Exported(raw.write_cdxj(source, out, folder=folder, progress=progress), "response")
        case "wacz":
            return Exported(raw.write_wacz(source, out, folder=folder, progress=progress), "response")
        case _:
            raise ValueError(f"{job.kind} is not made of one stream")


def _make_folder(source: Selection, job: ExportJob, *, folder: Path, progress: ExportProgress) -> Exported:
    made = folder / "made"
    with storage_errors(job.place.absolute().parent):
        if job.kind == "markdown":
            counted = (write_folder(source, made, scratch=folder, progress=progress), "page")
        else:
            counted = raw.write_warcs(source, made, folder=folder, progress=progress)
        size_bytes = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    publish(made, job.place)
    return Exported(*counted, (job.place,), size_bytes)


def _make_sitemap(
    source: Selection, job: ExportJob, *, folder: Path, stdout: BinaryIO, progress: ExportProgress
) -> Exported:
    name = "sitemap.xml" if job.is_stream else job.place.name
    with storage_errors(folder.parent):
        made, count = make_sitemap(source, folder / name, base=job.base, progress=progress)
    if job.is_stream:
        if len(made) > 1:
            raise UsageError(f"the sitemap takes {len(made)} files: name its place with --out")
        with _stream_errors(job.place), _stream(job.place, stdout) as out, made[0].open("rb") as file:
            shutil.copyfileobj(file, out)
        return Exported(count, "page")
    places = [job.place.with_name(path.name) for path in made]
    for place in places:
        check_file(place, force=job.force)
    size_bytes = sum(path.stat().st_size for path in made)
    # The index comes last: it must not name files that do not exist yet.
    for path, place in reversed(list(zip(made, places, strict=True))):
        publish(path, place, force=job.force)
    return Exported(count, "page", tuple(places), size_bytes)


@contextmanager
def _stream(place: Path, stdout: BinaryIO) -> Iterator[BinaryIO]:
    if place == Path("-"):
        yield stdout
        stdout.flush()
        return
    with place.open("wb") as stream:
        yield stream


@contextmanager
def _stream_errors(place: Path) -> Iterator[None]:
    """As `storage_errors`, but a reader that closed the pipe is no disk error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        with storage_errors(place):
            raise error from None
