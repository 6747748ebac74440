"""Damaged pages, files and texts of each kind that bench.fuzz makes: read, or refused in one short line."""

from pathlib import Path

import pytest
from bench.fuzz import FILES, READERS
from bench.fuzz_parts.apart import Course
from bench.fuzz_parts.parsing import read_files, read_responses
from bench.fuzz_parts.results import Part

COUNT = 64

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("kind", [*READERS, *FILES])
def test_every_input_is_read_or_refused_in_one_short_line(tmp_path: Path, kind: str) -> None:
    course = Course([0.0, 0.0, 0.0])
    read = read_responses if kind in READERS else read_files
    read([Part(kind, seed=7, first=0, count=COUNT)], tmp_path, course)
    assert course.results.faults == []
    assert course.results.tally(kind).answers.total() == COUNT
