"""The rows of a result written for a person (table), a spreadsheet (csv) or a program (json, jsonl, parquet).

A table is always harmless to the terminal that shows it. The others carry the data unchanged, unless safe
cells are asked for: then an apostrophe goes before what a spreadsheet might take for a formula. Control
characters are escaped in JSON, which has a way to write them, and in CSV only for a terminal.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, BinaryIO, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from sterna.query.engine import Batches, Result
from sterna.query.terminal import TextFormat, as_plain, as_text, harmless, table_lines

_WIDTH = 100

# Not escaped by json, but harmful to a terminal: DEL, C1, bidirectional and line controls, surrogates.
_UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# What begins a formula, also after what an import may trim or drop, and in full-width forms, which Excel may
# read as the narrow ones (OWASP, "CSV Injection"). A tab or end of line at the beginning may end the cell.
_BEGINNING = "[\\s\x00-\x20\u200b-\u200f\u2060\ufeff'\"]*[=+@\uff1d\uff0b\uff0d\uff20\u2212-]"
_FORMULA = re.compile(f"[\t\r\n]|{_BEGINNING}")
# A spreadsheet that separates cells by something else than commas begins another cell there.
_INNER_FORMULA = re.compile(f"([;|\t\r\n])(?={_BEGINNING})")


def write(
    result: Result,
    *,
    format: TextFormat,
    out: TextIO,
    width: int = _WIDTH,
    is_live: bool = False,
    safe_cells: bool = False,
) -> None:
    """Streams all rows; `width` is that of the terminal; a live table has fixed column widths.

    With `safe_cells`, which is for CSV, no spreadsheet takes a text for a formula.
    """
    if format == "csv":
        _write_csv(result, out, safe_cells=safe_cells)
    elif format == "json":
        _write_json(result, out)
    else:
        is_table = format == "table"
        for line in table_lines(*result, width=width, is_live=is_live) if is_table else _json_lines(result):
            out.write(f"{line}\n")
            if is_live:
                out.flush()


def write_parquet(result: Batches, out: BinaryIO) -> int:
    """Writes all rows as Parquet, and returns their number; repeated names get another one."""
    count = 0
    schema, batches = with_distinct_names(result)
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def with_distinct_names(result: Batches) -> Batches:
    names = distinct(result.schema.names)
    schema = pa.schema([field.with_name(name) for field, name in zip(result.schema, names, strict=True)])
    batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in result.batches)
    return Batches(schema, batches)


def _write_csv(result: Result, out: TextIO, *, safe_cells: bool) -> None:
    show = harmless if out.isatty() else str
    cell = _safe_cell if safe_cells else as_text
    writer = csv.writer(_UnixLines(out))
    writer.writerow([show(cell(name)) for name in result.columns])
    for row in result.rows:
        writer.writerow([show(cell(value)) for value in row])


def _safe_cell(value: Any) -> str:
    text = as_text(value)
    if isinstance(value, int | float | Decimal):
        return text
    text = _INNER_FORMULA.sub(r"\1'", text)
    return f"'{text}" if _FORMULA.match(text) else text


class _UnixLines(NamedTuple):
    """Ends rows as Unix tools expect; the csv module's own option leaves a bare CR unquoted."""

    out: TextIO

    def write(self, row: str) -> int:
        return self.out.write(row.removesuffix("\r\n") + "\n")


def _write_json(result: Result, out: TextIO) -> None:
    """One array, a line for each row; left open after an error, so that a partial result is invalid."""
    before = "["
    for line in _json_lines(result):
        out.write(f"{before}\n{line}")
        before = ","
    out.write("[]\n" if before == "[" else "\n]\n")


def _json_lines(result: Result) -> Iterator[str]:
    names = distinct(result.columns)
    for row in result.rows:
        record = {name: as_plain(value) for name, value in zip(names, row, strict=True)}
        text = json.dumps(record, ensure_ascii=False)
        yield _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def distinct(columns: Sequence[str]) -> list[str]:
    """The names with a number after repeated ones: an object would keep only the last."""
    names: list[str] = []
    for column in columns:
        name, again = column, 2
        while name in names:
            name, again = f"{column}_{again}", again + 1
        names.append(name)
    return names
