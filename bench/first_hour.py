"""What a new user waits for: python -m bench.first_hour.

Clones the project into an empty folder, as it is committed. Times the first crawl there, which makes the
environment and needs the network for it (or a local index), and then ten commands of the README. Ends with 1
if either takes too long.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_FIRST, MOST_TEN = 30.0, 60.0  # seconds

COMMANDS = (
    ("scripts/crawl",),
    ("sterna", "query", "crawls/demo", "SELECT title, depth FROM page WHERE text LIKE '%ice%'"),
    ("sterna", "query", "crawls/demo", "SELECT to_url FROM link JOIN page ON to_url = url WHERE status=404"),
    ("sterna", "search", "crawls/demo", "longest migration", "--limit", "1"),
    ("sterna", "status", "crawls/demo"),
    ("sterna", "list"),
    ("sterna", "explain", "SELECT title FROM page WHERE text LIKE '%ice%' AND depth < 4"),
    ("sterna", "export", "crawls/demo", "--to", "jsonl"),
    ("sterna", "doctor"),
    ("sterna", "crawl", "--into", "crawls/demo", "-o", "pages.csv"),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep", metavar="DIR", help="clone into this folder, and leave it there")
    place = Path(parser.parse_args().keep or tempfile.mkdtemp(prefix="sterna-first-")) / "sterna"
    try:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(place)], check=True)
        first = timed(("scripts/crawl",), place)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        print(f"{first:6.1f} s  first crawl from a fresh clone (at most {MOST_FIRST:g}); {cpu:.1f} s of CPU")
        ten = 0.0
        for command in COMMANDS:
            seconds = timed(command, place)
            ten += seconds
            print(f"{seconds:6.1f} s  {' '.join(command)[:90]}")
        print(f"{ten:6.1f} s  ten commands (at most {MOST_TEN:g})")
    finally:
        if not parser.parse_args().keep:
            shutil.rmtree(place.parent)
    if first > MOST_FIRST or ten > MOST_TEN:
        sys.exit(1)


def timed(command: tuple[str, ...], place: Path) -> float:
    """Runs a command as a new user does; whatever is found on the path comes after the clone's own."""
    environment = {**os.environ, "PATH": f"{place}/.venv/bin:{os.environ['PATH']}"}
    environment.pop("VIRTUAL_ENV", None)
    began = time.monotonic()
    subprocess.run(command, cwd=place, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
