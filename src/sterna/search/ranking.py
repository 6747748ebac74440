"""One search in one view of an index: candidates, their order, near-duplicates, and the hits that are shown.

Candidates are taken in chunks of a fixed size, whichever part of the hits is wanted. Each chunk is ordered
anew by the score of the words and the number of inbound links, and added after the chunk before. So the hits
are one list, of which every page of results is a slice.

Near-duplicates are folded into the first of them: pages with the same body, or with the same title and nearly
the same words. Pages that share only a template differ in their titles.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from math import log1p
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from tantivy import DocAddress, Document, Index, Query, Searcher

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
    index_stamp: tuple[int, ...] | None  # None: the index follows commits by itself
    searcher: Searcher
    composer: Composer
    inbound: Inbound
    inbound_stamp: tuple[int, ...]  # of its file
    likenesses: dict[int, int | None]  # by digest: a cache that searches fill
    checked_at: float


class Candidate(Record, frozen=True, gc=True):
    """A page that matches."""

    address: DocAddress
    score: float  # weighted by inbound links
    inbound: int
    digest: int
    title: int
    folded: list[DocAddress] = msgspec.field(default_factory=list)  # its near-duplicates, if it is kept


def rank(view: IndexView, query: Query, *, count: int) -> tuple[list[Candidate], int, bool]:
    """At least the first `count` hits, if there are as many; the number of all, and whether it is exact."""
    folding = Folding(_likenesses(view))
    looked_at = 0
    while True:
        result = view.searcher.search(query, limit=CHUNK, offset=looked_at)
        matching = result.count or 0  # type: ignore[attr-defined]
        found = [address for _, address in result.hits]
        marks: list[list[Any]] = [view.searcher.fast_field_values(name, found) for name in schema.MARKS]
        candidates = []
        for (score, address), number, digest, title in zip(result.hits, *marks, strict=True):
            inbound = view.inbound.of(number)
            weighted = score * (1 + INBOUND_WEIGHT * log1p(inbound)) if inbound else score
            candidates.append(Candidate(address, weighted, inbound, digest, title))
        looked_at += len(found)
        folding.add(candidates)
        if len(found) < CHUNK or len(folding.kept) >= count or looked_at >= 2 * MAX_HITS:
            break
    is_exact = looked_at >= matching
    # An estimate where not all were looked at: none of the others is taken for a near-duplicate.
    total = len(folding.kept) if is_exact else matching - (looked_at - len(folding.kept))
    return folding.kept, total, is_exact


# -- near-duplicates ---------------------------------------------------------------------------------------


class Folding:
    """Folds chunk after chunk; a page that was kept takes in later near-duplicates and keeps its rank."""

    def __init__(self, likeness: Callable[[Candidate], int | None]) -> None:
        """`likeness` gives the signature of a page's words, None if it has too few; it is rarely called."""
        self._likeness = likeness
        self.kept: list[Candidate] = []
        self._by_digest: dict[int, Candidate] = {}
        self._by_title: defaultdict[int, list[Candidate]] = defaultdict(list)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Adds the next chunk, in the order of tantivy; equal scores stay in that order."""
        for candidate in sorted(candidates, key=attrgetter("score"), reverse=True):
            if same := self._same(candidate):
                same.folded.append(candidate.address)
            else:
                self.kept.append(candidate)
                self._by_digest[candidate.digest] = candidate
                self._by_title[candidate.title].append(candidate)

    def _same(self, candidate: Candidate) -> Candidate | None:
        if candidate.digest in self._by_digest:
            return self._by_digest[candidate.digest]
        namesakes = self._by_title.get(candidate.title)
        likeness = self._likeness(candidate) if namesakes else None
        if not namesakes or likeness is None:
            return None
        for kept in namesakes:
            other = self._likeness(kept)
            if other is not None and (other ^ likeness).bit_count() <= MAX_DIFFERING_BITS:
                return kept
        return None


def _likenesses(view: IndexView) -> Callable[[Candidate], int | None]:
    """Signatures of pages' words, computed from the stored texts when two pages have one title.

    None if a page has too few words, or this search computed too many already.
    """
    left, known = MAX_LIKENESSES, view.likenesses

    def likeness(candidate: Candidate) -> int | None:
        nonlocal left
        if candidate.digest not in known and left:
            left -= 1
            if len(known) >= _MAX_KNOWN:
                known.clear()
            known[candidate.digest] = likeness_mark(_body(view.searcher.doc(candidate.address)))
        return known.get(candidate.digest)

    return likeness


# -- hits --------------------------------------------------------------------------------------------------


def show(view: IndexView, candidate: Candidate, snippets: Snippets) -> Hit:
    document = view.searcher.doc(candidate.address)
    url = _text(document, schema.URL)
    analysis = _text(document, schema.ANALYSIS)
    title = " ".join(_text(document, schema.named(schema.TITLE, analysis)).split())
    folded = map(view.searcher.doc, candidate.folded[:MAX_FOLDED])
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
