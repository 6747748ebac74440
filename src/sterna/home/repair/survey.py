"""The survey: every part of a collection is read, and nothing is changed."""

from array import array
from collections import Counter
from pathlib import Path

import msgspec

from sterna.archive.disk import TEMPORARY, storage_errors
from sterna.archive.examination import Examined, examine
from sterna.archive.manifest import Segment, WarcPosition
from sterna.archive.segments import ENDINGS
from sterna.archive.warc import OPEN
from sterna.archive.warc_scan import Scanned, scan
from sterna.errors import NotACollection
from sterna.home.folder import MARKER, CollectionFolder
from sterna.home.ledger.sqlite.salvage import LedgerState, inspect
from sterna.home.repair.records import RepairProgress
from sterna.model import Record
from sterna.web.urls import fingerprint

_WARC = ".warc.gz"
_OURS = "sterna-"  # how names of WARC files begin


class FoundWarc(Record, frozen=True, kw_only=True):
    """A WARC file of the collection, and what the ledger says of it."""

    path: Path
    name: str  # without its ending while it is open
    scanned: Scanned
    position: WarcPosition | None


class Survey(Record, frozen=True, kw_only=True):
    """A collection as it was found."""

    id: str  # "": nothing says it
    marker: str  # its damage
    ledger: LedgerState
    segments: tuple[Examined, ...]  # those of this collection
    missing: tuple[Segment, ...]  # that the ledger names
    warcs: tuple[FoundWarc, ...]
    missing_warcs: tuple[WarcPosition, ...]
    strays: dict[Path, str]  # what belongs elsewhere, and why
    raw_marks: bytes  # fingerprints of the URLs of good responses, signed 64-bit integers

    @property
    def last_batch(self) -> int:
        return max((unit for each in self.segments for unit in each.units), default=0)

    @property
    def is_new(self) -> bool:
        """True if nothing was crawled yet: there is neither an archive nor a ledger."""
        return self.ledger.is_empty and self.ledger.owner is None and not (self.segments or self.warcs)

    @property
    def is_behind(self) -> bool:
        """True if segments have batches of which the ledger does not know."""
        return not self.ledger.damage and self.last_batch > self.ledger.batch


def survey(collection: CollectionFolder, *, progress: RepairProgress) -> Survey:
    """Reads everything; raises NotACollection if there is nothing of a collection in the folder."""
    progress.begin("ledger")
    ledger = inspect(collection.ledger_path)
    names, strays = _sorted_out(collection)
    examined = _examined(collection, names, progress=progress)
    damage, marker_id = _marker(collection)
    id = _identity(marker_id, ledger, examined)
    if not damage and marker_id != id:
        damage = "it is that of another collection"
    if damage and ledger.is_empty and not names:
        raise NotACollection(f"{collection.folder} is not a collection, and there is nothing to make one of")
    foreign = {each.name: each for each in examined if each.label.collection not in ("", id)}
    strays |= {
        collection.segments_folder / name: "it belongs to another collection" for name in sorted(foreign)
    }
    if ledger.owner not in (None, id):
        ledger = LedgerState(damage="it belongs to another collection", is_empty=True, owner=ledger.owner)
    marks = array("q")
    warcs = _scanned(collection, ledger, strays, id=id, marks=marks, progress=progress)
    present = {each.name for each in warcs}
    return Survey(
        id=id,
        marker=damage,
        ledger=ledger,
        segments=tuple(_checked(each, ledger) for each in examined if each.name not in foreign),
        missing=tuple(each for each in ledger.segments if each.name not in names),
        warcs=warcs,
        missing_warcs=tuple(each for each in ledger.warc if each.name not in present),
        strays=strays,
        raw_marks=marks.tobytes(),
    )


def _sorted_out(collection: CollectionFolder) -> tuple[list[str], dict[Path, str]]:
    """The names of segments, and what lies among the files of the archive and is none of them."""
    names: list[str] = []
    strays: dict[Path, str] = {}
    for path in _entries(collection.segments_folder):
        if path.name.endswith(ENDINGS) and path.is_file():
            names.append(path.name)
        else:
            strays[path] = _why_stray(path)
    for path in _entries(collection.warc_folder):
        if not (path.name.startswith(_OURS) and path.name.removesuffix(OPEN).endswith(_WARC)):
            strays[path] = _why_stray(path)
        elif path.name.endswith(OPEN) and path.with_name(path.name.removesuffix(OPEN)).exists():
            strays[path] = "the same file is there under its final name"
    for path in _entries(collection.folder):
        if path.is_file() and path.name.endswith(TEMPORARY):
            strays[path] = _why_stray(path)
    return names, strays


def _why_stray(path: Path) -> str:
    return "it was never completed" if path.name.endswith(TEMPORARY) else "it is no file of a collection"


def _examined(
    collection: CollectionFolder, names: list[str], *, progress: RepairProgress
) -> tuple[Examined, ...]:
    paths = [collection.segments_folder / name for name in names]
    progress.begin("segments", sum(path.stat().st_size for path in paths))
    found = []
    for path in paths:
        found.append(examine(path))
        progress.done += path.stat().st_size
    return tuple(found)


def _checked(examined: Examined, ledger: LedgerState) -> Examined:
    """A segment without the rows that the ledger states is damaged, although all of it can be read."""
    stated = next((each.rows for each in ledger.segments if each.name == examined.name), examined.rows)
    if stated == examined.rows:
        return examined
    damage = examined.damage or f"it has {examined.rows:,} rows, not {stated:,}"
    return msgspec.structs.replace(examined, damage=damage, lost_rows=max(stated - examined.rows, 0))


def _marker(collection: CollectionFolder) -> tuple[str, str]:
    """The damage of the file that marks a collection, and the id in it."""
    if not (collection.folder / MARKER).exists():
        return "it is missing", ""
    try:
        return "", collection.id()
    except NotACollection:
        return "it is damaged", ""


def _identity(marker: str, ledger: LedgerState, segments: tuple[Examined, ...]) -> str:
    """The id of the collection: that of its marker, unless everything else says another one."""
    said = Counter(each.label.collection for each in segments if each.label.collection)
    if ledger.owner:
        said[ledger.owner] += 1
    if marker in said or not said:
        return marker
    return said.most_common(1)[0][0]


def _scanned(
    collection: CollectionFolder,
    ledger: LedgerState,
    strays: dict[Path, str],
    *,
    id: str,
    marks: "array[int]",
    progress: RepairProgress,
) -> tuple[FoundWarc, ...]:
    """The WARC files of the collection; those of another one are added to the strays."""
    paths = [path for path in _entries(collection.warc_folder) if path not in strays and path.is_file()]
    progress.begin("WARC files", sum(path.stat().st_size for path in paths))
    positions = {position.name: position for position in ledger.warc}
    found = []
    for path in paths:
        urls: list[str] = []
        with storage_errors(path):
            scanned = scan(path, urls=urls)
        progress.done += scanned.size_bytes
        if scanned.owner not in ("", id):
            strays[path] = "it belongs to another collection"
            continue
        name = path.name.removesuffix(OPEN)
        found.append(FoundWarc(path=path, name=name, scanned=scanned, position=positions.get(name)))
        marks.extend(map(fingerprint, urls))
    return tuple(found)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
