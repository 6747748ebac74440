"""What a page's keywords cost beside reading the page, on the real pages here: python -m bench.keywords.

Reading a page is what a reader process does with an answer: from the body as it came to the document.
"""

import argparse
import gc
import random
import time
from collections import defaultdict
from pathlib import Path

from bench.pages import DOCS

from sterna.model import DEFAULT_FIELDS
from sterna.runtime.cell.forker import GARBAGE_OBJECTS
from sterna.web.document import Fetched, Manner, read_document

MANNERS = Manner().encoded(), Manner(wants=(*DEFAULT_FIELDS, "keywords")).encoded()
ROUNDS = 7
GOAL_PERCENT = 15


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=1_000, help="so many, chosen by chance; 0 for all")
    parser.add_argument("--show", type=int, default=0, help="print the keywords of so many of them")
    options = parser.parse_args()
    paths = sorted(path for path in DOCS.rglob("*.html") if path.is_file())
    if options.pages:
        paths = random.Random(1).sample(paths, min(options.pages, len(paths)))
    gc.freeze()  # as a reader does
    gc.set_threshold(GARBAGE_OBJECTS)
    compare(paths)
    for path in paths[: options.show]:
        document = read_document(answer(path.read_bytes(), MANNERS[1]))
        print(f"{path.relative_to(DOCS)}: {' '.join(document.keywords)}")


def compare(paths: list[Path]) -> None:
    """Prints what keywords add to the reading of these pages, by the packages that they come from."""
    spent: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    without, full = seconds_of([path.read_bytes() for path in paths])
    for number, path in enumerate(paths):
        spent[path.relative_to(DOCS).parts[0]].append((without[number], full[number]))
    print("| pages of | pages | us a page | with keywords | more |\n|---|---|---|---|---|")
    for name, seconds in sorted(spent.items(), key=lambda each: -len(each[1])):
        print(line(name, seconds))
    print(
        line(f"all; to be under {GOAL_PERCENT} %", [each for seconds in spent.values() for each in seconds])
    )


def seconds_of(bodies: list[bytes]) -> list[list[float]]:
    """What each page takes without and with keywords: the best of some rounds, for the speed wanders."""
    best = [[float("inf")] * len(bodies) for _ in MANNERS]
    for _ in range(ROUNDS):
        for number, body in enumerate(bodies):
            for manner, seconds in zip(MANNERS, best, strict=True):
                start = time.perf_counter()
                read_document(answer(body, manner))
                seconds[number] = min(seconds[number], time.perf_counter() - start)
    return best


def line(name: str, seconds: list[tuple[float, float]]) -> str:
    without, full = (1e6 * sum(column) / len(seconds) for column in zip(*seconds, strict=True))
    return f"| {name} | {len(seconds)} | {without:.0f} | {full:.0f} | {100 * (full / without - 1):.1f} % |"


def answer(body: bytes, manner: bytes) -> Fetched:
    return Fetched(
        url="http://h.test/a/b.html", status=200, content_type="text/html", body=body, manner=manner
    )


if __name__ == "__main__":
    main()
