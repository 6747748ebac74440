"""One export: what is asked for, whether it can be made, and the file or folder in the end."""

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import gettempdir
from typing import BinaryIO, get_args

from sterna.archive.disk import storage_errors
from sterna.errors import UsageError
from sterna.export import raw
from sterna.export.folder import write_folder
from sterna.export.progress import ExportFormat
from sterna.export.selection import Selection
from sterna.export.tables import Form, make_sitemap, write_rows
from sterna.export.workbench import bench, check_file, check_folder, is_stream, open_stream, publish
from sterna.model import Record

# Of others it is the name of the format.
_ENDINGS = {"warc": ".warc.gz", "sitemap": "-sitemap.xml", "markdown": "-markdown"}
_ROWS = get_args(Form)


class ExportJob(Record, frozen=True, kw_only=True):
    """What to make, and where; `place` may be `-`."""

    kind: ExportFormat
    place: Path
    table: str = "page"
    base: str = ""  # of a sitemap: the URL of the folder in which it will be served
    force: bool = False
    safe_cells: bool = False  # of csv: no spreadsheet takes a text for a formula

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
    return Path(f"{name}{'' if table == 'page' else f'-{table}'}{_ENDINGS.get(kind, f'.{kind}')}")


def check_job(job: ExportJob) -> None:
    """UsageError if options contradict each other, or the place is taken or unsuitable."""
    if job.table != "page" and job.kind not in _ROWS:
        raise UsageError(f"--table goes with --to {', '.join(_ROWS)}: --to {job.kind} is made of pages")
    if job.base and job.kind != "sitemap":
        raise UsageError("--base goes with --to sitemap")
    if job.safe_cells and job.kind != "csv":
        raise UsageError(f"--safe-cells goes with --to csv, not with --to {job.kind}")
    if job.is_stream:
        if job.kind in ("wacz", "markdown"):
            raise UsageError(f"--to {job.kind} needs a file or folder, not a pipe: name it with --out")
    elif job.kind == "wacz" and job.place.suffix != ".wacz":
        raise UsageError(f"--out {job.place}: the name of a WACZ file must end with .wacz")
    elif job.is_folder:
        check_folder(job.place)
    else:
        check_file(job.place, force=job.force)


def workplace(job: ExportJob) -> AbstractContextManager[Path]:
    """A folder for unfinished output and for data that exceeds memory."""
    return bench(Path(gettempdir()) / "sterna-export" if job.is_stream else job.place)


def make(source: Selection, job: ExportJob, *, stdout: BinaryIO) -> Exported:
    """Makes the export in the source's scratch folder, and publishes it."""
    if job.kind == "sitemap":
        return _make_sitemap(source, job, stdout)
    if job.is_stream:
        with open_stream(job.place, stdout=stdout) as out:
            return Exported(*_write(source, job, out))
    made = source.scratch / "made"
    with storage_errors(job.place.absolute().parent):
        if job.kind == "markdown":
            counted = write_folder(source, made), "page"
        elif job.is_folder:
            counted = raw.write_warcs(source, made)
        else:
            with made.open("xb") as file:
                counted = _write(source, job, file)
        files = [made, *made.rglob("*")]
        size_bytes = sum(path.stat().st_size for path in files if path.is_file())
    publish(made, job.place, force=job.force)
    return Exported(*counted, (job.place,), size_bytes)


def _write(source: Selection, job: ExportJob, out: BinaryIO) -> tuple[int, str]:
    """Writes what is made of one stream, and returns how many of what it has."""
    match job.kind:
        case "jsonl" | "csv" | "parquet" as form:
            if form == "parquet" and out.isatty():
                raise UsageError("parquet is binary: add --out FILE, or pipe it into another program")
            rows = write_rows(source, out, table=job.table, form=form, safe_cells=job.safe_cells)
            return rows, "row"
        case "warc":
            return raw.write_warc(source, out)
        case "cdxj":
            return raw.write_cdxj(source, out), "response"
        case "wacz":
            return raw.write_wacz(source, out), "response"
        case _:
            raise ValueError(f"{job.kind} is not made of one stream")


def _make_sitemap(source: Selection, job: ExportJob, stdout: BinaryIO) -> Exported:
    name = "sitemap.xml" if job.is_stream else job.place.name
    with storage_errors(source.scratch.parent):
        made, count = make_sitemap(source, source.scratch / name, base=job.base)
    if job.is_stream:
        if len(made) > 1:
            raise UsageError(f"the sitemap takes {len(made)} files: name its place with --out")
        with open_stream(job.place, stdout=stdout) as out, made[0].open("rb") as file:
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
