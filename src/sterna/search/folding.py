"""The order of what was found, and which of it is the same page once more; pure.

Candidates come in the order of their words' score. They are put in order anew by that score and by the pages
that link to them, and near-duplicates are folded into the first of them: pages with the same body, or with
the same title and nearly the same words. Pages that share only a template have titles of their own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from math import log1p
from operator import attrgetter

from sterna.model import Record

INBOUND_WEIGHT = 0.06
MAX_DIFFERING_BITS = 3  # of the 64 of a likeness: about a twentieth of the words is another


class Candidate(Record, frozen=True):
    """A page that matches, by its place in the results of tantivy."""

    place: int
    score: float  # with the weight of the pages that link to it
    inbound: int
    digest: int
    title: int


class Kept(Record, frozen=True):
    """A page that is shown, with the places of those that it stands for."""

    candidate: Candidate
    folded: list[int]


def weighed(score: float, inbound: int) -> float:
    """The score of a page to which so many others link."""
    return score * (1 + INBOUND_WEIGHT * log1p(inbound)) if inbound else score


class Folding:
    """Folds chunk after chunk; what was kept before also takes in what comes later, and keeps its rank."""

    def __init__(self, likeness: Callable[[Candidate], int | None]) -> None:
        """`likeness` gives the signature of a page's words, if it has enough of them; it is seldom needed."""
        self._likeness = likeness
        self.kept: list[Kept] = []
        self._by_digest: dict[int, Kept] = {}
        self._by_title: defaultdict[int, list[Kept]] = defaultdict(list)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """The next candidates, in the order in which they came."""
        # Of the same score, those that came first stay first.
        for candidate in sorted(candidates, key=attrgetter("score"), reverse=True):
            same = self._same(candidate)
            if same is not None:
                same.folded.append(candidate.place)
                continue
            kept = Kept(candidate, [])
            self.kept.append(kept)
            self._by_digest[candidate.digest] = kept
            self._by_title[candidate.title].append(kept)

    def _same(self, candidate: Candidate) -> Kept | None:
        if candidate.digest in self._by_digest:
            return self._by_digest[candidate.digest]
        namesakes = self._by_title.get(candidate.title)
        likeness = self._likeness(candidate) if namesakes else None
        if not namesakes or likeness is None:
            return None
        return next((kept for kept in namesakes if self._is_alike(kept.candidate, likeness)), None)

    def _is_alike(self, candidate: Candidate, likeness: int) -> bool:
        other = self._likeness(candidate)
        return other is not None and (other ^ likeness).bit_count() <= MAX_DIFFERING_BITS
