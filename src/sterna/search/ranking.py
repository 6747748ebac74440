"""One search in one state of an index: candidates, their order, and the hits that are shown.

Candidates are taken in chunks of a fixed size, whatever part of the hits is asked for, and each chunk is
ranked and folded after the one before: so the hits are one list, of which every page of results is a part.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tantivy import DocAddress, Document, Query, Schema, Searcher

from sterna.model import Record
from sterna.search import schema
from sterna.search.documents import unpack
from sterna.search.folding import Candidate, Folding, Kept, weighed
from sterna.search.inbound import Inbound
from sterna.search.marks import likeness_mark
from sterna.search.results import Hit
from sterna.search.snippets import Snippets
from sterna.web.urls import site_of

CHUNK = 100
MAX_HITS = 1_000  # how deep one can look
MAX_FOLDED = 50  # URLs that are named for one hit
MAX_LIKENESSES = 64  # that one search may make: a site may give all its pages one title
_MAX_KNOWN = 20_000


class State(Record, frozen=True, gc=True):
    """What a search is made in."""

    searcher: Searcher
    fields: Schema
    inbound: Inbound
    likenesses: dict[int, int | None]  # by digest: those that searches needed before


class Ranked(Record, frozen=True, kw_only=True, gc=True):
    """The first of what matches a query, in order."""

    kept: list[Kept]
    addresses: list[DocAddress]
    total: int  # hits, or pages that match where not all were looked at
    is_exact: bool


def rank(state: State, query: Query, *, count: int) -> Ranked:
    """At least the first `count` hits, if there are as many."""
    addresses: list[DocAddress] = []
    folding = Folding(_Likenesses(state, addresses).of)
    matching = 0
    while True:
        result = state.searcher.search(query, limit=CHUNK, offset=len(addresses))
        matching = result.count or 0  # type: ignore[attr-defined]
        scores = [score for score, _ in result.hits]
        found = [address for _, address in result.hits]
        candidates = _candidates(state, found, scores, first=len(addresses))
        addresses += found
        folding.add(candidates)
        if len(found) < CHUNK or len(folding.kept) >= count or len(addresses) >= 2 * MAX_HITS:
            break
    is_exact = len(addresses) >= matching
    total = len(folding.kept) if is_exact else matching - (len(addresses) - len(folding.kept))
    return Ranked(kept=folding.kept, addresses=addresses, total=total, is_exact=is_exact)


def _candidates(
    state: State, addresses: list[DocAddress], scores: Sequence[float], *, first: int
) -> Iterator[Candidate]:
    marks: list[list[Any]] = [state.searcher.fast_field_values(name, addresses) for name in schema.MARKS]
    inbound_of = state.inbound.of
    for place, (score, number, digest, title) in enumerate(zip(scores, *marks, strict=True), first):
        inbound = inbound_of(number)
        yield Candidate(place, weighed(score, inbound), inbound, digest, title)


class _Likenesses:
    """The signatures of pages' words, made from their texts when two pages have the same title."""

    def __init__(self, state: State, addresses: Sequence[DocAddress]) -> None:
        self._state = state
        self._addresses = addresses
        self._left = MAX_LIKENESSES

    def of(self, candidate: Candidate) -> int | None:
        """None if the page has too few words, or too many pages were asked for."""
        known = self._state.likenesses
        if candidate.digest not in known:
            if not self._left:
                return None
            self._left -= 1
            if len(known) >= _MAX_KNOWN:
                known.clear()
            known[candidate.digest] = likeness_mark(_body(self._state, self._addresses[candidate.place]))
        return known.get(candidate.digest)


def _body(state: State, address: DocAddress) -> str:
    return unpack(bytes(state.searcher.doc(address).get_first(schema.BODY) or b""))


def show(state: State, ranked: Ranked, snippets: Snippets, *, offset: int, limit: int) -> tuple[Hit, ...]:
    """The hits of this part of the list."""
    part = ranked.kept[offset : min(offset + limit, MAX_HITS)]
    return tuple(_hit(state, kept, ranked.addresses, snippets) for kept in part)


def _hit(state: State, kept: Kept, addresses: Sequence[DocAddress], snippets: Snippets) -> Hit:
    candidate = kept.candidate
    document = state.searcher.doc(addresses[candidate.place])
    url = _text(document, schema.URL)
    analysis = _text(document, schema.ANALYSIS)
    title = " ".join(_text(document, schema.named(schema.TITLE, analysis)).split())
    folded = (state.searcher.doc(addresses[place]) for place in kept.folded[:MAX_FOLDED])
    return Hit(
        url=url,
        site=site_of(url),
        title=title,
        language=_text(document, schema.LANGUAGE),
        snippet=snippets.of_text(unpack(bytes(document.get_first(schema.BODY) or b"")), analysis),
        title_pieces=snippets.of_title(title, analysis),
        score=candidate.score,
        inbound=candidate.inbound,
        fetched=float(document.get_first(schema.FETCHED) or 0.0),
        folded=tuple(_text(other, schema.URL) for other in folded),
    )


def _text(document: Document, field: str) -> str:
    return str(document.get_first(field) or "")
