"""What `sterna.Collection` does, carried out by a confined process: the caller's own stays as it is.

A collection may be a stranger's, and the program that reads it has its user's files and network. What runs in
the process is in api/confined_works; what comes from there is checked here.
"""

import json
import logging
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import pyarrow as pa

from sterna.api.status import Status
from sterna.archive.frames import packed, table_of, unpacked
from sterna.errors import QueryError, StorageError, UsageError
from sterna.export.job import Exported, ExportJob, check_job
from sterna.export.workbench import is_stream
from sterna.home.folder import rights_over
from sterna.model import Record
from sterna.query.answer import Answer
from sterna.query.values import packed_values
from sterna.runtime.cell.confined import Confined
from sterna.runtime.cell.confined_process import Warn
from sterna.search.results import Found

_WORKS = "sterna.api.confined_works"  # loads what this process does not need
_LONG_SECONDS = 30 * 86_400.0  # an index or an export may take as long as it needs
_MORE_SECONDS = 60.0  # than a query may take, which ends by itself
_AHEAD_BYTES = 1 << 20  # of a query's rows that are taken before somebody reads them, and a frame more
_STDOUT = Path("-")

_log = logging.getLogger(__name__)


class Question(Record, frozen=True, kw_only=True):
    """A query of a collection, or of several as one."""

    folders: tuple[Path, ...]
    is_one: bool
    sql: str
    visit: str | None = None
    memory_bytes: int
    seconds: float
    parameters: bytes = b""


class Words(Record, frozen=True):
    folders: tuple[Path, ...]
    words: str
    limit: Annotated[int, msgspec.Meta(ge=1)]
    offset: Annotated[int, msgspec.Meta(ge=0)]


class Export(Record, frozen=True):
    folder: Path
    job: ExportJob
    where: str


class Part(Record, frozen=True):
    """Of what an export writes into a stream; the last one says what it made."""

    data: bytes = b""
    made: Exported | None = None


def query(confined: Confined, question: Question, parameters: Mapping[str, object] | None) -> Answer:
    """Raises QueryError if the query is wrong; but for the first, its rows come while they are read."""
    try:
        values = packed_values(parameters or {})
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise QueryError(f"parameters: {error}") from error
    asked = _asked(msgspec.structs.replace(question, parameters=values))
    seconds = question.seconds + _MORE_SECONDS
    frames = confined.stream(f"{_WORKS}:query_frames", asked, seconds=seconds, warn=_log.warning)
    try:
        schema = _schema(next(frames, b""))
        ahead = list(_ahead(frames))
    except BaseException:
        frames.close()
        raise
    return Answer(schema, _tables(ahead, frames, schema))


def search(confined: Confined, folders: Sequence[Path], words: str, *, limit: int, offset: int) -> Found:
    """The pages that match best; indexes that are not there are created first."""
    asked = _asked(Words(tuple(folders), words, limit, offset))
    frame = confined.call(f"{_WORKS}:search_frame", asked, seconds=_LONG_SECONDS, warn=_log.warning)
    return unpacked(frame, Found)


def status(confined: Confined, folder: Path) -> Status:
    return unpacked(confined.call(f"{_WORKS}:status_frame", packed(folder)), Status)


def export(
    folder: Path, job: ExportJob, *, where: str, stdout: BinaryIO | None, warn: Warn = _log.warning
) -> Exported:
    """As api.export; a process of its own gives the output its place, and this one writes to `stdout`.

    Only the place `-` needs that.
    """
    check_job(job)
    _asked(job)
    folder = folder.absolute()
    place = job.place if job.place == _STDOUT else job.place.absolute()
    asked = _asked(Export(folder, msgspec.structs.replace(job, place=place), where))
    with closing(_confined_export(folder, place)) as confined:
        for frame in confined.stream(f"{_WORKS}:export_frames", asked, seconds=_LONG_SECONDS, warn=warn):
            part = unpacked(frame, Part)
            if made := part.made:
                return msgspec.structs.replace(made, places=tuple(_places(made, job, place)))
            if stdout is None:
                raise StorageError(f"cannot write {job.place}: a confined process sent what belongs there")
            stdout.write(part.data)
    raise StorageError(f"cannot write {job.place}: the export ended without a word")


def _confined_export(folder: Path, place: Path) -> Confined:
    rights = rights_over(folder)
    readable, writable, published = list(rights.readable), list(rights.writable), ""
    if not is_stream(place):
        published = str(place)
        if place.is_dir():
            readable.append(place)  # it is checked there again that it is empty, or has nothing but Markdown
    elif place != _STDOUT:
        writable.append(Path(os.path.realpath(place)))
    return Confined(
        *readable,
        writable=writable,
        prepare=f"{_WORKS}:benches_of",
        argument=json.dumps([str(folder), published]),
    )


def _places(made: Exported, job: ExportJob, place: Path) -> Iterator[Path]:
    """Where the output lies, as the caller wrote it: the place, or files beside it."""
    for each in made.places:
        if each == place:
            yield job.place
        elif each.parent == place.parent and each.name not in ("", ".."):
            yield job.place.with_name(each.name)


def _asked(message: Record) -> bytes:
    """The message for the process; UsageError if a caller gave a value that it cannot have."""
    for field in msgspec.structs.fields(type(message)):
        value = getattr(message, field.name)
        try:
            msgspec.convert(value, field.type)
            packed(value)
        except (msgspec.ValidationError, UnicodeEncodeError, OverflowError) as error:
            raise UsageError(f"{field.name} {value!r} is invalid: {error}") from error
    return packed(message)


def _schema(frame: bytes) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(frame))
        str(schema)  # names are texts
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StorageError(f"a confined process sent malformed columns: {error}") from error
    return schema


def _ahead(frames: Iterator[bytes]) -> Iterator[bytes]:
    """The first frames. The process of a small result has sent all of it then, and can do something else."""
    left = _AHEAD_BYTES
    while left > 0 and (frame := next(frames, None)) is not None:
        left -= len(frame)
        yield frame


def _tables(ahead: list[bytes], frames: Generator[bytes], schema: pa.Schema) -> Generator[pa.Table]:
    with closing(frames):
        for frame in chain(ahead, frames):
            yield table_of(frame, schema)
