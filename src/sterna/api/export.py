"""One export of a collection as it is now, which may be while it is crawled."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import BinaryIO

from sterna.api.query import open_collection
from sterna.export import warc
from sterna.export.job import Exported, ExportJob, check_job, workplace
from sterna.export.making import make
from sterna.export.progress import ExportProgress
from sterna.export.selection import Selection
from sterna.export.workbench import pinned
from sterna.home.folder import CollectionFolder

_SECONDS = 30 * 86_400.0  # an export may take as long as it needs


def export(
    collection: CollectionFolder,
    job: ExportJob,
    *,
    where: str = "",
    stdout: BinaryIO,
    progress: ExportProgress | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Exported:
    """Makes the export, whole or not at all; raises UsageError for an invalid job."""
    check_job(job)
    with ExitStack() as stack:
        folder = stack.enter_context(workplace(job))
        with collection.open_ledger() as ledger:
            positions = ledger.warc_positions()
        files, missing = warc.find(collection.warc_folder, positions)
        if job.kind in ("warc", "cdxj", "wacz"):
            for name in missing:
                warn(f"{name} is missing in {collection.warc_folder}: left out")
        tables = stack.enter_context(pinned(collection.snapshot().tables, beside=collection.segments_folder))
        (folder / "spill").mkdir()
        opened = open_collection(
            collection, seconds=_SECONDS, files=tables, spill_folder=folder / "spill", warn=warn
        )
        engine, progress = stack.enter_context(opened), progress or ExportProgress()
        selection = Selection(collection.folder, engine, tuple(files), where.strip(), folder, progress)
        return make(selection, job, stdout=stdout)
