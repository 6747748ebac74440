"""Bad input by the hundred thousand: to a host over HTTP, to home from a lying host, to all parsers of files.

python -m bench.fuzz [--count 100000] [--each 100000] [--seed 1]. --count inputs go to host and home together,
--each to each parser. Every input is made from the seed, the name of its kind and its number:
`--only "order, fields" --first 1234 --count 1` makes one of them again. After all of them the host must still
carry out a good visit, have left nothing behind, and end when it is told to. Whatever is not as it should be
is printed, and the code is 1.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench.fuzz_parts.apart import work_apart
from bench.fuzz_parts.besieging import besiege
from bench.fuzz_parts.deceiving import deceive
from bench.fuzz_parts.native import KIND as IN_C
from bench.fuzz_parts.native import read_in_c
from bench.fuzz_parts.parsing import read_files, read_responses
from bench.fuzz_parts.results import Part, Results, print_results

# How the inputs are shared out, in thousandths of them all.
HOST_SHARES = {
    "greeting, bytes": 100,
    "greeting, fields": 90,
    "greeting, garbage": 50,
    "order, bytes": 90,
    "order, fields": 120,
    "order, garbage": 60,
    "order, crawler": 10,
    "acknowledgement": 60,
    "http": 40,
}
HOME_SHARES = {
    "offer": 60,
    "problem": 40,
    "robots.txt": 10,
    "reply 1": 70,
    "report": 30,
    "stream": 120,
    "http answer": 30,
    "stored": 20,
}
READERS = ("read: page", "read: sitemap", "read: robots")
FILES = ("warc", "warc export", "policy", "storage.toml", "selector", "head", "search")
PROCESSES = 2


def main() -> None:
    given = read_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench.fuzz: ended"))  # so that nothing is left behind
    print(f"seed {given.seed}, {given.count:,} inputs", flush=True)
    results = Results()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work, suppress(KeyboardInterrupt):
        (Path(work) / "host").mkdir()
        at_host = parts_of(HOST_SHARES, given)
        if at_host:
            asyncio.run(besiege(at_host, Path(work) / "host", results))
        at_home = parts_of(HOME_SHARES, given)
        if at_home:
            work_apart(deceive, [at_home], Path(work) / "home", results)
        for kinds, read in ((READERS, read_responses), ((IN_C,), read_in_c), (FILES, read_files)):
            if shares := shares_of(kinds, given):
                work_apart(read, shares, Path(work) / read.__name__, results)
    print_results(results, seconds=time.monotonic() - began)
    sys.exit(1 if results.faults else 0)


def parts_of(shares: dict[str, int], given: argparse.Namespace) -> list[Part]:
    """How many of each kind, and from which number on."""
    if given.only:
        return [Part(given.only, given.seed, given.first, given.count)] if given.only in shares else []
    if not given.count:
        return []
    return [Part(kind, given.seed, 0, max(share * given.count // 1000, 1)) for kind, share in shares.items()]


def shares_of(kinds: Sequence[str], given: argparse.Namespace) -> list[list[Part]]:
    """The inputs of each process: all kinds, each for its part of the numbers."""
    if given.only:
        return [[Part(given.only, given.seed, given.first, given.count)]] if given.only in kinds else []
    size = -(-given.each // PROCESSES)
    firsts = range(0, given.each, size) if size else ()
    return [
        [Part(kind, given.seed, first, min(size, given.each - first)) for kind in kinds] for first in firsts
    ]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000, help="inputs for host and home; 0 for none")
    parser.add_argument("--each", type=int, default=100_000, help="inputs for each parser; 0 for none")
    parser.add_argument("--seed", type=int, default=1, help="another one gives other inputs")
    kinds = ["", *HOST_SHARES, *HOME_SHARES, *READERS, IN_C, *FILES]
    parser.add_argument("--only", default="", metavar="KIND", choices=kinds)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first one")
    return parser.parse_args()


if __name__ == "__main__":
    main()
