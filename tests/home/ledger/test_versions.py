"""What becomes of the report of a page, by what the ledger knew of it."""

from itertools import product
from typing import Any

import pytest
from tests.making import page

from sterna.archive.manifest import UNWANTED
from sterna.home.ledger.records import Standing
from sterna.home.ledger.versions import Fate, as_judged, fate_of, standing_after, tombstone_of

GOOD, SEEN = Standing(200, "", True), Standing(200, "", False)
MISSING = Standing(404, "", True)


@pytest.mark.parametrize(
    ("report", "before", "fate"),
    [
        ({}, None, Fate.VERSION),
        ({"is_kept": False}, None, Fate.SEEN),
        ({}, GOOD, Fate.VERSION),
        ({}, SEEN, Fate.VERSION),
        ({"is_kept": False}, GOOD, Fate.TOMBSTONE),
        ({"is_kept": False}, SEEN, Fate.SEEN),
        *(({"status": status, "is_kept": False}, GOOD, Fate.TOMBSTONE) for status in (301, 308, 404, 410)),
        *(({"status": status, "is_kept": False}, GOOD, Fate.SEEN) for status in (302, 307, 401, 403)),
        ({"status": 404}, GOOD, Fate.VERSION),
        ({"status": 404}, MISSING, Fate.SEEN),
        ({"status": 410}, MISSING, Fate.VERSION),
        ({"status": 0, "error": "timeout"}, MISSING, Fate.VERSION),
        # A site in trouble says nothing of the page.
        *(({"status": 500, "is_kept": kept}, GOOD, Fate.FAILED) for kept in (True, False)),
        *(({"status": 0, "error": "timeout", "is_kept": kept}, GOOD, Fate.FAILED) for kept in (True, False)),
        ({"status": 500, "is_kept": False}, SEEN, Fate.FAILED),
        ({"status": 500}, SEEN, Fate.VERSION),  # of a crawler that looks for pages in trouble
        ({"status": 0, "error": "robots"}, GOOD, Fate.VERSION),
        ({"status": 0, "error": "robots", "is_kept": False}, GOOD, Fate.SEEN),
        ({"is_unchanged": True}, GOOD, Fate.SEEN),
    ],
)
def test_fate_of_a_report(report: dict[str, Any], before: Standing | None, fate: Fate) -> None:
    assert fate_of(page(**report), before) is fate


def test_page_ends_once_and_stays_while_nothing_is_certain() -> None:
    standing: Standing | None = None
    fates = []
    for status, is_kept in ((200, True), (403, False), (500, False), (404, False), (404, False), (200, True)):
        report = page(status=status, is_kept=is_kept)
        fates.append(fate_of(report, standing))
        standing = standing_after(report, standing)
    seen = Fate.SEEN
    assert fates == [Fate.VERSION, seen, seen, Fate.TOMBSTONE, seen, Fate.VERSION]


def test_row_is_written_as_often_as_the_page_is_kept_anew_or_given_up() -> None:
    for status, error, is_kept in product((0, 200, 302, 404, 500), ("", "robots"), (True, False)):
        for before in (GOOD, SEEN, MISSING):
            report = page(status=status, error=error, is_kept=is_kept)
            after = standing_after(report, before)
            is_ended = fate_of(report, before) is Fate.TOMBSTONE
            assert (before.is_kept and not after.is_kept) is is_ended


def test_unchanged_page_is_wanted_if_it_was() -> None:
    report = page(status=304, is_unchanged=True)
    assert [as_judged(report, before).is_kept for before in (GOOD, SEEN, None)] == [True, False, True]
    assert standing_after(report, SEEN) == SEEN


def test_tombstone_has_the_answer_and_nothing_of_the_page() -> None:
    report = page(status=404, title="Not found", text="no", digest=b"d", etag='"1"', is_kept=False)
    ended = tombstone_of(report)
    assert (ended.status, ended.error, ended.is_kept) == (404, UNWANTED, True)
    assert (ended.title, ended.text, ended.digest, ended.etag) == ("", "", b"", "")
