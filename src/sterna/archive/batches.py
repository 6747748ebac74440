"""Which batches the row groups of a segment hold: its statistics say it, and only its footer is read."""

import pyarrow.parquet as pq

from sterna.archive.rows import BATCH

_MOST = 2**63 - 1
_EARLY = (0, 0)  # of rows from before there were batches


def batches_of(metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    """The lowest and the highest batch of each row group."""
    column = _column(metadata)
    groups = range(metadata.num_row_groups)
    return [_EARLY if column is None else _range(metadata.row_group(group), column) for group in groups]


def _column(metadata: pq.FileMetaData) -> int | None:
    """Where the batch stands among the columns, of which a nested one is several."""
    paths = (metadata.schema.column(position).path for position in range(metadata.num_columns))
    return next((position for position, path in enumerate(paths) if path == BATCH), None)


def _range(group: pq.RowGroupMetaData, column: int) -> tuple[int, int]:
    said = group.column(column).statistics
    if said is None or not said.has_null_count:
        return 0, _MOST
    if said.null_count == group.num_rows:
        return _EARLY
    if not said.has_min_max:
        return 0, _MOST
    return 0 if said.null_count else said.min, said.max
