"""One export: what is asked for, where it goes, whether it can be made, what it made.

Loads neither DuckDB nor Arrow.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import gettempdir
from typing import get_args

from sterna.errors import UsageError
from sterna.export.progress import ExportFormat, Form
from sterna.export.workbench import bench, check_file, check_folder, is_stream
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

    main_content: bool = False  # of markdown: without menus and other frames

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
    if job.kind not in (kinds := get_args(ExportFormat)):
        raise UsageError(f"--to {job.kind} is invalid: {', '.join(kinds[:-1])} or {kinds[-1]}")
    if job.table != "page" and job.kind not in _ROWS:
        raise UsageError(f"--table goes with --to {', '.join(_ROWS)}: --to {job.kind} is made of pages")
    if job.base and job.kind != "sitemap":
        raise UsageError("--base goes with --to sitemap")
    if job.safe_cells and job.kind != "csv":
        raise UsageError(f"--safe-cells goes with --to csv, not with --to {job.kind}")
    if job.main_content and job.kind != "markdown":
        raise UsageError(f"--main-content goes with --to markdown, not with --to {job.kind}")
    if job.is_stream:
        if job.kind in ("wacz", "markdown"):
            raise UsageError(f"--to {job.kind} needs a file or folder, not a pipe: name it with --out")
    elif job.kind == "wacz" and job.place.suffix != ".wacz":
        raise UsageError(f"--out {job.place}: the name of a WACZ file must end with .wacz")
    elif job.is_folder:
        check_folder(job.place, force=job.force and job.kind == "markdown")
    else:
        check_file(job.place, force=job.force)


def workplace(job: ExportJob) -> AbstractContextManager[Path]:
    """A folder for unfinished output and for data that exceeds memory."""
    return bench(Path(gettempdir()) / "sterna-export" if job.is_stream else job.place)
