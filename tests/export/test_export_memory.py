"""A large table takes no more memory than a small one: rows are written as they come."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.export.exported import SITE, page

from sterna.archive.segments import SegmentStore

PAGES, TEXT = 1_000, "tern " * 1_500  # of a segment; of a page
MORE_BYTES = 80_000_000

# Exports the segments that it is given, and tells the most memory that it ever had.
EXPORT = """
import resource, sys
from pathlib import Path
from sterna.export.tables import write_rows
from sterna.export.selection import Selection
from sterna.query.engine import Engine
form, *files = sys.argv[1:]
with Engine({"page": [Path(file) for file in files]}) as engine, open("/dev/null", "wb") as out:
    count = write_rows(Selection(Path("made-up"), engine), out, table="page", form=form)
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    store = SegmentStore(tmp_path_factory.mktemp("segments"))
    found = []
    for number in range(26):
        pages = [page(f"/{number}/{each}", text=f"{each} {TEXT}") for each in range(PAGES)]
        found += [store.path(each.name) for each in store.write_pages([(SITE, one) for one in pages])]
    return found


def peak_bytes(form: str, files: list[Path]) -> int:
    told = subprocess.run(
        [sys.executable, "-c", EXPORT, form, *map(str, files)],
        capture_output=True,
        check=True,
        env=os.environ,
    )
    count, peak = map(int, told.stdout.split())
    assert count == PAGES * len(files)
    return peak


@pytest.mark.servers
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_memory_does_not_grow_with_the_rows(segments: list[Path], form: str) -> None:
    few, many = segments[:4], segments
    text_bytes = len(TEXT) * PAGES * (len(many) - len(few))
    assert text_bytes > 2 * MORE_BYTES
    assert peak_bytes(form, many) - peak_bytes(form, few) < MORE_BYTES
