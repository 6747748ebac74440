"""Frames between processes: bounded where they are made, and checked where they arrive."""

import struct
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.archive.frames import FRAME_BYTES, frames_of, packed, read_table, table_of, unpacked
from sterna.errors import StorageError


def test_tables_go_in_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.archive.frames.FRAME_BYTES", 10_000)
    table = pa.table({"text": ["x" * 999] * 100, "n": list(range(100))})
    frames = list(frames_of([table, table.slice(0, 0)]))
    assert len(frames) > 9
    assert max(map(len, frames)) < 20_000
    assert pa.concat_tables(map(read_table, frames)).equals(table)


def forged_offsets() -> bytes:
    """A table of texts whose last one ends far behind the data."""
    (frame,) = frames_of([pa.table({"text": ["abcd"] * 4})])
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 4, 8, 12, 16))
    assert frame.count(offsets) == 1
    return frame.replace(offsets, offsets[:-4] + (1 << 30).to_bytes(4, "little"))


def forged_text() -> bytes:
    (frame,) = frames_of([pa.table({"text": ["abcd"]})])
    return frame.replace(b"abcd", b"ab\xff\xfe")


@pytest.mark.parametrize(
    "frame",
    [b"", b"nonsense", forged_offsets(), forged_text(), next(frames_of([pa.table({"n": [1]})]))[:-40]],
    ids=["nothing", "nonsense", "offsets", "no UTF-8", "cut"],
)
def test_malformed_table_is_refused(frame: bytes) -> None:
    with pytest.raises(StorageError, match="a confined process sent a malformed table"):
        read_table(frame)


def test_table_of_other_columns_is_refused() -> None:
    (frame,) = frames_of([pa.table({"url": [1]})])
    with pytest.raises(StorageError, match=r"sent the columns \['url'\], asked \['url'\]"):
        table_of(frame, pa.schema({"url": pa.string()}))


def test_message_of_another_form_is_refused() -> None:
    with pytest.raises(StorageError, match="a confined process sent a malformed answer"):
        unpacked(b"\xa1x", int)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("has_dictionary", [False, True])
def test_compressed_table_is_refused_before_it_fills_the_memory(
    compression: str, has_dictionary: bool
) -> None:
    values = pa.array(["x" * 100_000_000])
    table = pa.table({"text": values.dictionary_encode() if has_dictionary else values})
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(out, table.schema, options=options) as stream:
        stream.write_table(table)
    frame = out.getvalue().to_pybytes()
    assert len(frame) < 1_000_000
    before = pa.total_allocated_bytes()
    with pytest.raises(StorageError, match="a confined process sent a compressed table"):
        read_table(frame)
    assert pa.total_allocated_bytes() == before


def test_compression_that_an_early_version_names_in_metadata_is_refused() -> None:
    """As Arrow 0.17 wrote it; today's still reads it."""
    batch = pa.record_batch({"n": [1, 2, 3]})
    (frame,) = frames_of([pa.Table.from_batches([batch])])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as stream:
        stream.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    assert read_table(frame).num_rows == 3
    with pytest.raises(StorageError, match="a confined process sent a compressed table"):
        read_table(out.getvalue().to_pybytes())


MANY = 1 << 26
SHARED = 20_000
ONES = pa.array([1] * SHARED, pa.int8())


def views(kind: pa.DataType) -> pa.Array:
    """Many texts of a megabyte, all in the same place."""
    text = b"x" * 1_000_000
    each = struct.pack("<i4sii", len(text), text[:4], 0, 0)
    return pa.Array.from_buffers(kind, SHARED, [None, pa.py_buffer(each * SHARED), pa.py_buffer(text)])


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.nulls(MANY), "sent 67,108,864 values"),
        (pa.ListArray.from_arrays([0, MANY], pa.nulls(MANY)), "sent 67,108,864 values"),
        (pa.StructArray.from_arrays([pa.nulls(MANY)], ["n"]), "sent 67,108,864 values"),
        (pa.MapArray.from_arrays([0, 1], ["k"], pa.array([[None]], pa.list_(pa.null()))), ""),
        (pa.DictionaryArray.from_arrays(pa.array([0] * 9_000, pa.int8()), ["x" * 1_000_000]), "repeats"),
        (pa.RunEndEncodedArray.from_arrays([1 << 30], ["x"]), "sent 1,073,741,824 values"),
        (pa.RunEndEncodedArray.from_arrays([1 << 10], ["x" * 1_000_000]), "values of run_end_encoded"),
        (views(pa.string_view()), "values of string_view"),
        (views(pa.binary_view()), "values of binary_view"),
        (pa.ListViewArray.from_arrays([0] * SHARED, [SHARED] * SHARED, ONES), "values of list_view"),
        (
            pa.LargeListViewArray.from_arrays([0] * SHARED, [SHARED] * SHARED, ONES),
            "values of large_list_view",
        ),
        (pa.StructArray.from_arrays([views(pa.string_view())], ["n"]), "values of string_view"),
        (pa.ListArray.from_arrays([0, SHARED], views(pa.string_view())), "values of string_view"),
        (pa.DictionaryArray.from_arrays([0], pa.array(["x"], pa.string_view())), "values of string_view"),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ""),
    ],
    ids=[
        "nulls",
        "list",
        "struct",
        "map",
        "dictionary",
        "runs",
        "runs of a long text",
        "text views",
        "byte views",
        "list views",
        "large list views",
        "views in a struct",
        "views in a list",
        "enum of views",
        "enum",
    ],
)
def test_values_that_need_no_bytes_are_bounded(column: pa.Array, said: str) -> None:
    (frame,) = frames_of([pa.table({"c": column})])
    if not said:
        assert read_table(frame)["c"].to_pylist() == column.to_pylist()
        return
    assert len(frame) < 2_000_000
    with pytest.raises(StorageError, match=said):
        read_table(frame)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_table_is_refused_or_whole(data: st.DataObject) -> None:
    texts = pa.array(["abcd", None, "e"])
    table = pa.table(
        {"text": texts, "kind": texts.dictionary_encode(), "list": [[1], [], [2, 3]], "n": [1, 2, 3]}
    )
    (frame,) = frames_of([table])
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(frame) - 4))
        struct.pack_into(
            "<I", damaged, place, data.draw(st.sampled_from([0, 1, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF]))
        )
    try:
        found = read_table(bytes(damaged[: data.draw(st.integers(0, len(frame)))]))
    except StorageError:
        return
    assert len(found.to_pylist()) == found.num_rows


def test_messages_have_paths_and_nothing_else_of_python() -> None:
    assert unpacked(packed({"a": Path("/c/x")}), dict[str, Path]) == {"a": Path("/c/x")}
    with pytest.raises(TypeError):
        packed(object())


def test_frames_are_bounded_also_where_few_rows_have_nearly_all_the_bytes() -> None:
    long = FRAME_BYTES // 2
    texts = ["x" * long if 40 <= number < 48 else "" for number in range(1_000)]
    table = pa.table({"text": texts, "number": range(1_000)})
    found = list(frames_of([table, table.slice(0, 0)]))
    assert max(map(len, found)) < FRAME_BYTES * 1.1
    assert pa.concat_tables(map(read_table, found)).equals(table)
