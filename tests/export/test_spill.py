"""What is looked up may be larger than memory, and comes out sorted."""

import random
from pathlib import Path

from sterna.export.spill import Lookup


def test_lines_are_sorted_by_their_bytes(tmp_path: Path) -> None:
    chance = random.Random(7)
    lines = [f"{chance.getrandbits(32):08x} {number}\n" for number in range(5_000)]
    with Lookup(tmp_path / "lines") as lookup:
        assert all(lookup.add(line) for line in lines)
        assert list(lookup) == sorted(lines)


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
