"""URLs that a host was done with because the crawler's rules refuse them, by its word.

The rules can be asked again from here. What they answer depends on the URL and, if they remember, on the
state in which they were asked: one between those before and after the parcel, which both are in the parcels.
"""

from collections.abc import Iterable
from random import Random

from sterna.model import Parcel, Record, State, Target
from sterna.trust.runs import ToldState
from sterna.web.urls import fingerprint

# Asking again costs no request. With fewer of them, a host could hide pages among URLs that are refused.
MOST_REFUSALS = 2_000
MOST_WATCHED = 50_000  # of the URLs that may be refused: each takes 300 bytes of memory


class Refusals(Record, frozen=True):
    """Some URLs that rules refuse, and the states to ask in: one that is admitted in each was not refused."""

    targets: tuple[Target, ...]
    states: tuple[State, ...]
    share: float = 1.0  # of refusals among what the parcel, or the visit, was done with


class RefusalWitness:
    """Watches the parcels of a visit whose rules judge requests; changed by note() and see() alone.

    Of rules that remember, the refusals of one parcel at random are kept.
    """

    def __init__(self, random: Random, starts: Iterable[Target], state: State, *, has_memory: bool) -> None:
        self._random = random
        self._state = ToldState(state)
        self._has_memory = has_memory
        self._waiting: dict[int, Target] = {}  # URLs of pages that are not done, or some of them
        self._secret = random.getrandbits(64)  # decides on which, so that a host cannot know them
        self._each = 1  # of so many URLs one is watched
        self._may_thin = False
        self._count = 0  # of refusals, in all parcels
        self._targets: list[Target] = []
        self._share = 1.0
        self._states: tuple[State, ...] = () if has_memory else (state,)
        self.note(starts)

    @property
    def waiting(self) -> Iterable[Target]:
        return self._waiting.values()

    @property
    def kept(self) -> Refusals:
        return Refusals(tuple(self._targets), self._states, self._share)

    def note(self, found: Iterable[Target]) -> None:
        """Notes URLs that may be refused later; one that is found again has a higher priority now."""
        for each in found:
            mark = fingerprint(each.url)
            if each.kind == "page" and self._is_watched(mark):
                self._waiting[mark] = each
        while self._may_thin and len(self._waiting) > MOST_WATCHED:
            self._each *= 2
            self._waiting = {mark: each for mark, each in self._waiting.items() if self._is_watched(mark)}

    def thin(self) -> None:
        """Watches only some URLs from now on, if there are many: `waiting` is no longer whole."""
        self._may_thin = True
        self.note(())

    def _is_watched(self, mark: int) -> bool:
        return hash((self._secret, mark)) % self._each == 0

    def see(self, parcel: Parcel) -> None:
        self.note(parcel.checkpoint.found)
        for page in parcel.pages:
            self._waiting.pop(page.fingerprint, None)
        done = (self._waiting.pop(mark, None) for mark in parcel.checkpoint.done)
        refused = [each for each in done if each]
        if self._has_memory:
            self._keep_parcel(parcel, refused)
        else:
            for each in refused:
                self._keep(each)

    def _keep(self, target: Target) -> None:
        """A uniform sample of all (Vitter's algorithm R)."""
        self._count += self._each
        kept = len(self._targets)
        place = kept if kept < MOST_REFUSALS else self._random.randrange(self._count)
        if place < MOST_REFUSALS:
            self._targets[place : place + 1] = [target]

    def _keep_parcel(self, parcel: Parcel, refused: list[Target]) -> None:
        count = len(refused) * self._each
        self._count += count
        # Each refusal has the same chance to be in the parcel that is kept.
        is_kept = bool(refused) and self._random.randrange(self._count) < count
        before = self._state.copy() if is_kept else None
        self._state.apply(parcel.state)
        after = self._state.copy() if is_kept else None
        if before and after:
            self._targets = self._random.sample(refused, min(len(refused), MOST_REFUSALS))
            self._states = (before, after)
            self._share = count / (count + len(parcel.pages))
