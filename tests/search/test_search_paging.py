"""Folding and paging: near-duplicates stand behind one hit, and the hits are one list."""

from collections.abc import Mapping, Sequence

from tantivy import DocAddress
from tests.search.shelf import SITE, Shelf, page

from sterna.search.ranking import MAX_FOLDED, MAX_LIKENESSES, Candidate, Folding
from sterna.search.searcher import Searcher

WORDS = " ".join(f"word{number}" for number in range(200))


def test_the_same_body_is_shown_once(shelf: Shelf) -> None:
    shelf.add(
        [page(path, "whales", digest="ab" * 16) for path in ("a", "b", "c")] + [page("d", "whales and terns")]
    )
    shelf.index()
    found = shelf.search("whales")
    assert [len(hit.folded) for hit in found.hits if hit.folded] == [2]
    shown = [url for hit in found.hits for url in (hit.url, *hit.folded)]
    assert sorted(shown) == [f"{SITE}/{path}" for path in "abcd"]
    assert (found.total, found.is_exact) == (2, True)


def test_nearly_the_same_words_under_one_title_are_shown_once(shelf: Shelf) -> None:
    shelf.add(
        [
            page("a", f"{WORDS} printed on Monday", title="Whales"),
            page("b", f"{WORDS} printed on Tuesday", title=" whales "),
            page("c", f"{WORDS} printed on Friday", title="Another title, the same template"),
            page("d", "word7 and quite another text", title="Whales"),
        ]
    )
    shelf.index()
    hits = shelf.search("word7").hits
    folded = {frozenset((hit.url, *hit.folded)) for hit in hits}
    assert folded == {
        frozenset({f"{SITE}/a", f"{SITE}/b"}),
        frozenset({f"{SITE}/c"}),
        frozenset({f"{SITE}/d"}),
    }


def test_pages_of_results_are_parts_of_one_list(shelf: Shelf) -> None:
    rows = [page(f"p{number}", f"whales {'x ' * (number % 50)}", title=f"T{number}") for number in range(700)]
    same = [page(f"s{number}", "whales", digest=f"{number % 40:032x}") for number in range(400)]
    shelf.add([each for pair in zip(rows, [*same, *rows[:300]], strict=True) for each in pair][:1100])
    shelf.index()
    with Searcher(shelf.index_folder) as searcher:
        whole = [hit.url for hit in searcher.search("whales", limit=1000).hits]
        for limit in (7, 10, 100):
            parts = [
                hit.url
                for offset in range(0, 500, limit)
                for hit in searcher.search("whales", limit=limit, offset=offset).hits
            ]
            assert parts == whole[: len(parts)]
            assert len(parts) >= 490
        assert len(whole) == len(set(whole))


def test_one_can_look_only_so_deep_and_it_is_said(shelf: Shelf) -> None:
    shelf.add([page(f"p{number}", f"whales {number}", title=f"T{number}") for number in range(1_200)])
    shelf.index()
    found = shelf.search("whales", limit=10, offset=1_000)
    assert found.hits == ()
    assert found.total == 1_200
    assert found.note == "only the first 1,000 hits are available"
    last = shelf.search("whales", limit=10, offset=995)
    assert len(last.hits) == 5


def folded(likenesses: Mapping[int, int | None], *chunks: Sequence[Candidate]) -> list[tuple[int, list[int]]]:
    folding = Folding(lambda candidate: likenesses.get(candidate.address.doc))
    for chunk in chunks:
        folding.add(chunk)
    return [(kept.address.doc, [other.doc for other in kept.folded]) for kept in folding.kept]


def candidate(place: int, score: float, inbound: int, digest: int, title: int) -> Candidate:
    return Candidate(DocAddress(0, place), score, inbound, digest, title)


def test_what_was_kept_keeps_its_rank_when_more_comes() -> None:
    first = [candidate(0, 1.0, 0, 10, 1), candidate(1, 2.0, 0, 11, 2)]
    then = [candidate(2, 5.5, 1_000_000, 10, 3), candidate(3, 0.1, 0, 12, 4)]
    assert folded({}, first, then) == [(1, []), (0, [2]), (3, [])]


def test_likeness_counts_only_under_one_title() -> None:
    likenesses = {0: 0b1111, 1: 0b0001, 2: 0b1111, 3: 0xFF << 8, 4: None}
    titles = (7, 7, 8, 7, 7)
    chunk = [candidate(place, 9.0 - place, 0, place, title) for place, title in enumerate(titles)]
    assert folded(likenesses, chunk) == [(0, [1]), (2, []), (3, []), (4, [])]


def test_a_site_with_one_title_for_all_pages_costs_no_more_than_it_may(shelf: Shelf) -> None:
    shelf.add([page(f"p{number}", f"{WORDS} {number}", title="Same") for number in range(150)])
    shelf.index()
    found = shelf.search("word7")
    assert len(found.hits[0].folded) == MAX_FOLDED
    assert found.total == 150 - (MAX_LIKENESSES - 1)
