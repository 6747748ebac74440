"""What a crawl has in its files and its database, in a form that two runs can be compared by, and the table.

Times, the numbers of visits, batches and facts, and what depends on the order of the answers (depth,
referrer) differ between any two runs. They are left out.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.chaos_parts.plan import Role
from bench.chaos_parts.stage import TABLES, Stage
from tests.crawl.running import ask, rows
from tests.search.shelf import held_in
from warcio.archiveiterator import ArchiveIterator

from sterna.search import generations

MAX_SHOWN = 20  # differences of one round

Row = tuple[Any, ...]
Result = Mapping[str, Counter[Row]]  # the rows of each kind, and how often each is there

_STORED = {
    "page": "SELECT url, status, error, title, content_type, size, digest, md5(text) FROM t",
    "link": "SELECT from_url, to_url, text, rel FROM t",
}
_ERROR = 2  # where a stored page has it


def collect(stage: Stage) -> Result:
    """Everything that a crawl which is over has stored: every row of its files, outdated ones too."""
    folder, postgres, database = stage.collection, stage.postgres, stage.database
    index = folder / "index"
    stored = {table: Counter(rows(folder, sql, table)) for table, sql in _STORED.items()}
    copied = {table: postgres.run(database, f"SELECT * FROM {table}") for table in TABLES}
    facts = ask(folder, "SELECT crawler, site, kind, template, data::VARCHAR AS data FROM fact")
    events = ask(folder, "SELECT url, kind, status, digest FROM event")
    return {
        "pages": stored["page"],
        "links": stored["link"],
        "facts": Counter(tuple(row.values()) for row in facts),
        "events": Counter(tuple(row.values()) for row in events),
        "rows": Counter((table, *row) for table, found in copied.items() for row in found),
        "WARC": count_records(folder / "warc"),
        "index": Counter(held_in(index) if generations.current(index) else ()),
    }


def collect_newest(stage: Stage) -> Result:
    """The newest version of each page and of its links, and the index."""
    folder = stage.collection
    views = {table: ask(folder, sql.replace("FROM t", f"FROM {table}")) for table, sql in _STORED.items()}
    newest = {table: Counter(tuple(row.values()) for row in found) for table, found in views.items()}
    index = Counter(held_in(folder / "index"))
    return {"pages": newest["page"], "links": newest["link"], "index": index}


def count_records(folder: Path) -> Counter[Row]:
    """The records of all WARC files by type and URL, each read to its end and checked by its digest."""
    found: Counter[Row] = Counter()
    for path in folder.iterdir():
        if path.name.endswith(".open"):
            found["left open", path.name] += 1
            continue
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                record.content_stream().read()
                if record.rec_type != "warcinfo":
                    found[record.rec_type, record.rec_headers["WARC-Target-URI"]] += 1
    return found


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows that one run has and the other has not."""

    missing: Counter[Row]
    doubled: Counter[Row]  # rows that are right, but there more often than they should be
    other: Counter[Row]  # rows that should not be there at all

    def __bool__(self) -> bool:
        return bool(self.missing or self.doubled or self.other)

    def lines(self, kind: str) -> list[str]:
        """One line each."""
        parts = {"missing": self.missing, "twice": self.doubled, "wrong": self.other}
        return [
            f"{kind}, {name}: {str(row)[:200]}" + (f" ({count} times)" if count > 1 else "")
            for name, found in parts.items()
            for row, count in found.items()
        ]


def compare(expected: Result, found: Result) -> dict[str, Difference]:
    """What differs, for each kind that was found."""
    return {kind: _differ(expected[kind], rows_found) for kind, rows_found in found.items()}


def _differ(expected: Counter[Row], found: Counter[Row]) -> Difference:
    surplus = found - expected
    doubled = Counter({row: count for row, count in surplus.items() if row in expected})
    return Difference(missing=expected - found, doubled=doubled, other=surplus - doubled)


def broken_pages(expected: Result, found: Result) -> list[str]:
    """The pages that could not be read although they can be: the signals cost their readers or engines."""
    errors = {row[0] for row in expected["pages"] if row[_ERROR]}
    return sorted(row[0] for row in found["pages"] if row[_ERROR] and row[0] not in errors)


@dataclass(slots=True)
class Tally:
    """What came of a scenario; changed by add() and by the driver of its rounds."""

    scenario: str
    rounds: int = 0
    kills: Counter[Role] = field(default_factory=Counter)
    stops: Counter[Role] = field(default_factory=Counter)
    runs: int = 0  # of the crawl's command, all rounds together
    visits: Counter[str] = field(default_factory=Counter)  # by place
    compared: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    doubled: int = 0
    wrong: int = 0
    broken: int = 0  # pages that became errors because their readers were killed again and again
    left: int = 0  # rounds after which index or rows were completed by hand
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)  # in words, other than differences

    @property
    def signals(self) -> int:
        return self.kills.total() + self.stops.total()

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.doubled or self.wrong or self.faults)

    def add(self, found: Result, differences: Mapping[str, Difference]) -> list[str]:
        """Counts a round that was compared; returns its differences, one line each."""
        for kind, rows_found in found.items():
            self.compared[kind] += rows_found.total()
        for each in differences.values():
            self.missing += each.missing.total()
            self.doubled += each.doubled.total()
            self.wrong += each.other.total()
        lines = [line for kind, each in differences.items() for line in each.lines(kind)]
        more = [f"... and {len(lines) - MAX_SHOWN:,} more"] if len(lines) > MAX_SHOWN else []
        return lines[:MAX_SHOWN] + more


def print_tallies(tallies: list[Tally]) -> None:
    """Tables as the README has them."""
    names = [tally.scenario for tally in tallies]
    print()
    _print_row("SIGKILL + SIGSTOP to", *names, "all")
    _print_row(*["---"] * (len(names) + 2))
    for role in Role:
        cells = [f"{tally.kills[role]} + {tally.stops[role]}" for tally in tallies]
        _print_row(role, *cells, sum(tally.kills[role] + tally.stops[role] for tally in tallies))
    _print_row("all", *(tally.signals for tally in tallies), sum(tally.signals for tally in tallies))
    kinds = list(tallies[0].compared) if tallies else []
    print()
    heads = ["scenario", "rounds", "runs", "visits here, at hosts", *kinds, "missing", "twice", "wrong"]
    heads += ["pages made errors", "left by the follower", "seconds"]
    _print_row(*heads)
    _print_row(*["---"] * len(heads))
    for tally in tallies:
        counts = (f"{tally.compared[kind]:,}" for kind in kinds)
        visits = f"{tally.visits['here']}, {tally.visits['host']}"
        ends = (tally.missing, tally.doubled, tally.wrong, tally.broken, tally.left, f"{tally.seconds:,.0f}")
        _print_row(tally.scenario, tally.rounds, tally.runs, visits, *counts, *ends)


def _print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
