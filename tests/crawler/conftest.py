"""What tests of the crawler share."""

from collections.abc import Iterator

import duckdb
import pytest


@pytest.fixture(scope="session")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB in memory: each test loads its own rows."""
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        yield connection
