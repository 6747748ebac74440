"""What reading a page costs, in C and by the tree, on the real pages of this machine: python -m bench.pages.

Every page is also compared: C must be in doubt or say what the tree says.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from sterna.model import DEFAULT_FIELDS
from sterna.web.charset import decode_text
from sterna.web.markup import Findings
from sterna.web.native.judge import is_different
from sterna.web.native.reader import NativeReader
from sterna.web.walk import read_tree

DOCS = Path("/usr/share/doc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=0, help="so many, chosen by chance; 0 for all")
    options = parser.parse_args()
    paths = sorted(path for path in DOCS.rglob("*.html") if path.is_file())
    if options.pages:
        paths = random.Random(1).sample(paths, min(options.pages, len(paths)))
    compare(paths)


def compare(paths: list[Path]) -> None:
    native = NativeReader()
    by: dict[str, list[float]] = {"tree": [], "C": []}
    doubted, differing = [], []
    for path in paths:
        text = decode_text(path.read_bytes(), None)[0]
        # In turn, page by page: the machine's speed wanders.
        told, seconds = timed(lambda text: read_tree(text, agent="sterna"), text)
        by["tree"].append(seconds)
        found, seconds = timed(lambda text: native.read(text, agent="sterna", wants=DEFAULT_FIELDS), text)
        by["C"].append(seconds)
        if found is None:
            doubted.append(path)
        elif told is None or is_different(found, told, DEFAULT_FIELDS):
            differing.append(path)
    print(f"{len(paths):,} pages, {len(doubted):,} in doubt, {len(differing)} differ")
    for name, times in by.items():
        mean, median = statistics.mean(times) * 1e6, statistics.median(times) * 1e6
        print(f"{name}: {mean:.0f} us a page, median {median:.0f}")
    for path in (*differing, *doubted[:20]):
        print("differs" if path in differing else "in doubt", path)


def timed(read: Callable[[str], Findings | None], text: str) -> tuple[Findings | None, float]:
    """What was read, and the faster of two runs."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        found = read(text)
        times.append(time.perf_counter() - start)
    return found, min(times)


if __name__ == "__main__":
    main()
