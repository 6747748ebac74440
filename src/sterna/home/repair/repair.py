"""Repair of a collection: survey, plan, and the steps that carry the plan out.

Each step leaves the collection so that a repair after a kill goes on: files come under their names when they
are complete, the ledger is exchanged after them, and what is no longer named is set aside last.
"""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from sterna.archive.disk import (
    TEMPORARY,
    OnStep,
    begin_file,
    ignore_step,
    set_aside,
    storage_errors,
    sync_folder,
)
from sterna.archive.examination import Examined, chosen_rows, good_rows
from sterna.archive.manifest import TABLES, Contents, Origin, Segment
from sterna.archive.segments import SegmentStore
from sterna.archive.warc import cut_off
from sterna.archive.warc_scan import good_members
from sterna.errors import CollectionInUse, NotACollection
from sterna.home.folder import MARKER, CollectionFolder
from sterna.home.repair.plan import Base, Mend, Plan, WarcPlan, make_plan
from sterna.home.repair.rebuilding import Rebuilt, rebuild
from sterna.home.repair.records import Repaired, RepairProgress
from sterna.home.repair.survey import Survey, survey
from sterna.web.sqlite import connect

_LOG, _SHARED = "-wal", "-shm"  # the endings of SQLite's files beside a ledger


def repair(
    collection: CollectionFolder,
    *,
    now: float,
    positions: int = 0,
    is_dry_run: bool = False,
    progress: RepairProgress | None = None,
    on_step: OnStep = ignore_step,
) -> Repaired:
    """Examines a collection and mends it, or only tells; `positions` is the farthest batch of any follower.

    Raises NotACollection if the folder has nothing of a collection, CollectionInUse beside a crawl.
    """
    progress = progress or RepairProgress()
    has_parts = (collection.folder / MARKER).exists() or collection.ledger_path.exists()
    if not (has_parts or (collection.folder.is_dir() and collection.has_archive())):
        raise NotACollection(
            f"{collection.folder} is not a collection: name a folder that 'sterna crawl' made"
        )
    with collection.locked():
        exchange = _Exchange(collection, on_step)
        if not is_dry_run:
            exchange.resume()
        found = survey(collection, progress=progress)
        plan = make_plan(found, positions=positions)
        made = Rebuilt(0, plan.lost)
        if not is_dry_run:
            made = _Work(collection, found, plan, exchange=exchange, on_step=on_step).run(now, progress)
    return Repaired(
        collection=str(collection.folder),
        is_dry_run=is_dry_run,
        findings=plan.findings,
        lost=made.lost,
        pages_again=made.pages_again,
    )


@dataclass(eq=False, repr=False)
class _Work:
    """Carries a plan out; run() once."""

    collection: CollectionFolder
    found: Survey
    plan: Plan
    _: KW_ONLY
    exchange: "_Exchange"
    on_step: OnStep

    def run(self, now: float, progress: RepairProgress) -> Rebuilt:
        self._mend_marker()
        rewritten = {each.name: self._rewrite(each) for each in self.found.segments if self._is_copied(each)}
        for plan in self.plan.warcs:
            self._mend_warc(plan)
        made = Rebuilt(0, ())
        if self.plan.needs_ledger:
            made = rebuild(
                self.collection,
                self.found,
                self.plan,
                path=self.exchange.begin(),
                segments=self._segments(rewritten),
                now=now,
                progress=progress,
            )
            is_good = self.plan.base is Base.COPY and not self.found.is_behind
            self.exchange.finish(is_old_kept=not is_good)
        dropped = [self.collection.segments_folder / name for name in (*rewritten, *self.plan.choice.dropped)]
        for path in (*dropped, *self.found.strays):
            set_aside(path, self.collection.aside_folder)
            self.on_step("set-aside")
        return made

    def _mend_marker(self) -> None:
        if self.found.marker:
            marker = self.collection.folder / MARKER
            if marker.exists():
                set_aside(marker, self.collection.aside_folder)
            self.collection.write_marker(self.found.id)
            self.on_step("marker-written")

    # -- segments ------------------------------------------------------------------------------------------

    def _is_copied(self, examined: Examined) -> bool:
        return examined.name in self.plan.choice.rewritten

    def _rewrite(self, examined: Examined) -> Segment:
        """A new segment of the good rows that are taken from this one."""
        label, units = examined.label, self.plan.choice.rewritten[examined.name]
        origin = Origin(label.collection or self.found.id, label.options)
        store = SegmentStore(self.collection.segments_folder, origin=origin, on_step=self.on_step)
        path = self.collection.segments_folder / examined.name
        schema = next(iter(good_rows(path))).schema
        return store.write(
            examined.table,
            chosen_rows(path, examined.table, units=units),
            schema=schema,
            tier=label.tier,
            contents=_contents(examined, units),
        )

    def _segments(self, rewritten: dict[str, Segment]) -> list[tuple[Segment, bool]]:
        """The segments that the ledger will name, and whether their rows are new to it."""
        tiers = {each.name: each.tier for each in self.found.ledger.segments}  # older files do not say theirs
        kept = {
            each.name: Segment(
                each.name, each.table, each.rows, each.size_bytes, tiers.get(each.name, each.label.tier)
            )
            for each in self.found.segments
            if each.name in self.plan.choice.kept
        }
        return [(segment, name in self.plan.learnt) for name, segment in (kept | rewritten).items()]

    # -- WARC files ----------------------------------------------------------------------------------------

    def _mend_warc(self, plan: WarcPlan) -> None:
        path, scanned = plan.found.path, plan.found.scanned
        final = path.with_name(plan.found.name)
        if plan.mend is Mend.DROP:
            set_aside(path, self.collection.aside_folder)
        elif plan.mend is Mend.CUT:
            cut_off(path, scanned.good_bytes, into=self.collection.aside_folder)
        elif plan.mend is Mend.COPY:
            self._copy_records(path)
        if plan.mend is not Mend.DROP and not plan.is_open and path != final:
            with storage_errors(path.parent):
                path.rename(final)
                sync_folder(path.parent)
        if plan.mend is not Mend.NOTHING:
            self.on_step("warc-mended")

    def _copy_records(self, path: Path) -> None:
        """Replaces the file by one of its good records; a hard link to the old one is set aside."""
        begun, old = (path.with_name(path.name + ending) for ending in (TEMPORARY, f".old{TEMPORARY}"))
        with storage_errors(path.parent):
            with path.open("rb") as source, begin_file(begun) as copy:
                spans = good_members(source, end=path.stat().st_size)
                for offset, length in [(span.offset, span.length) for span in spans]:
                    copy.write(os.pread(source.fileno(), length, offset))
                copy.flush()
                os.fsync(copy.fileno())
            old.unlink(missing_ok=True)
            os.link(path, old)
            set_aside(old, self.collection.aside_folder)
            begun.replace(path)
            sync_folder(path.parent)


