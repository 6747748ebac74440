"""Samples: how many, that each page has the same chance, and what a witness of a visit keeps."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.home.away.lying import SITE, page, parcel
from tests.home.belief.lying_sites import detection

from sterna.model import Checkpoint, Ended, Links, Page, Raw, Target
from sterna.trust.sampling import MOST_SAMPLES, Witness, sample_count
from sterna.trust.score import Belief, Score, belief, counted
from sterna.trust.sketch import weight_of_page
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint

UNKNOWN = belief(Score(), 0.0)
PAGES = [page(f"/{number}") for number in range(1_000)]


def known(good: int, bad: int = 0) -> Belief:
    return belief(counted(Score(), good=good, bad=bad, now=0.0), 0.0)


def drawn(count: int, shown: int, seed: int) -> list[str]:
    seen = Witness(Random(seed))
    seen.see(parcel(1, *PAGES[:shown]))
    return [each.page.url for each in seen.draw(count)]


def test_59_samples_find_one_altered_page_in_twenty_with_95_percent() -> None:
    assert MOST_SAMPLES == 59
    assert detection(0.05, 59) >= 0.95 > detection(0.05, 58)


@pytest.mark.parametrize(("share", "samples", "chance"), [(0.01, 59, 0.447), (0.2, 59, 1.0), (0.05, 0, 0.0)])
def test_detection_follows_the_formula(share: float, samples: int, chance: float) -> None:
    assert detection(share, samples) == pytest.approx(chance, abs=0.001)


@pytest.mark.parametrize(
    ("pages", "count"), [(0, 0), (1, 1), (20, 1), (21, 2), (243, 13), (1_180, 59), (100_000, 59)]
)
def test_unknown_host_is_checked_by_59_pages_or_one_in_twenty(pages: int, count: int) -> None:
    assert sample_count(UNKNOWN, pages) == count


def test_proven_host_is_sampled_little_and_never_not_at_all() -> None:
    counts = [sample_count(known(good), 20_000) for good in (0, 10, 28, 59, 200, 1_000, 100_000)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 59
    assert sample_count(known(28), 20_000) <= 7
    assert sample_count(known(100_000), 20_000) == 1


def test_host_that_lied_is_sampled_as_an_unknown_one() -> None:
    assert sample_count(known(0, bad=3), 20_000) == 59


@pytest.mark.parametrize(("pages", "count"), [(10, 10), (243, 59), (20_000, 59)])
def test_strict_check_knows_no_score_and_no_share(pages: int, count: int) -> None:
    assert sample_count(known(1_000), pages, is_strict=True) == count


def test_all_pages_are_kept_where_there_is_room() -> None:
    assert sorted(drawn(9, 3, seed=1)) == [each.url for each in PAGES[:3]]


def test_every_page_has_the_same_chance() -> None:
    """Each of 80 pages is drawn in about a fifth of 3,000 visits: six standard deviations are 0.044."""
    counts = Counter(url for seed in range(3_000) for url in drawn(16, 80, seed))
    assert set(counts) == {each.url for each in PAGES[:80]}
    assert all(abs(count / 3_000 - 16 / 80) < 0.044 for count in counts.values())


def test_another_seed_draws_others() -> None:
    assert drawn(20, 1_000, seed=1) != drawn(20, 1_000, seed=2)


# -- the witness of a visit --------------------------------------------------------------------------------

BODY = b"<p>terns"


def witness() -> Witness:
    return Witness(Random(1))


def with_raw(body: bytes, head: bytes = b"HTTP/1.1 200 OK\r\n\r\n", **fields: Any) -> Page:
    raw = Raw(b"", head, body, "10.0.0.1")
    return page("/", **({"raw": raw, "digest": digest_of(BODY)} | fields))


def test_all_that_was_mentioned_is_known() -> None:
    seen = witness()
    seen.see(parcel(1, page("/a"), checkpoint=Checkpoint(found=(Target(f"{SITE}/b"),), done=(7,))))
    seen.see(parcel(2, checkpoint=Checkpoint(again=(Target(f"{SITE}/c"),)), ended=Ended.FINISHED))
    assert seen.mentioned == {7, *(fingerprint(f"{SITE}/{name}") for name in "abc")}
    assert (seen.pages, seen.ended) == (1, Ended.FINISHED)


def test_urls_to_try_again_are_remembered_only_if_they_are_left_at_the_end() -> None:
    """Each parcel names all of them anew, and a host could name others each time."""
    seen = witness()
    seen.see(parcel(1, checkpoint=Checkpoint(again=(Target(f"{SITE}/a"),))))
    assert not seen.mentioned


def test_no_more_pages_are_kept_than_can_be_checked() -> None:
    seen = witness()
    seen.see(parcel(1, *(page(f"/{n}", fetched=100.0 - n) for n in range(99))))
    assert len(seen.draw(1_000)) == MOST_SAMPLES
    assert (seen.checkable, seen.earliest) == (99, 2.0)


def test_what_cannot_be_checked_is_not_drawn() -> None:
    seen = witness()
    seen.see(parcel(1, page("/a", status=0, error="rules"), page("/b", status=0, error="refused")))
    assert (seen.pages, seen.checkable, seen.draw(5)) == (2, 0, [])


def test_raw_response_of_a_sampled_page_is_kept_where_it_can_be_compared() -> None:
    unchanged, plain = with_raw(b"", is_unchanged=True), page("/", digest=digest_of(BODY))
    for told, raw in ((with_raw(BODY), BODY), (unchanged, None), (plain, None)):
        seen = witness()
        seen.see(parcel(1, told))
        (kept,) = seen.draw(1)
        assert (kept.raw.body if kept.raw else None, kept.page.raw) == (raw, None)


def test_raw_responses_of_a_sample_are_bounded_together_and_the_largest_is_dropped() -> None:
    mib = 1 << 20
    seen = witness()
    sizes = [9 * mib, mib, 6 * mib, 2 * mib]
    bodies = [with_raw(bytes(size), url=f"{SITE}/{size}", fingerprint=size) for size in sizes]
    for number, told in enumerate(bodies):
        seen.see(parcel(number + 1, told))
    kept = [each.raw_bytes // mib for each in seen.draw(9) if each.raw]
    assert (sorted(kept), len(seen.draw(9))) == ([1, 2, 6], 4)


def test_sample_of_enormous_pages_takes_little_memory() -> None:
    """Also those that were not brought, and those that moved: a host can say of them what it likes."""
    seen = witness()
    fields: list[dict[str, Any]] = [
        {},
        {"status": 0, "error": "timeout"},
        {"status": 301, "depth": 0, "links": Links("https://other.example/" + "x" * 2_000_000)},
    ]
    for number, given in enumerate(fields * 20):
        text = f"\N{BIRD}{number} " + "tern " * 500_000
        seen.see(parcel(number + 1, page(f"/{number}", **({"text": text} | given))))
    kept = [each.page for each in seen.draw(100)] + seen.excuses
    assert len(kept) > MOST_SAMPLES
    assert sum(map(weight_of_page, kept)) < 500_000
