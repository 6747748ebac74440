"""URLs: the data of the Web Platform Tests, and the table of crawler-commons."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.suites import Case, first_of

from sterna.web.urls import Canonical


def wpt(folder: Path) -> Iterator[Case]:
    """Every input with its base; a result that is no web URL is None for us, and so is a failure."""
    path = first_of(
        folder / "wpt" / "url" / "resources" / "urltestdata.json",
        folder / "ada" / "tests" / "wpt" / "urltestdata.json",
    )
    for entry in json.loads(path.read_text()):
        if isinstance(entry, dict):
            base = entry["base"] if entry.get("base") not in {None, "about:blank"} else None
            yield _case(entry["input"], base, entry.get("href", "") if not entry.get("failure") else "")


def crawler_commons(folder: Path) -> Iterator[Case]:
    table = folder / "crawler-commons" / "src" / "test" / "resources" / "url-utils" / "url-resolve.csv"
    lines = [line for line in first_of(table).read_text().splitlines() if line and not line.startswith("#")]
    for written, base, wanted, *_ in csv.reader(lines, skipinitialspace=True):
        yield _case(written, base or None, wanted)


def _case(written: str, base: str | None, wanted: str) -> Case:
    """Both sides in our own spelling, without fragment, password and tracking parameters."""
    canonical = Canonical()
    is_web = wanted.startswith(("http://", "https://"))
    name = f"{written} at {base}" if base else written
    return Case(ascii(name)[1:-1], canonical(written, base), canonical(wanted) if is_web else None)
