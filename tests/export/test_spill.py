"""Lines are sorted however many there are, and what is looked up may be larger than memory."""

import random
from pathlib import Path

from sterna.export.spill import Lookup, Sorter


def test_lines_are_sorted_over_many_runs(tmp_path: Path) -> None:
    chance = random.Random(7)
    lines = [b"%08x %d\n" % (chance.getrandbits(32), number) for number in range(5_000)]
    sorter = Sorter(tmp_path, run_bytes=400)
    for line in lines:
        sorter.add(line)
    assert 1 < len(list(tmp_path.iterdir())) <= 64
    assert list(sorter.lines()) == sorted(lines)


def test_few_lines_need_no_disk(tmp_path: Path) -> None:
    sorter = Sorter(tmp_path)
    for line in (b"b\n", b"a\n", b"a\n"):
        sorter.add(line)
    assert list(sorter.lines()) == [b"a\n", b"a\n", b"b\n"]
    assert list(tmp_path.iterdir()) == []


def test_lookup_knows_what_it_was_told(tmp_path: Path) -> None:
    with Lookup(tmp_path / "known") as lookup:
        lookup.add_all(f"http://a/{number}" for number in range(1_000))
        assert "http://a/999" in lookup
        assert "http://a/1000" not in lookup
        assert (lookup.add("b"), lookup.add("b")) == (True, False)
        lookup.put_newest("c", "2")
        lookup.put_newest("c", "1")
        lookup.put_newest("c", "3")
        assert lookup.get("c") == "3"
