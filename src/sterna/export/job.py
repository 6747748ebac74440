"""An export from its wish to what lies there in the end."""

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
from sterna.export.progress import Progress
from sterna.export.rows import Form, write_rows
from sterna.export.selection import Source
from sterna.export.sitemap import make_sitemap
from sterna.export.workbench import bench, check_file, check_folder, is_stream, publish
from sterna.model import Record

Kind = Literal["jsonl", "parquet", "csv", "warc", "cdxj", "wacz", "sitemap", "markdown"]
_ENDINGS: dict[Kind, str] = {
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


class Wish(Record, frozen=True, kw_only=True):
    """What is to be made, and where; `place` may be `-`."""

    kind: Kind
    place: Path
    table: str = "page"
    base: str = ""  # of a sitemap: the URL of the folder in which it will be served
    force: bool = False

    @property
    def is_stream(self) -> bool:
        return is_stream(self.place)

    @property
    def is_folder(self) -> bool:
        """True where many files are made in a folder of their own."""
        is_warc_file = self.is_stream or self.place.name.endswith(_ENDINGS["warc"])
        return self.kind == "markdown" or (self.kind == "warc" and not is_warc_file)


class Made(Record, frozen=True):
    """What an export made: so many of these, here."""

    count: int
    noun: str
    places: tuple[Path, ...] = ()
    size_bytes: int = 0


def default_place(kind: Kind, *, name: str, table: str = "page") -> Path:
    """Where an export goes if nobody says it: into this folder, under the collection's name."""
    return Path(f"{name}{'' if table == 'page' else f'-{table}'}{_ENDINGS[kind]}")


def check_wish(wish: Wish) -> None:
    """UsageError for what cannot be made, or may not lie where it is wanted."""
    if wish.table != "page" and wish.kind not in _ROWS:
        raise UsageError(f"--table goes with --to {', '.join(_ROWS)}: --to {wish.kind} is made of pages")
    if wish.base and wish.kind != "sitemap":
        raise UsageError("--base goes with --to sitemap")
    if wish.is_stream:
        if wish.kind in ("wacz", "markdown"):
            raise UsageError(f"--to {wish.kind} cannot go into a pipe: name its place with --out")
    elif wish.kind == "wacz" and wish.place.suffix != ".wacz":
        raise UsageError(f"--out {wish.place}: the name of such a file ends with .wacz")
    elif wish.is_folder:
        check_folder(wish.place)
    else:
        check_file(wish.place, force=wish.force)


@contextmanager
def workplace(wish: Wish) -> Iterator[Path]:
    """A folder for what is being made, and for what does not fit into memory on the way."""
    with bench(Path(gettempdir()) / "sterna-export" if wish.is_stream else wish.place) as folder:
        yield folder


def make(source: Source, wish: Wish, *, folder: Path, stdout: BinaryIO, progress: Progress) -> Made:
    """Makes what is wished for; `folder` is its workplace."""
    if wish.is_folder:
        return _make_folder(source, wish, folder=folder, progress=progress)
    if wish.kind == "sitemap":
        return _make_sitemap(source, wish, folder=folder, stdout=stdout, progress=progress)
    if wish.is_stream:
        with _stream_errors(wish.place), _stream(wish.place, stdout) as out:
            return _write(source, wish, out, folder=folder, progress=progress)
    made = folder / "made"
    with storage_errors(wish.place.absolute().parent):
        with made.open("xb") as file:
            written = _write(source, wish, file, folder=folder, progress=progress)
        size_bytes = made.stat().st_size
    publish(made, wish.place, force=wish.force)
    return Made(written.count, written.noun, (wish.place,), size_bytes)


def _write(source: Source, wish: Wish, out: BinaryIO, *, folder: Path, progress: Progress) -> Made:
    match wish.kind:
        case "jsonl" | "csv" | "parquet" as form:
            if form == "parquet" and out.isatty():
                raise UsageError("parquet is not for a terminal: add --out FILE, or send it into a pipe")
            return Made(write_rows(source, out, table=wish.table, form=form, progress=progress), "row")
        case "warc":
            return Made(*raw.write_warc(source, out, folder=folder, progress=progress))
        case "cdxj":
            return Made(raw.write_cdxj(source, out, folder=folder, progress=progress), "response")
        case "wacz":
            return Made(raw.write_package(source, out, folder=folder, progress=progress), "response")
        case _:
            raise ValueError(f"{wish.kind} is not made of one stream")


def _make_folder(source: Source, wish: Wish, *, folder: Path, progress: Progress) -> Made:
    made = folder / "made"
    with storage_errors(wish.place.absolute().parent):
        if wish.kind == "markdown":
            counted = (write_folder(source, made, scratch=folder, progress=progress), "page")
        else:
            counted = raw.write_warcs(source, made, folder=folder, progress=progress)
        size_bytes = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    publish(made, wish.place)
    return Made(*counted, (wish.place,), size_bytes)


def _make_sitemap(source: Source, wish: Wish, *, folder: Path, stdout: BinaryIO, progress: Progress) -> Made:
    name = "sitemap.xml" if wish.is_stream else wish.place.name
    with storage_errors(folder.parent):
        made, count = make_sitemap(source, folder / name, base=wish.base, progress=progress)
    if wish.is_stream:
        if len(made) > 1:
            raise UsageError(f"the sitemap takes {len(made)} files: name its place with --out")
        with _stream_errors(wish.place), _stream(wish.place, stdout) as out, made[0].open("rb") as file:
            shutil.copyfileobj(file, out)
        return Made(count, "page")
    places = [wish.place.with_name(path.name) for path in made]
    for place in places:
        check_file(place, force=wish.force)
    size_bytes = sum(path.stat().st_size for path in made)
    # The file that names the others comes last: nobody reads of a file that is not there yet.
    for path, place in reversed(list(zip(made, places, strict=True))):
        publish(path, place, force=wish.force)
    return Made(count, "page", tuple(places), size_bytes)


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
    """As for files, but that a reader who is gone is no fault of the disk."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        with storage_errors(place):
            raise error from None
