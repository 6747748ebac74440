"""Which segments count, and with which batch a ledger goes on, whatever a crash left: pure decisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.archive.examination import Examined
from sterna.archive.manifest import Label
from sterna.home.ledger.sqlite.salvage import LedgerState
from sterna.home.repair.choice import choose, torn_batches
from sterna.home.repair.plan import GAP, make_plan
from sterna.home.repair.survey import Survey


def file(
    name: str, units: dict[int, int], *, damage: str = "", table: str = "page", **label: object
) -> Examined:
    return Examined(name=name, table=table, units=units, damage=damage, label=Label(**label))  # type: ignore[arg-type]


def test_merged_segment_counts_and_its_parts_do_not() -> None:
    files = [file("a", {1: 5}), file("b", {2: 5}), file("merged", {1: 5, 2: 5}), file("c", {3: 5})]
    choice = choose(files, named=())
    assert (choice.kept, choice.dropped, choice.rewritten) == (("merged", "c"), ("a", "b"), {})


def test_what_a_good_ledger_names_counts_even_beside_a_larger_segment() -> None:
    files = [file("a", {1: 5}), file("b", {2: 5}), file("merged", {1: 5, 2: 5})]
    choice = choose(files, named={"a", "b"})
    assert (choice.kept, choice.dropped) == (("a", "b"), ("merged",))


def test_damaged_segment_gives_what_no_whole_one_has() -> None:
    files = [file("damaged", {1: 5, 2: 3}, damage="flipped"), file("part", {2: 5})]
    choice = choose(files, named={"damaged"})
    assert (choice.kept, choice.rewritten) == (("part",), {"damaged": frozenset({1})})


def test_tables_do_not_mix() -> None:
    files = [file("p", {1: 5}), file("l", {1: 9}, table="link")]
    assert choose(files, named=()).kept == ("p", "l")


def test_labels_tell_which_batches_lost_rows() -> None:
    contents = ((1, (5, 9, 0)), (2, (5, 9, 2)))
    files = [file("p", {1: 5, 2: 5}, contents=contents), file("l", {1: 9, 2: 4}, table="link")]
    torn = torn_batches(files, choice=choose(files, named=()))
    assert torn == {"page": set(), "link": {2}, "fact": {2}}


@pytest.mark.parametrize(
    ("ledger", "archive", "positions", "goes_on"),
    [
        (4, 4, 4, 4),
        (4, 5, 5, 5),  # a crash left one batch uncommitted
        (9, 4, 9, 9),  # the last batches had no rows
        (4, 6, 0, GAP),
        (4, 4, 5, GAP),
        (GAP, 4, 9, GAP),
        (GAP + 3, GAP + 5, 0, 2 * GAP),
    ],
)
def test_no_number_of_a_batch_is_given_twice(ledger: int, archive: int, positions: int, goes_on: int) -> None:
    survey = Survey(
        id="c",
        marker="",
        ledger=LedgerState(batch=ledger),
        segments=(file("p", {archive: 5}),),
        missing=(),
        warcs=(),
        missing_warcs=(),
        strays={},
        raw_marks=b"",
    )
    assert make_plan(survey, positions=positions).batch == goes_on


_FILES = st.lists(
    st.tuples(
        st.dictionaries(st.integers(1, 6), st.integers(1, 4), max_size=6), st.booleans(), st.booleans()
    ),
    max_size=6,
)


@given(_FILES)
def test_every_unit_is_taken_once_and_with_most_of_its_rows(
    drawn: list[tuple[dict[int, int], bool, bool]],
) -> None:
    files = [file(str(at), units, damage="x" * bad) for at, (units, bad, _) in enumerate(drawn)]
    choice = choose(files, named=())
    taken: list[tuple[int, int]] = []
    for each in files:
        units = each.units if each.name in choice.kept else choice.rewritten.get(each.name, ())
        taken += [(unit, each.units[unit]) for unit in units]
    best = {unit: max(each.units.get(unit, 0) for each in files) for each in files for unit in each.units}
    assert sorted(taken) == sorted(best.items())
