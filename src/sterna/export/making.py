"""The file or folder of an export, made on its bench and published."""

import shutil
from typing import BinaryIO

from sterna.archive.disk import storage_errors
from sterna.errors import UsageError
from sterna.export import raw
from sterna.export.folder import write_folder
from sterna.export.job import Exported, ExportJob
from sterna.export.selection import Selection
from sterna.export.tables import make_sitemap, write_rows
from sterna.export.workbench import check_file, open_stream, publish


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
            counted = write_folder(source, made, is_main=job.main_content), "page"
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