def _contents(examined: Examined, units: frozenset[int]) -> Contents:
    """What the label says of these batches, with the rows of this table that are left."""
    place = TABLES.index(examined.table)
    return tuple(
        (batch, (*counts[:place], examined.units[batch], *counts[place + 1 :]))
        for batch, counts in examined.label.contents
        if batch in units
    )


@dataclass(eq=False, repr=False)
class _Exchange:
    """Puts a new ledger into the place of the old one.

    SQLite would take the log of the old one for that of the new one, so the log goes first. A kill in between
    leaves a complete `ledger.sqlite.new` and no ledger, which `resume` finds; crawls refuse to begin.
    """

    collection: CollectionFolder
    on_step: OnStep
    _ready: Path = field(init=False)
    _begun: Path = field(init=False)

    def __post_init__(self) -> None:
        path = self.collection.ledger_path
        self._ready = path.with_name(f"{path.name}.new")
        self._begun = path.with_name(f"{path.name}.rebuilding")

    def resume(self) -> None:
        """Finishes what a killed repair had begun; beside a ledger, which may be newer, forgets it."""
        if self._ready.exists() and not self.collection.ledger_path.exists():
            self._take_away()
            self._put_in_place()
        self._ready.unlink(missing_ok=True)
        for path in self._with_logs(self._begun):
            path.unlink(missing_ok=True)

    def begin(self) -> Path:
        """Where the new ledger is to be written."""
        return self._begun

    def finish(self, *, is_old_kept: bool) -> None:
        """Exchanges the ledgers; the old one is set aside if something may still be found in it."""
        with storage_errors(self._begun), self._begun.open("rb") as file:
            os.fsync(file.fileno())
            self._begun.rename(self._ready)
            sync_folder(self._ready.parent)
        self.on_step("ledger-built")
        if is_old_kept:
            self._take_away()
            self.on_step("ledger-aside")
        else:
            self._empty_log()
        self._put_in_place()
        self.on_step("ledger-exchanged")

    def _take_away(self) -> None:
        for path in self._with_logs(self.collection.ledger_path):
            if path.exists():
                set_aside(path, self.collection.aside_folder)

    def _empty_log(self) -> None:
        """Copies the log into the old ledger, which then is complete without it."""
        path, log, shared = self._with_logs(self.collection.ledger_path)
        with closing(connect(path, is_reader=False)) as db:
            (is_busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise CollectionInUse(f"{path} is being read: end what reads it and run the same command again")
        for each in (log, shared):
            each.unlink(missing_ok=True)

    def _put_in_place(self) -> None:
        with storage_errors(self._ready.parent):
            self._ready.replace(self.collection.ledger_path)
            sync_folder(self._ready.parent)

    def _with_logs(self, path: Path) -> Sequence[Path]:
        return [path, *(path.with_name(path.name + ending) for ending in (_LOG, _SHARED))]
