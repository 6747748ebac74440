"""The choice of what to merge."""

from hypothesis import given
from hypothesis import strategies as st

from sterna.archive.manifest import Segment
from sterna.archive.segments import choose_merges


def segments(count: int, *, table: str = "page", tier: int = 0, size_bytes: int = 10) -> list[Segment]:
    return [Segment(f"{tier}-{number:04}.{table}", table, 1, size_bytes, tier) for number in range(count)]


def test_fewer_than_the_fan_in_are_left_alone() -> None:
    assert choose_merges(segments(3), fan_in=4) == []


def test_the_oldest_are_merged_and_the_rest_wait() -> None:
    nine = segments(9)
    assert choose_merges(nine[::-1], fan_in=4) == [nine[:4], nine[4:8]]


def test_tables_and_tiers_are_not_mixed() -> None:
    mixed = segments(2) + segments(2, table="link") + segments(2, tier=1)
    assert choose_merges(mixed, fan_in=4) == []
    assert len(choose_merges(mixed, fan_in=2)) == 3


def test_a_group_ends_before_it_passes_the_limit() -> None:
    six = segments(6, size_bytes=40)
    assert choose_merges(six, fan_in=4, max_bytes=100) == [six[:2], six[2:4]]


def test_a_full_segment_is_never_merged_again() -> None:
    full = segments(4, size_bytes=60)
    assert choose_merges(full, fan_in=2, max_bytes=100) == []


def test_full_segments_do_not_hold_back_the_small() -> None:
    full = [Segment(f"a{number}.page", "page", 1, 90) for number in range(3)]
    small = segments(4)
    assert choose_merges(full + small, fan_in=4, max_bytes=100) == [small]


SEGMENT = st.builds(
    Segment,
    name=st.uuids().map(str),
    table=st.sampled_from(["page", "link"]),
    rows=st.just(1),
    size_bytes=st.integers(0, 200),
    tier=st.integers(0, 2),
)


@given(st.lists(SEGMENT, max_size=60, unique_by=lambda segment: segment.name), st.integers(2, 5))
def test_merging_as_chosen_comes_to_an_end(given_segments: list[Segment], fan_in: int) -> None:
    present = list(given_segments)
    merges = 0
    while groups := choose_merges(present, fan_in=fan_in, max_bytes=100):
        for group in groups:
            assert 2 <= len(group) <= fan_in
            assert len({(segment.table, segment.tier) for segment in group}) == 1
            assert sum(segment.size_bytes for segment in group) <= 100
            merges += 1
            present = [segment for segment in present if segment not in group]
            size_bytes = sum(segment.size_bytes for segment in group)
            present.append(
                Segment(f"merged-{merges:04}", group[0].table, len(group), size_bytes, group[0].tier + 1)
            )
    assert merges < max(len(given_segments), 1)
