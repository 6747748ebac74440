"""`-o` of `crawl` and `ask`: which kind of file, by the ending of its name."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.cli.flags import option
from sterna.cli.lines import bytes_text, plural, warn
from sterna.errors import UsageError
from sterna.export.job import ExportJob, check_job, workplace
from sterna.export.progress import ExportFormat
from sterna.export.workbench import publish
from sterna.home.folder import CollectionFolder

if TYPE_CHECKING:
    from sterna.query.engine import Engine

_KINDS: dict[str, ExportFormat] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}


def out_option(what: str, *, panel: str | None = None) -> object:
    text = f"Write {what} here as well: FILE.jsonl, FILE.csv, FILE.parquet, or FOLDER/ for Markdown."
    return option("FILE|FOLDER/", text, "--out", "-o", panel=panel)


def job_of(written: str) -> ExportJob:
    """What to write where; an earlier output is replaced. UsageError for another kind or place."""
    place = Path(written)
    kind = _KINDS.get(place.suffix.lower())
    if written.endswith("/") or place.is_dir():
        kind = "markdown"
    if kind is None:
        raise UsageError(f"-o {written}: write FILE.jsonl, FILE.csv or FILE.parquet, or FOLDER/ for Markdown")
    job = ExportJob(kind=kind, place=place, force=True)
    check_job(job)
    return job


def write_pages(collection: CollectionFolder, job: ExportJob) -> str:
    """Writes the pages of a collection, and says what was written."""
    from sterna.api.confined import export  # noqa: PLC0415 - Arrow is slow to load

    made = export(collection.folder, job, where="", stdout=sys.stdout.buffer, warn=warn)
    return written(made.count, made.noun, job)


def written(count: int, noun: str, job: ExportJob) -> str:
    """What lies where, and how large it is."""
    place = job.place
    files = (path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    size_bytes = sum(path.stat().st_size for path in files)
    return f"{plural(count, noun)} -> {place} ({bytes_text(size_bytes)})"


def write_rows_as_markdown(engine: "Engine", sql: str, job: ExportJob) -> int:
    """A file for each row of a query that has `url` and `text`; returns their number."""
    from sterna.export.folder import write_answer  # noqa: PLC0415 - see above

    with workplace(job) as bench:
        count = write_answer(engine.run(sql), bench / "made", scratch=bench)
        publish(bench / "made", job.place, force=job.force)
    return count
