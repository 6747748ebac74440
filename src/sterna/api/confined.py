"""What `sterna.Collection` does, carried out by a confined process: the caller's own stays as it is.

A collection may be a stranger's, and the program that reads it has its user's files and network. The works at
the end run in the process; what comes from there is checked here.
"""

import logging
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa

from sterna.api import search as searching
from sterna.api import status as standing
from sterna.api.query import held_memory, open_collection, open_collections
from sterna.archive.confined import frames_of, packed, table_of, unpacked
from sterna.errors import QueryError, StorageError
from sterna.export.job import ExportJob, check_job
from sterna.export.making import Exported
from sterna.export.workbench import is_stream, publish_apart
from sterna.home.folder import CollectionFolder
from sterna.model import Record
from sterna.query.answer import Answer
from sterna.query.engine import Engine
from sterna.query.output import with_distinct_names
from sterna.query.values import packed_values, unpacked_values
from sterna.runtime.cell.confined import Confined, warn_caller
from sterna.search.results import Found

_HERE = __name__
_LONG_SECONDS = 30 * 86_400.0  # an index or an export may take as long as it needs
_MORE_SECONDS = 60.0  # than a query may take, which ends by itself
_PIECE_BYTES = 1 << 20
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


class _Words(Record, frozen=True):
    folders: tuple[Path, ...]
    words: str
    limit: int
    offset: int


class _Export(Record, frozen=True):
    folder: Path
    job: ExportJob
    where: str


class _Part(Record, frozen=True):
    """Of what an export writes into a stream; the last one says what it made."""

    data: bytes = b""
    made: Exported | None = None


def query(confined: Confined, question: Question, parameters: Mapping[str, object] | None) -> Answer:
    """Raises QueryError if the query is wrong; its rows come while they are read."""
    try:
        values = packed_values(parameters or {})
    except TypeError as error:
        raise QueryError(f"parameters: {error}") from error
    asked = packed(msgspec.structs.replace(question, parameters=values))
    seconds = question.seconds + _MORE_SECONDS
    frames = confined.stream(f"{_HERE}:query_frames", asked, seconds=seconds, warn=_log.warning)
    try:
        schema = _schema(next(frames))
    except BaseException:
        frames.close()
        raise
    return Answer(schema, _tables(frames, schema))


def search(confined: Confined, folders: Sequence[Path], words: str, *, limit: int, offset: int) -> Found:
    """The pages that match best; indexes that are not there are created first."""
    asked = packed(_Words(tuple(folders), words, limit, offset))
    (frame,) = confined.stream(f"{_HERE}:search_frame", asked, seconds=_LONG_SECONDS, warn=_log.warning)
    return unpacked(frame, Found)


def status(confined: Confined, folder: Path) -> standing.Status:
    return unpacked(confined.call(f"{_HERE}:status_frame", packed(folder)), standing.Status)


def export(folder: Path, job: ExportJob, *, where: str, stdout: BinaryIO) -> Exported:
    """As api.export; a process of its own gives the output its place, and this one writes to `stdout`."""
    check_job(job)
    place = job.place if job.place == _STDOUT else job.place.absolute()
    asked = packed(_Export(folder, msgspec.structs.replace(job, place=place), where))
    with closing(_confined_export(folder, place)) as confined:
        for frame in confined.stream(
            f"{_HERE}:export_frames", asked, seconds=_LONG_SECONDS, warn=_log.warning
        ):
            part = unpacked(frame, _Part)
            if made := part.made:
                places = tuple(job.place.with_name(each.name) for each in made.places)
                return msgspec.structs.replace(made, places=places)
            stdout.write(part.data)
    raise StorageError(f"cannot write {job.place}: the export ended without a word")


def _confined_export(folder: Path, place: Path) -> Confined:
    if place == _STDOUT:
        return Confined(writable=[folder])
    if is_stream(place):
        return Confined(writable=[folder, Path(os.path.realpath(place))])
    # Checked again in the process: whether a folder is empty, or has nothing but Markdown.
    readable = [place] if place.is_dir() else []
    return Confined(*readable, writable=[folder], prepare=f"{_HERE}:bench_of", argument=str(place))


def _schema(frame: bytes) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(frame))
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"a confined process sent malformed columns: {error}") from error


def _tables(frames: Generator[bytes], schema: pa.Schema) -> Generator[pa.Table]:
    with closing(frames):
        for frame in frames:
            yield table_of(frame, schema)


# --- works


def query_frames(request: bytes) -> Iterator[bytes]:
    asked = unpacked(request, Question)
    with held_memory(asked.memory_bytes), _engine(asked) as engine:
        found = with_distinct_names(engine.run_arrow(asked.sql, unpacked_values(asked.parameters) or None))
        yield found.schema.serialize().to_pybytes()
        yield from frames_of(pa.Table.from_batches([batch]) for batch in found.batches)


def _engine(asked: Question) -> Engine:
    folders = [CollectionFolder(folder) for folder in asked.folders]
    if not asked.is_one:
        return open_collections(
            folders, memory_bytes=asked.memory_bytes, seconds=asked.seconds, warn=warn_caller
        )
    return open_collection(
        folders[0],
        visit=asked.visit,
        memory_bytes=asked.memory_bytes,
        seconds=asked.seconds,
        warn=warn_caller,
    )


def search_frame(request: bytes) -> Iterator[bytes]:
    asked = unpacked(request, _Words)
    first, *others = (CollectionFolder(folder) for folder in asked.folders)
    for folder in (first, *others):
        if not searching.has_index(folder):
            searching.bring_up(folder)
    yield packed(searching.search(first, asked.words, *others, limit=asked.limit, offset=asked.offset))


def status_frame(request: bytes) -> Iterator[bytes]:
    yield packed(standing.status(CollectionFolder(unpacked(request, Path))))


def bench_of(place: str) -> list[Path]:
    """Called before the process is confined."""
    return [publish_apart(Path(place))]


def export_frames(request: bytes) -> Iterator[bytes]:
    from sterna.api.export import export as make  # noqa: PLC0415 - loads what no query needs

    asked = unpacked(request, _Export)
    ours, theirs = os.pipe()

    def work() -> Exported:
        with os.fdopen(theirs, "wb") as stdout:
            return make(
                CollectionFolder(asked.folder), asked.job, where=asked.where, stdout=stdout, warn=warn_caller
            )

    with ThreadPoolExecutor(1) as worker, os.fdopen(ours, "rb") as source:
        made = worker.submit(work)
        while piece := source.read(_PIECE_BYTES):
            yield packed(_Part(data=piece))
        yield packed(_Part(made=made.result()))
