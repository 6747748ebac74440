"""What a confined process does for `sterna.Collection`: api/confined asks it to."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from sterna.api import search, status
from sterna.api.confined import Export, Part, Question, Words
from sterna.api.query import held_memory, open_collection, open_collections
from sterna.archive.frames import frames_of, packed, unpacked
from sterna.export.job import Exported
from sterna.export.workbench import end_publishers, pin_apart, publish_apart
from sterna.home.folder import CollectionFolder
from sterna.query.engine import Engine
from sterna.query.output import with_distinct_names
from sterna.query.values import unpacked_values
from sterna.runtime.cell.confined_process import warn_caller

_PIECE_BYTES = 1 << 20


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
    asked = unpacked(request, Words)
    first, *others = (CollectionFolder(folder) for folder in asked.folders)
    for folder in (first, *others):
        if not search.has_index(folder):
            search.bring_up(folder)
    yield packed(search.search(first, asked.words, *others, limit=asked.limit, offset=asked.offset))


def status_frame(request: bytes) -> Iterator[bytes]:
    yield packed(status.status(CollectionFolder(unpacked(request, Path))))


def benches_of(argument: str) -> list[Path]:
    """Called before the process is confined: what it may write of its output."""
    folder, place = json.loads(argument)
    benches = [publish_apart(Path(place))] if place else []
    pin_apart(CollectionFolder(Path(folder)).segments_folder)
    return benches


def export_frames(request: bytes) -> Iterator[bytes]:
    from sterna.api.export import export  # noqa: PLC0415 - loads what no query needs

    asked = unpacked(request, Export)
    ours, theirs = os.pipe()

    def work() -> Exported:
        with os.fdopen(theirs, "wb") as stdout:
            return export(
                CollectionFolder(asked.folder), asked.job, where=asked.where, stdout=stdout, warn=warn_caller
            )

    try:
        with ThreadPoolExecutor(1) as worker, os.fdopen(ours, "rb") as source:
            made = worker.submit(work)
            while piece := source.read(_PIECE_BYTES):
                yield packed(Part(data=piece))
            result = made.result()
    finally:
        end_publishers()  # which remove their benches
    yield packed(Part(made=result))
