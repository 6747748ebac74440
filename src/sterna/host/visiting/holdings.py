"""What a crawler here holds, read from the files of its visit: for its home, and for the owner.

It is as of the last parcel, at most some seconds old. Nothing of the visit itself is touched: this works for
visits of another process, too, and of a host that is not running.
"""

from collections import Counter
from pathlib import Path

from sterna.errors import StorageError
from sterna.host.visiting.logbook import Logbook, Saved
from sterna.host.visiting.progress import Progress
from sterna.host.visiting.room import read_parcel
from sterna.model import Visit
from sterna.wire.holdings import MAX_DEPTHS, MAX_PARCELS, Holdings, Waiting
from sterna.wire.orders import Report, VisitState


def held_in(folder: Path, *, most_bytes: int) -> tuple[Visit, Holdings]:
    """The visit as it was sent, and what it holds; facts and the newest parcels within these bytes.

    StorageError if the folder is not that of a visit, or damaged.
    """
    saved = Logbook(folder).look()
    visit, progress = saved.admission.visit, saved.progress
    facts, left = list[bytes](), most_bytes
    for _, data in progress.state.facts:
        if len(data) > left:
            break
        facts.append(data)
        left -= len(data)
    return visit, Holdings(
        report=_report(saved),
        at=progress.at,
        usage=progress.usage,
        waiting=_waiting(progress),
        done=len(progress.gone) // 8,
        facts_total=len(progress.state.facts),
        facts=tuple(facts),
        parcels=_newest(folder, saved, left),
    )


def _newest(folder: Path, saved: Saved, most_bytes: int) -> tuple[bytes, ...]:
    """The parcels that home has not acknowledged, from the last one back, as far as they fit; in order."""
    parcels, left = list[bytes](), most_bytes
    for number in range(saved.progress.number, saved.tally.acknowledged, -1):
        try:
            packed = read_parcel(folder / str(number))
        except FileNotFoundError:  # acknowledged meanwhile
            break
        if len(packed) > left or len(parcels) == MAX_PARCELS:
            break
        parcels.append(packed)
        left -= len(packed)
    return tuple(reversed(parcels))


def _waiting(progress: Progress) -> tuple[Waiting, ...]:
    depths = Counter(target.depth for target in progress.frontier)
    return tuple(Waiting(depth, depths[depth]) for depth in sorted(depths)[:MAX_DEPTHS])


def _report(saved: Saved) -> Report:
    progress, verdict, tally = saved.progress, saved.verdict, saved.tally
    state: VisitState = "running" if progress.number else "queued"
    if progress.ended:
        state = "killed" if verdict.is_killed else "finished"
    return Report(
        visit=saved.admission.visit.id,
        state=verdict.state or state,
        parcels=progress.number,
        acknowledged=tally.acknowledged,
        ended=progress.ended,
    )


def visits_in(folder: Path) -> list[Path]:
    """The folders of visits below; empty if there are none."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error.strerror}") from error
