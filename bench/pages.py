"""What reading a page costs, by scan and by tree, on the real pages of this machine: python -m bench.pages.

Every page is also compared: the scan must be unsure or say what the tree says.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tests.web.test_scan import by_scan, by_tree

from sterna.web.charset import decode_text
from sterna.web.scan import scan

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
    by: dict[str, list[float]] = {"tree": [], "scan": []}
    unsure, differing = [], []
    for path in paths:
        text = decode_text(path.read_bytes(), None)[0]
        # In turn, page by page: the machine's speed wanders.
        by["tree"].append(seconds_of(by_tree, text))
        by["scan"].append(seconds_of(lambda text: scan(text, agent="sterna"), text))
        said = by_scan(text)
        if said is None:
            unsure.append(path)
        elif said != by_tree(text):
            differing.append(path)
    print(f"{len(paths)} pages, {len(unsure)} unsure, {len(differing)} differ")
    for name, seconds in by.items():
        mean, median = statistics.mean(seconds) * 1e6, statistics.median(seconds) * 1e6
        print(f"{name}: {mean:.0f} us a page, median {median:.0f}")
    for path in (*differing, *unsure[:20]):
        print("differs" if path in differing else "unsure", path)


def seconds_of(read: Callable[[str], object], text: str) -> float:
    """The faster of two runs."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        read(text)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
