"""Repair of a collection with all that follows it: its search index, and positions of its followers."""

import time
from contextlib import suppress
from typing import NamedTuple

import msgspec

from sterna.api.search import bring_up
from sterna.archive.disk import ASIDE, OnStep, ignore_step, set_aside
from sterna.errors import IndexUnusable
from sterna.home.folder import CollectionFolder
from sterna.home.repair.records import Finding, Repaired, RepairProgress
from sterna.home.repair.repair import repair as repair_home
from sterna.search import generations


class _IndexState(NamedTuple):
    damage: str
    batch: int


def repair(
    collection: CollectionFolder,
    *,
    is_dry_run: bool = False,
    progress: RepairProgress | None = None,
    on_step: OnStep = ignore_step,
) -> Repaired:
    """Examines every part of a collection, mends what can be, sets the rest aside, and loses no good row.

    With `is_dry_run` it only tells. Raises NotACollection, CollectionInUse, StorageError.
    """
    progress = progress or RepairProgress()
    progress.begin("search index")
    index = _examine_index(collection)
    positions = max(index.batch, _stored_batch(collection))
    made = repair_home(
        collection,
        now=time.time(),
        positions=positions,
        is_dry_run=is_dry_run,
        progress=progress,
        on_step=on_step,
    )
    damage = index.damage
    if index.batch == positions and any(each.part == "position" for each in made.findings):
        damage = "it is ahead of the archive"
    if not damage:
        return made
    finding = Finding("index", "index/", damage, f"made anew from the archive; the old one moved to {ASIDE}/")
    if not is_dry_run:
        _renew_index(collection, progress)
    return msgspec.structs.replace(made, findings=(*made.findings, finding))


def _examine_index(collection: CollectionFolder) -> _IndexState:
    try:
        batch = generations.examine(collection.index_folder)
    except IndexUnusable as error:
        return _IndexState(error.reason, 0)
    return _IndexState("", batch or 0)


def _stored_batch(collection: CollectionFolder) -> int:
    """The farthest batch of any storage rule, as it was last noted."""
    if not collection.storage_path.exists():
        return 0
    with suppress(ModuleNotFoundError):  # without the extra nothing was ever stored from here
        from sterna.storage.status import NAME, read_status  # noqa: PLC0415 - slow to load

        status = read_status(collection.folder / NAME)
        return max((standing.batch for standing in status.rules), default=0) if status else 0
    return 0


def _renew_index(collection: CollectionFolder, progress: RepairProgress) -> None:
    progress.begin("search index")
    with generations.writing(collection.index_folder):
        set_aside(collection.index_folder, collection.aside_folder)
    bring_up(collection)
