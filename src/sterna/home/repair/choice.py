"""Which segments count: every unit of rows is taken from one file, so that no row is lost or stored twice.

A crash between a merge and the removal of what it replaced leaves both; a lost ledger no longer says which of
them counts. Their batches decide (see `archive/examination`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sterna.archive.examination import Examined
from sterna.archive.manifest import TABLES
from sterna.model import Record


class Choice(Record, frozen=True, kw_only=True):
    """What becomes of the files, by their names."""

    kept: tuple[str, ...]
    rewritten: dict[str, frozenset[int]]  # the units to be copied into a new segment
    dropped: tuple[str, ...]


def choose(files: Sequence[Examined], *, named: Collection[str]) -> Choice:
    """Keeps whole files that a good ledger names; of all others, each unit where most of its rows are."""
    kept, rewritten, dropped = list[str](), dict[str, frozenset[int]](), list[str]()
    for table in TABLES:
        of_table = [each for each in files if each.table == table]
        certain = [each for each in of_table if each.name in named and not each.damage]
        taken = {unit for each in certain for unit in each.units}
        rest = [each for each in of_table if each not in certain]
        kept += [each.name for each in certain]
        for each, won in _winners(rest, taken):
            if not won:
                dropped.append(each.name)
            elif won == each.units.keys() and not each.damage:
                kept.append(each.name)
            else:
                rewritten[each.name] = frozenset(won)
    return Choice(kept=tuple(kept), rewritten=rewritten, dropped=tuple(dropped))


def _winners(files: Iterable[Examined], taken: Collection[int]) -> Iterator[tuple[Examined, set[int]]]:
    """Each file with the units that are taken from it; a merged segment comes before its parts."""
    ordered = sorted(files, key=lambda each: (bool(each.damage), -len(each.units), each.name))
    best: dict[int, Examined] = {}
    for each in ordered:
        for unit, rows in each.units.items():
            if unit not in taken and (unit not in best or rows > best[unit].units[unit]):
                best[unit] = each
    for each in ordered:
        yield each, {unit for unit in each.units if best.get(unit) is each}


def torn_batches(files: Sequence[Examined], *, choice: Choice) -> dict[str, set[int]]:
    """The batches of each table that have fewer rows than the labels of their segments say."""
    expected: dict[int, Sequence[int]] = {}
    for each in files:
        expected.update(each.label.contents)
    found = {table: _rows_found(files, choice=choice, table=table) for table in TABLES}
    return {
        table: {
            batch
            for batch, counts in expected.items()
            if len(counts) == len(TABLES) and found[table].get(batch, 0) < counts[place]
        }
        for place, table in enumerate(TABLES)
    }


def _rows_found(files: Sequence[Examined], *, choice: Choice, table: str) -> Mapping[int, int]:
    found: dict[int, int] = {}
    kept = frozenset(choice.kept)
    for each in files:
        if each.table == table:
            units = each.units if each.name in kept else choice.rewritten.get(each.name, ())
            found.update({unit: each.units[unit] for unit in units})
    return found
