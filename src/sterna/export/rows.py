"""Rows of a table as JSON lines, CSV or Parquet; as they come, so that no table is too large."""

import io
from typing import BinaryIO, Literal

from sterna.export.progress import Progress, Tally
from sterna.export.selection import Source
from sterna.query.output import write, write_parquet

Form = Literal["jsonl", "csv", "parquet"]
_BATCH_ROWS = 1_024  # of Parquet, held in memory with all their texts


def write_rows(source: Source, out: BinaryIO, *, table: str, form: Form, progress: Progress) -> int:
    """Writes the rows, and tells how many there are."""
    progress.begin(f"rows of {table}", total=source.check(table), unit="rows")
    sql, tally = source.select("*", table=table), Tally(progress)
    if form == "parquet":
        found = source.engine.run_arrow(sql, batch_rows=_BATCH_ROWS)
        batches = tally.of(source.kept(found.batches), lambda batch: int(batch.num_rows))
        write_parquet(found._replace(batches=batches), out)
        return tally.count
    result = source.engine.run(sql)
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    try:
        write(result._replace(rows=tally.of(source.kept(result.rows))), format=form, out=text)
    finally:
        text.detach()  # the stream is not ours to close
    return tally.count
