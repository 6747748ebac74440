"""Which segments to merge: tiers, as in a log-structured merge tree."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from sterna.archive.manifest import Segment

FAN_IN = 16
MAX_BYTES = 512 << 20


def choose(
    segments: Sequence[Segment], *, fan_in: int = FAN_IN, max_bytes: int = MAX_BYTES
) -> list[list[Segment]]:
    """The groups to merge now, each of one table and tier; none larger than `max_bytes`."""
    tiers: defaultdict[tuple[str, int], list[Segment]] = defaultdict(list)
    for segment in sorted(segments, key=lambda segment: segment.name):
        # Above half the limit a segment is full: it could meet no partner of its own size.
        if segment.size_bytes <= max_bytes // 2:
            tiers[segment.table, segment.tier].append(segment)
    return [
        group for _, tier in sorted(tiers.items()) for group in _complete(tier, fan_in, max_bytes=max_bytes)
    ]


def _complete(tier: list[Segment], fan_in: int, *, max_bytes: int) -> Iterator[list[Segment]]:
    """The groups that one more segment would make too many or too large."""
    if len(tier) < fan_in:
        return
    group: list[Segment] = []
    size_bytes = 0
    for segment in tier:
        if group and (len(group) == fan_in or size_bytes + segment.size_bytes > max_bytes):
            yield group
            group, size_bytes = [], 0
        group.append(segment)
        size_bytes += segment.size_bytes
    if len(group) == fan_in:
        yield group
