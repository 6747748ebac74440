"""A run of pages whose rules are run again: those of one parcel at random, with the state before it.

What rules make of a page depends on the page and on the state before it. Both are in the parcels: the state
is that of the visit's beginning with the changes of all parcels before, which the host signed for as well. So
one step after the other can be repeated from here, and the host cannot know which.
"""

from itertools import accumulate
from random import Random

from msgspec.structs import replace

from sterna.model import Page, Parcel, Record, State, StateChange
from sterna.web.weight import weight_of_fact

MOST_PAGES = 59  # of a run, as of a sample
MAX_STATE_BYTES = 32 * 1024 * 1024  # of the facts that a witness keeps; with more of them nothing is repeated


class RuledPage(Record, frozen=True):
    """A page that rules judged, without its raw response, and the rows that they sent home of it."""

    page: Page
    rows: tuple[bytes, ...] = ()


class Run(Record, frozen=True, kw_only=True):
    """Successive pages of a visit in the order in which rules judged them."""

    state: State  # before the first
    pages: tuple[RuledPage, ...]
    first: tuple[bytes, ...] = ()  # rows that were sent before any page
    change: StateChange | None = None  # by these pages, if they are a whole parcel
    failed: tuple[Page, ...] = ()  # of which the host says that rules fail


class ToldState:
    """A crawler's state as its host tells it, parcel by parcel; changed by apply() alone."""

    def __init__(self, state: State) -> None:
        self._facts = dict(state.facts)
        self._facts_bytes = sum(map(weight_of_fact, self._facts.values()))
        self._memory = state.memory

    def copy(self) -> State | None:
        """The state; None if it became too large once."""
        is_known = self._facts_bytes <= MAX_STATE_BYTES
        return State(tuple(self._facts.items()), self._memory) if is_known else None

    def apply(self, change: StateChange) -> None:
        if self._facts_bytes > MAX_STATE_BYTES:
            return  # for good: what is removed from it is not known any more
        touched = _touched(change)
        gone = sum(weight_of_fact(self._facts[number]) for number in touched if number in self._facts)
        apply(self._facts, change)
        came = sum(weight_of_fact(self._facts[number]) for number in touched if number in self._facts)
        self._facts_bytes += came - gone
        self._memory = self._memory if change.memory is None else change.memory
        if self._facts_bytes > MAX_STATE_BYTES:
            self._facts.clear()


class RunWitness:
    """Watches the parcels of a visit with rules, and keeps one run. Changed by see() alone."""

    def __init__(self, random: Random, state: State, *, has_memory: bool) -> None:
        self._random = random
        self._has_memory = has_memory  # else a run may begin at any page
        self._state = ToldState(state)
        self._seen = 0  # pages, in all parcels
        self.run: Run | None = None

    def see(self, parcel: Parcel) -> None:
        failed = tuple(page for page in parcel.pages if page.error == "rules")
        judged = ruled_pages(parcel)
        if judged or failed:
            self._seen += len(judged) + len(failed)
            # Each page has the same chance to be in the parcel that is kept.
            is_kept = self._random.randrange(self._seen) < len(judged) + len(failed)
            if is_kept and (state := self._state.copy()):
                self.run = self._run(parcel, state, judged, failed[:MOST_PAGES])
        self._state.apply(parcel.state)

    def _run(self, parcel: Parcel, state: State, judged: list[RuledPage], failed: tuple[Page, ...]) -> Run:
        first = 0 if self._has_memory else self._random.randrange(max(len(judged), 1))
        pages = tuple(judged[first : first + MOST_PAGES])
        change = parcel.state if len(pages) == len(judged) else None
        return Run(state=state, pages=pages, first=first_rows(parcel), change=change, failed=failed)


def ruled_pages(parcel: Parcel) -> list[RuledPage]:
    """The pages of a parcel that rules judged, in their order, each with its rows."""
    counts = parcel.row_counts or (0,) * len(parcel.pages)
    starts = accumulate(counts, initial=len(parcel.rows) - sum(counts))
    return [
        RuledPage(replace(page, raw=None), parcel.rows[start : start + count])
        for page, count, start in zip(parcel.pages, counts, starts, strict=False)
        if not page.is_unchanged and page.error != "rules"
    ]


def first_rows(parcel: Parcel) -> tuple[bytes, ...]:
    """The rows of a parcel that belong to no page: rules sent them before any."""
    return parcel.rows[: len(parcel.rows) - sum(parcel.row_counts)]


def apply(facts: dict[int, bytes], change: StateChange) -> None:
    """Changes the facts, by their numbers."""
    for number in change.removed:
        facts.pop(number, None)
    facts.update(change.added)


def _touched(change: StateChange) -> set[int]:
    return {*change.removed, *(number for number, _ in change.added)}
