"""How far a visit has come: what its parcels amount to, and the visit that goes on from there. Pure."""

from array import array
from collections.abc import Iterable

from msgspec.structs import replace

from sterna.model import (
    Checkpoint,
    Ended,
    Hold,
    Known,
    Parcel,
    Record,
    Robots,
    State,
    StateChange,
    Target,
    Usage,
    Visit,
)
from sterna.web.urls import fingerprint, lies_within

LEAST_SECONDS = 1.0  # that a visit which goes on has in any case, to report its end


class Step(Record, frozen=True, kw_only=True, tag="step"):
    """What one parcel changed; totals are those after it."""

    number: int
    size_bytes: int  # of the parcel as it travels
    checkpoint: Checkpoint
    gone: bytes  # fingerprints of its pages, and of URLs of other sites that it reports
    state: StateChange
    usage: Usage  # of this parcel
    pages: int  # leaves of the Merkle tree
    peaks: tuple[bytes, ...]  # of the same tree
    began: float | None  # when the visit began, by the wall clock
    worked_seconds: float  # since it began, without pauses
    at: float  # by the wall clock
    robots: Robots | None = None
    holds: tuple[Hold, ...] = ()
    ended: Ended | None = None


class Progress(Record, frozen=True, kw_only=True, tag="progress"):
    """The sum of a visit's parcels."""

    number: int = 0  # of the last one
    total_bytes: int = 0  # of all, as they travel
    frontier: tuple[Target, ...] = ()
    gone: bytes = b""  # fingerprints, sorted: URLs that were done, or reported to home
    state: State = State()
    usage: Usage = Usage()
    pages: int = 0
    peaks: tuple[bytes, ...] = ()
    began: float | None = None
    worked_seconds: float = 0.0
    at: float = 0.0  # when the last parcel was made
    robots: Robots | None = None
    holds: tuple[Hold, ...] = ()
    ended: Ended | None = None


def progress_of(visit: Visit) -> Progress:
    """The progress of a visit that has not sent a parcel."""
    return Progress(frontier=visit.starts, state=visit.state)


def gone_of(parcel: Parcel) -> bytes:
    """The `gone` of a parcel as the runtime made it: on the wire it lacks what home knows already."""
    gone = [page.fingerprint for page in parcel.pages]
    gone += (fingerprint(target.url) for target in parcel.outlinks)
    return array("q", gone).tobytes()


def advanced(progress: Progress, steps: Iterable[Step]) -> Progress:
    """The progress after further parcels; ValueError if their numbers do not follow."""
    frontier = {fingerprint(target.url): target for target in progress.frontier}
    gone = set(_marks(progress.gone))
    facts, memory = dict(progress.state.facts), progress.state.memory
    for step in steps:
        if step.number != progress.number + 1:
            raise ValueError(f"parcel {step.number} follows parcel {progress.number}")
        found, again = step.checkpoint.found, step.checkpoint.again
        frontier.update((fingerprint(target.url), target) for target in (*found, *again))
        done = {*step.checkpoint.done, *_marks(step.gone)}
        for mark in done:
            frontier.pop(mark, None)
        gone |= done
        for number in step.state.removed:
            facts.pop(number, None)
        facts.update(step.state.added)  # last: a modified fact is among both
        memory = memory if step.state.memory is None else step.state.memory
        progress = replace(
            progress,
            number=step.number,
            total_bytes=progress.total_bytes + step.size_bytes,
            usage=progress.usage.plus(step.usage),
            pages=step.pages,
            peaks=step.peaks,
            began=step.began,
            worked_seconds=step.worked_seconds,
            at=step.at,
            robots=step.robots or progress.robots,
            holds=step.holds or progress.holds,
            ended=step.ended,
        )
    return replace(
        progress,
        frontier=tuple(frontier.values()),
        gone=array("q", sorted(gone)).tobytes(),
        state=State(tuple(sorted(facts.items())), memory),
    )


def rest_of(visit: Visit, progress: Progress) -> Visit:
    """The visit that goes on: with the rest of the frontier and of the budget, and what is done as known."""
    usage, seconds = progress.usage, progress.worked_seconds
    budget = replace(
        visit.budget.minus(usage, seconds=seconds),
        pages=max(visit.budget.pages - usage.pages, 0),
        seconds=max(visit.budget.seconds - seconds, LEAST_SECONDS),
    )
    here = [target for target in progress.frontier if _is_within(target, visit.within)]
    elsewhere = set(progress.frontier) - set(here)  # reported before, and left to other visits
    known = {*_marks(visit.known.fingerprints), *_marks(progress.gone), *map(_mark, elsewhere)}
    return replace(
        visit,
        starts=tuple(here),
        known=Known(array("q", sorted(known)).tobytes(), visit.known.validators),
        budget=budget,
        robots=progress.robots or visit.robots,
        holds=progress.holds,
        state=progress.state,
    )


def _marks(packed: bytes) -> "array[int]":
    marks = array("q")
    marks.frombytes(packed)
    return marks


def _mark(target: Target) -> int:
    return fingerprint(target.url)


def _is_within(target: Target, within: tuple[str, ...]) -> bool:
    return not within or target.kind == "sitemap" or lies_within(target.url, within)
