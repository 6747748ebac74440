"""One search in one view of an index: candidates, their order, near-duplicates, and the hits that are shown.

Candidates are taken in chunks of a fixed size, whichever part of the hits is wanted. Each chunk is ordered
anew by the score of the words and the number of inbound links, and added after the chunk before. So the hits
are one list, of which every page of results is a slice.

Near-duplicates are folded into the first of them: pages with the same body, or with the same title and nearly
the same words. Pages that share only a template differ in their titles.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import log1p
from operator import attrgetter
from pathlib import Path
from typing import Any

from tantivy import DocAddress, Document, Index, Query, Schema, Searcher

from sterna.model import Record
from sterna.search import schema
from sterna.search.documents import likeness_mark, unpack
from sterna.search.inbound import Inbound
from sterna.search.queries import Composer
from sterna.search.results import Hit
from sterna.search.snippets import Snippets
from sterna.web.urls import site_of

CHUNK = 100
MAX_HITS = 1_000
MAX_FOLDED = 50  # URLs listed for one hit
MAX_LIKENESSES = 64  # computed in one search: a site may give all its pages one title
INBOUND_WEIGHT = 0.06
MAX_DIFFERING_BITS = 3  # of the 64 of a signature: about a twentieth of the words differ
_MAX_KNOWN = 20_000


class IndexView(Record, frozen=True, kw_only=True, gc=True):
    """The index as it was at the last check, and as a search sees it."""

    generation: Path
    index: Index
    searcher: Searcher
    fields: Schema
    composer: Composer
    inbound: Inbound
    inbound_stamp: tuple[int, ...]  # of its file
    likenesses: dict[int, int | None]  # by digest: a cache that searches fill
    checked_at: float


class Candidate(Record, frozen=True):
    """A page that matches, by its place in the results of tantivy."""

    place: int
    score: float  # weighted by inbound links
    inbound: int
    digest: int
    title: int


class Kept(Record, frozen=True):
    """A page that is shown, with the places of its near-duplicates."""

    candidate: Candidate
    folded: list[int]


class Ranked(Record, frozen=True, kw_only=True, gc=True):
    """The first pages that match a query, in order."""

    kept: list[Kept]
    addresses: list[DocAddress]
    total: int  # hits; an estimate if not all matching pages were looked at
    is_exact: bool


def rank(view: IndexView, query: Query, *, count: int) -> Ranked:
    """At least the first `count` hits, if there are as many."""
    addresses: list[DocAddress] = []
    folding = Folding(_Likenesses(view, addresses).of)
    matching = 0
    while True:
        result = view.searcher.search(query, limit=CHUNK, offset=len(addresses))
        matching = result.count or 0  # type: ignore[attr-defined]
        found = [address for _, address in result.hits]
        marks: list[list[Any]] = [view.searcher.fast_field_values(name, found) for name in schema.MARKS]
        candidates = []
        rows = zip(result.hits, *marks, strict=True)
        for place, ((score, _), number, digest, title) in enumerate(rows, len(addresses)):
            inbound = view.inbound.of(number)
            weighted = score * (1 + INBOUND_WEIGHT * log1p(inbound)) if inbound else score
            candidates.append(Candidate(place, weighted, inbound, digest, title))
        addresses += found
        folding.add(candidates)
        if len(found) < CHUNK or len(folding.kept) >= count or len(addresses) >= 2 * MAX_HITS:
            break
    is_exact = len(addresses) >= matching
    total = len(folding.kept) if is_exact else matching - (len(addresses) - len(folding.kept))
    return Ranked(kept=folding.kept, addresses=addresses, total=total, is_exact=is_exact)


# -- near-duplicates ---------------------------------------------------------------------------------------


class Folding:
    """Folds chunk after chunk; a page that was kept takes in later near-duplicates and keeps its rank."""

    def __init__(self, likeness: Callable[[Candidate], int | None]) -> None:
        """`likeness` gives the signature of a page's words, None if it has too few; it is rarely called."""
        self._likeness = likeness
        self.kept: list[Kept] = []
        self._by_digest: dict[int, Kept] = {}
        self._by_title: defaultdict[int, list[Kept]] = defaultdict(list)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Adds the next chunk, in the order of tantivy; equal scores stay in that order."""
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
        for kept in namesakes:
            other = self._likeness(kept.candidate)
            if other is not None and (other ^ likeness).bit_count() <= MAX_DIFFERING_BITS:
                return kept
        return None


class _Likenesses:
    """Signatures of pages' words, computed from the stored texts when two pages have one title."""

    def __init__(self, view: IndexView, addresses: Sequence[DocAddress]) -> None:
        self._view = view
        self._addresses = addresses
        self._left = MAX_LIKENESSES  # decremented by `of`

    def of(self, candidate: Candidate) -> int | None:
        """None if the page has too few words, or this search computed too many already."""
        known = self._view.likenesses
        if candidate.digest not in known:
            if not self._left:
                return None
            self._left -= 1
            if len(known) >= _MAX_KNOWN:
                known.clear()
            document = self._view.searcher.doc(self._addresses[candidate.place])
            known[candidate.digest] = likeness_mark(_body(document))
        return known.get(candidate.digest)


# -- hits --------------------------------------------------------------------------------------------------


def show(view: IndexView, ranked: Ranked, snippets: Snippets, *, offset: int, limit: int) -> tuple[Hit, ...]:
    part = ranked.kept[offset : min(offset + limit, MAX_HITS)]
    return tuple(_hit(view, kept, ranked.addresses, snippets) for kept in part)


def _hit(view: IndexView, kept: Kept, addresses: Sequence[DocAddress], snippets: Snippets) -> Hit:
    candidate = kept.candidate
    document = view.searcher.doc(addresses[candidate.place])
    url = _text(document, schema.URL)
    analysis = _text(document, schema.ANALYSIS)
    title = " ".join(_text(document, schema.named(schema.TITLE, analysis)).split())
    folded = (view.searcher.doc(addresses[place]) for place in kept.folded[:MAX_FOLDED])
    return Hit(
        url=url,
        site=site_of(url),
        title=title,
        language=_text(document, schema.LANGUAGE),
        snippet=snippets.of_text(_body(document), analysis),
        title_pieces=snippets.of_title(title, analysis),
        score=candidate.score,
        inbound=candidate.inbound,
        fetched=float(document.get_first(schema.FETCHED) or 0.0),
        folded=tuple(_text(other, schema.URL) for other in folded),
    )


def _body(document: Document) -> str:
    return unpack(bytes(document.get_first(schema.BODY) or b""))


def _text(document: Document, field: str) -> str:
    return str(document.get_first(field) or "")
