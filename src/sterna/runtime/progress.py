"""The progress of a visit, derived from its parcels: with them a crawler can continue elsewhere."""

from array import array
from collections.abc import Iterable

from msgspec.structs import replace

from sterna.crawler.pack import SavedProgress
from sterna.model import Known, Parcel, State, StateChange, Target, Visit
from sterna.web.urls import fingerprint


def progress_of(visit: Visit, parcels: Iterable[Parcel]) -> SavedProgress:
    """The crawler's progress after these parcels: all of the visit, in order."""
    seen = array("q")
    seen.frombytes(visit.known.fingerprints)
    marks = set(seen)
    waiting = {fingerprint(target.url): target for target in visit.starts}
    state = visit.state
    for parcel in parcels:
        state = changed(state, parcel.state)
        _line_up(waiting, parcel.checkpoint.found)
        for mark in (*parcel.checkpoint.done, *(page.fingerprint for page in parcel.pages)):
            waiting.pop(mark, None)
            marks.add(mark)
        waiting.update((fingerprint(target.url), target) for target in parcel.checkpoint.again)
    marks.update(waiting)
    return SavedProgress(
        state=state, frontier=tuple(waiting.values()), seen=array("q", sorted(marks)).tobytes()
    )


def continued(visit: Visit, progress: SavedProgress) -> Visit:
    """The visit as it continues from there; the caller renews its id, budget and epoch."""
    seen = array("q")
    seen.frombytes(progress.seen)
    done = set(seen).difference(fingerprint(target.url) for target in progress.frontier)
    known = Known(array("q", sorted(done)).tobytes(), visit.known.validators)
    return replace(visit, starts=progress.frontier, known=known, state=progress.state)


def changed(state: State, change: StateChange) -> State:
    """The state after a change; a modified fact keeps its number."""
    facts = dict(state.facts)
    for number in change.removed:
        facts.pop(number, None)
    facts.update(change.added)
    return State(tuple(sorted(facts.items())), state.memory if change.memory is None else change.memory)


def _line_up(waiting: dict[int, Target], found: Iterable[Target]) -> None:
    """Adds found targets; one found again, with a higher priority, moves to the end."""
    for target in found:
        mark = fingerprint(target.url)
        waiting.pop(mark, None)
        waiting[mark] = target
