"""Values on their way between processes: each comes with the type that it had."""

import math
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any
from uuid import UUID

import duckdb
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.query.values import packed_rows, packed_values, unpacked_rows, unpacked_values

VALUES: list[Any] = [
    None, True, 0, -(2**63), 2**64 - 1, 2**64, -(2**127), 1.5, math.inf, "", "ü\x00", b"\xff",
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(1, 1, 1),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3))),
    date(9999, 12, 31), time(23, 59, 59, 999999), timedelta(days=-3, microseconds=1), Decimal("1.10"),
    Decimal("-1E-30"), UUID(int=7), [], [1, [2, None]], (1, "a"), {"a": 1, "b": [date(2026, 1, 1)]},
    {1: "one", None: 2}, {(1, 2): {"x": Decimal(1)}},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_value_comes_back_with_its_type(value: Any) -> None:
    ((found,),) = unpacked_rows(packed_rows([(value,)]))
    assert (found, type(found)) == (value, type(value))
    assert repr(unpacked_values(packed_values({"x": value}))) == repr({"x": value})


def test_columns_may_be_mixed() -> None:
    rows = [(1, "a", None), (2**70, None, [1]), ("x", b"y", {"a": 1})]
    assert unpacked_rows(packed_rows(rows)) == rows
    assert unpacked_rows(packed_rows([])) == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.decimals(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=20,
    )
)
def test_any_nesting_comes_back(value: Any) -> None:
    assert repr(unpacked_rows(packed_rows([(value,)]))) == repr([(value,)])


def test_rows_of_duckdb_come_back() -> None:
    sql = """
    SELECT 1::TINYINT, 170141183460469231731687303715884105727, 0.1::DOUBLE, 1.5::DECIMAL(9, 2), 'x',
        '\\xAA'::BLOB, TIMESTAMPTZ '2026-01-02 03:04:05+00', TIMESTAMP_NS '2026-01-02 03:04:05.123456789',
        DATE '0044-03-15 (BC)', TIME '01:02:03', INTERVAL 3 DAY, uuid(), [1, NULL], {'a': 1, 'b': [2]},
        MAP {1: 'x'}, '101'::BIT, 'a'::ENUM('a', 'b'), union_value(n := 1), [1, 2]::INTEGER[2]
    """
    with duckdb.connect() as connection:
        rows = connection.execute(sql).fetchall()
    found = unpacked_rows(packed_rows(rows))
    assert found == rows
    assert [type(value) for value in found[0]] == [type(value) for value in rows[0]]


def test_values_that_are_of_a_kind_are_taken_as_its_plain_type() -> None:
    class Size(IntEnum):
        SMALL = 1

    class Text(str): ...

    given = {
        "a": Size.SMALL,
        "b": Text("x"),
        "c": OrderedDict(z=1),
        "d": bytearray(b"x"),
        "e": memoryview(b"y"),
    }
    found = unpacked_values(packed_values(given))
    assert found == {"a": 1, "b": "x", "c": {"z": 1}, "d": b"x", "e": b"y"}
    assert [type(value) for value in found.values()] == [int, str, dict, bytes, bytes]


def test_other_values_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="values of complex are not taken"):
        packed_values({"x": [1j]})


def ext(code: int, inner: object) -> bytes:
    """A row of one value with this tag."""
    return msgspec.msgpack.encode([[msgspec.msgpack.Ext(code, msgspec.msgpack.encode(inner))]])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (ext(12, 2**32), "written as bytes came as int"),
        (ext(12, [0] * 1000), "written as bytes came as list"),
        (ext(10, 5), "written as str came as int"),
        (ext(9, "1E+300000"), "too many digits"),
        (ext(2, bytes(6_000_000)), "written as list came as bytes"),
        (ext(2, "x" * 6_000_000), "written as list came as str"),
        (ext(3, bytes(6_000_000)), "written as list came as bytes"),
        (ext(3, {"a": 1}), "written as list came as dict"),
        (ext(4, bytes(6_000_000)), "written as list came as bytes"),
        (ext(4, "x" * 6_000_000), "written as list came as str"),
        (ext(8, bytes(6_000_000)), "written as list came as bytes"),
        (b"\xdd\x00\x98\x96\x80" + b"\x90" * 10_000_000, "more than 5,000,000 values"),
        (ext(2, [[]] * 6_000_000), "more than 5,000,000 values"),
        (msgspec.msgpack.encode([[msgspec.msgpack.Ext(2, msgspec.msgpack.encode([0] * 10**6))]] * 6), "more"),
    ],
    ids=[
        "bytes of a number",
        "of a list",
        "UUID",
        "decimal",
        "list of bytes",
        "list of a text",
        "tuple",
        "tuple of a dict",
        "dict",
        "dict of a text",
        "spans",
        "rows",
        "nested",
        "side by side",
    ],
)
def test_what_would_fill_the_memory_or_take_long_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        unpacked_rows(data)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"\x91\xa1x", b"\x91\x91\xd4\x63\xc0", b"\x91\x91\xd4\x05\xc0",
        b"\x91\x91\xd6\x05\xa3abc", b"\x91\x91\xd5\x0a\xa1x", b"\x91\x91\xd4\x04\x01",
        b"\x91\x91\xd5\x04\x91\xc0",
    ],
)  # fmt: skip
def test_malformed_rows_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        unpacked_rows(data)
