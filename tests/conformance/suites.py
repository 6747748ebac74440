"""Where other people's test suites lie, and what a case of one of them is."""

import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "STERNA_CONFORMANCE"
EXPECTED = Path(__file__).with_name("expected.txt")


@dataclass(frozen=True, slots=True)
class Case:
    """One question of a suite: what we say, and what it says."""

    name: str
    got: object
    wanted: object

    @property
    def passes(self) -> bool:
        return self.got == self.wanted


def folder() -> Path | None:
    """The folder with the suites; None if the environment names none."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def first_of(*places: Path) -> Path:
    """The first of these that exists."""
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"{' or '.join(map(str, places))} is missing: see tests/conformance/README.md")


def expected_failures(suite: str) -> dict[str, str]:
    """The reason of each failure that is expected, by the name of its case."""
    return {name: why for of, name, why in lines() if of == suite}


def lines() -> list[tuple[str, str, str]]:
    """Suite, case and reason of each line."""
    found = []
    for line in EXPECTED.read_text().splitlines():
        if line and not line.startswith("#"):
            suite, name, why = line.split(" | ")
            found.append((suite, name, why))
    return found
