"""Facts on their way to the archive and to queries."""

import json

from tests import making

from sterna.crawler.facts import Fact, Symbol, encode, fact_of
from sterna.home.facts import Emitted, own
from sterna.home.ledger.records import SiteFact

SITE = "https://a.example"
AWKWARD = (
    Fact("text", ('quote " and \\ and\nline \U0001f600',)),
    Fact("numbers", (2**63 - 1, -(2**63), float("inf"), 0.1)),
    Fact("slots", slots=(("symbol", Symbol("x")), ("many", ("a", 1)), ("none", ()))),
)


def test_emitted_fact_can_be_made_again_from_its_row() -> None:
    parcel = making.parcel(visit="v", site=SITE, rows=tuple(map(encode, AWKWARD)))
    rows = Emitted([parcel], crawler="c", received=5.0)
    assert [fact_of(json.loads(row.data)) for row in rows] == list(AWKWARD)
    assert {(row.crawler, row.site, row.visit, row.received) for row in rows} == {("c", SITE, "v", 5.0)}
    assert (len(rows), rows.unreadable) == (len(AWKWARD), [0])


def test_unreadable_facts_are_left_out_and_counted_for_each_parcel() -> None:
    good = encode(AWKWARD[0])
    sent = ((good, b"x"), (), (b"", good, good))
    parcels = [making.parcel(number=number, rows=rows) for number, rows in enumerate(sent, 1)]
    rows = Emitted(parcels, crawler="c", received=5.0)
    assert (len(rows), len(list(rows)), rows.unreadable) == (3, 3, [1, 0, 1])


def test_own_facts_have_neither_a_visit_nor_a_time() -> None:
    (row,) = own([SiteFact(SITE, 1, encode(AWKWARD[0])), SiteFact(SITE, 2, b"no fact")], crawler="c")
    assert (row.crawler, row.site, row.visit, row.template, row.received) == ("c", SITE, "", "text", None)
