"""Makes the new ledger of a repair, beside the old one: what is left of that, and what the archive says."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sterna.archive.examination import good_rows
from sterna.archive.manifest import Segment
from sterna.home.dispatch import Borders
from sterna.home.folder import COLLECTION, CollectionFolder
from sterna.home.ledger.sqlite.adoption import Adopter, StoredPage
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.ledger.sqlite.salvage import copy_rows, copy_whole
from sterna.home.options import Options, dump, load
from sterna.home.repair.plan import Base, Plan, positions_of
from sterna.home.repair.records import RepairProgress
from sterna.home.repair.survey import Survey
from sterna.model import MEDIA_RELS, Record

_MAX_SEEDS = 10_000
_PAGE_COLUMNS = ("url", "status", "error", "depth", "fetched", "etag", "modified", "digest", "visit", "batch")


class Rebuilt(Record, frozen=True):
    """What came of it."""

    pages_again: int
    lost: tuple[str, ...]


def rebuild(
    collection: CollectionFolder,
    found: Survey,
    plan: Plan,
    *,
    path: Path,
    segments: Sequence[tuple[Segment, bool]],
    now: float,
    progress: RepairProgress,
) -> Rebuilt:
    """Writes the ledger to `path`; with each segment comes whether the rows in it are new to the ledger."""
    progress.begin("ledger", sum(segment.rows for segment, _ in segments))
    lost = list(plan.lost)
    if plan.base is Base.COPY:
        copy_whole(collection.ledger_path, path)
    elif plan.base is Base.ROWS and (torn := copy_rows(collection.ledger_path, path)):
        lost.append(f"rows of the ledger's tables {', '.join(torn)} that could not be read")
    SqliteLedger(path).close()  # makes or upgrades it
    with closing(Adopter(path)) as adopter:
        options, seeds = _options_of(found), list[str]()
        paths = {segment.name: collection.segments_folder / segment.name for segment, _ in segments}
        for segment, is_new in segments:
            if segment.table == "page" and is_new:
                for pages in _pages(paths[segment.name]):
                    adopter.add_pages(pages)
                    seeds += [page.url for page in pages if page.depth == 0 and len(seeds) < _MAX_SEEDS]
                    progress.done += len(pages)
        borders = Borders(options.stay, seed_sites=adopter.sites(), blocked=options.block)
        for segment, is_new in segments:
            if segment.table == "link" and is_new:
                for links in _links(paths[segment.name]):
                    adopter.add_links(links, admits=borders.may_visit, now=now)
                    progress.done += len(links)
        pages_again = _put_back(
            adopter, plan, [paths[each.name] for each, _ in segments if each.table == "page"]
        )
        if plan.has_lost_raw:
            adopter.note_raw(memoryview(found.raw_marks).cast("q"))
        adopter.finish(
            [segment for segment, _ in segments],
            positions_of(plan.warcs),
            batch=plan.batch,
            settings=_settings(plan, options, seeds, id=collection.id()),
            blocked=() if plan.base is Base.COPY else options.block,
        )
    return Rebuilt(pages_again, tuple(lost))


def _put_back(adopter: Adopter, plan: Plan, paths: Sequence[Path]) -> int:
    """Has the pages fetched again of which something is lost."""
    if not (plan.has_lost_pages or plan.torn):
        return 0
    for path in paths:
        for pages in _pages(path):
            adopter.note_stored(pages, torn=plan.torn)
    return adopter.put_back_lost(is_all_noted=plan.has_lost_pages)


def _settings(plan: Plan, options: Options, seeds: Sequence[str], *, id: str) -> dict[str, str]:
    if plan.base is Base.COPY:
        return {COLLECTION: id}
    unique = tuple(dict.fromkeys(seeds))
    return {COLLECTION: id, "options": dump(msgspec.structs.replace(options, seeds=unique))}


def _options_of(found: Survey) -> Options:
    """The settings of the last crawl, as the newest segment with a label has them, or the defaults."""
    for each in sorted(found.segments, key=lambda each: -max(each.units, default=0)):
        if each.label.options:
            try:
                return load(each.label.options)
            except msgspec.MsgspecError:
                continue  # of another version
    return Options()


# --- rows of the archive


def _pages(path: Path) -> Iterator[list[StoredPage]]:
    for rows in good_rows(path):
        columns = [_values(rows, name) for name in _PAGE_COLUMNS]
        pages = [_page(values) for values in zip(*columns, strict=True) if values[0]]
        if pages:
            yield pages


def _page(values: Sequence[Any]) -> StoredPage:
    url, status, error, depth, fetched, etag, modified, digest, visit, batch = values
    return StoredPage(
        url=url,
        status=status or 0,
        error=error or "",
        depth=depth or 0,
        fetched=(fetched or 0) / 1e6,
        etag=etag or "",
        # As servers write it in Last-Modified (RFC 9110, 5.6.7).
        modified="" if modified is None else formatdate(modified // 1_000_000, usegmt=True),
        digest=_bytes(digest),
        visit=visit or "",
        batch=batch or 0,
    )


def _values(rows: pa.Table, name: str) -> list[Any]:
    if name not in rows.column_names:
        return [None] * rows.num_rows
    column = rows[name]
    return list((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())


def _bytes(digits: str | None) -> bytes:
    try:
        return bytes.fromhex(digits or "")
    except ValueError:
        return b""


def _links(path: Path) -> Iterator[set[tuple[str, str]]]:
    """The links to pages that may be followed, each from a page to a URL."""
    media = pa.array(sorted(MEDIA_RELS))
    for rows in good_rows(path):
        is_barred = pc.or_(pc.match_substring(rows["rel"], "nofollow"), pc.is_in(rows["rel"], media))
        may_follow = pc.invert(pc.fill_null(is_barred, False))
        followed = rows.filter(may_follow)
        pairs = set(zip(followed["from_url"].to_pylist(), followed["to_url"].to_pylist(), strict=True))
        yield {(source, url) for source, url in pairs if source and url}
