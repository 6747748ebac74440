"""A large table takes no more memory than a small one: rows are written as they come."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.export.exported import SITE, page

from sterna.archive.segments import SegmentStore

PAGES, TEXT = 1_000, "tern " * 1_500  # of a segment; of a page
MORE_BYTES = 52_000_000

FEW, MANY = 16, 32  # segments; of fewer not all buffers are in use yet

# Exports as many of the segments as it is asked to, each time in a forked process; this tells the number of
# rows and the most memory that it ever had.
EXPORT = """
import os, resource, sys
from pathlib import Path
from sterna.export.tables import write_rows
from sterna.export.selection import Selection
from sterna.query.engine import Engine
form, *files = sys.argv[1:]
for line in sys.stdin:
    if os.fork():
        os.wait()
        continue
    paths = [Path(file) for file in files[:int(line)]]
    with Engine({"page": paths}) as engine, open("/dev/null", "wb") as out:
        count = write_rows(Selection(Path("made-up"), engine), out, table="page", form=form)
    print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    store = SegmentStore(tmp_path_factory.mktemp("segments"))
    found = []
    for number in range(MANY):
        pages = [page(f"/{number}/{each}", text=f"{each} {TEXT}") for each in range(PAGES)]
        found += [store.path(each.name) for each in store.write_pages([(SITE, one) for one in pages])]
    return found


@pytest.mark.servers
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_memory_does_not_grow_with_the_rows(segments: list[Path], form: str) -> None:
    assert len(TEXT) * PAGES * (MANY - FEW) > 2 * MORE_BYTES
    told = subprocess.run(
        [sys.executable, "-c", EXPORT, form, *map(str, segments)],
        input=f"{FEW}\n{MANY}\n",
        text=True,
        capture_output=True,
        check=True,
        env=os.environ,
    )
    (few, few_peak), (many, many_peak) = (map(int, line.split()) for line in told.stdout.splitlines())
    assert (few, many) == (PAGES * FEW, PAGES * MANY)
    assert many_peak - few_peak < MORE_BYTES
