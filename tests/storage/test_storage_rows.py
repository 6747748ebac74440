"""Values on their way: as drivers take them, and kept for a row that waits."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from sterna.storage.position import ROW_LONGEST_SECONDS, delay
from sterna.storage.rows import as_json, bindable, from_json

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
ROW: dict[str, Any] = {
    "none": None,
    "truth": True,
    "whole": 2**70,
    "real": 0.1,
    "text": "a\x00\ud800\u202e'\"",
    "bytes": b"\x00\xff",
    "time": MOMENT,
    "day": date(2026, 1, 2),
    "hour": time(3, 4),
    "exact": Decimal("1.10"),
    "list": ["a", None, 1],
    "map": {"a": ["b"]},
}


def test_row_that_waits_comes_back_as_it_was() -> None:
    written = as_json(ROW)
    assert written.isascii()
    assert from_json(written) == ROW


@pytest.mark.parametrize(
    ("value", "sqlite", "postgres"),
    [
        (MOMENT, "2026-01-02 03:04:05.000678+00:00", MOMENT),
        (date(2026, 1, 2), "2026-01-02", date(2026, 1, 2)),
        (Decimal("2.50"), 2.5, Decimal("2.50")),
        (Decimal("2"), 2, Decimal("2")),
        (["a", "ü"], '["a", "ü"]', ["a", "ü"]),
        ({"a": MOMENT}, '{"a": "2026-01-02T03:04:05.000678Z"}', '{"a": "2026-01-02T03:04:05.000678Z"}'),
        (None, None, None),
        (b"x", b"x", b"x"),
    ],
)
def test_values_fit_the_driver(value: object, sqlite: object, postgres: object) -> None:
    rows = [(1, value), (2, None)]
    assert bindable(rows, kind="sqlite") == [(1, sqlite), (2, None)]
    assert bindable(rows, kind="postgresql") == [(1, postgres), (2, None)]


def test_waits_grow_up_to_the_longest() -> None:
    assert [delay(attempts, first=0.5, longest=60.0) for attempts in (1, 2, 3, 1000)] == [0.5, 1, 2, 60]
    assert [delay(attempts) for attempts in (1, 2)] == [60.0, 120.0]
    assert delay(1000) == ROW_LONGEST_SECONDS
