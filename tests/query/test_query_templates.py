"""Templates of facts as tables: columns, types, and names that strangers chose."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.query.histories import Archive, fact, rows

from sterna.archive.rows import fact_table
from sterna.crawler.facts import Fact, Slots, Symbol, Value, to_json
from sterna.errors import QueryError
from sterna.query.engine import Engine
from sterna.query.templates import MOST_COLUMNS

CAME = ["_crawler", "_site", "_visit", "_kind", "_received"]


def facts_of(template: str, *many: Slots | tuple[Value, ...]) -> list[Any]:
    """Facts with these slots, or these values in order."""
    return [
        fact(
            to_json(
                Fact(template, slots=each)
                if each and isinstance(each[0], tuple)
                else Fact(template, values=each)  # type: ignore[arg-type]
            ),
            template=template,
        )
        for each in many
    ]


def engine_of(folder: Path, *facts: Any) -> Engine:
    archive = Archive(folder)
    archive.add(facts=facts)
    return Engine(archive.tables)


def test_slots_are_columns_and_then_how_the_fact_came(tmp_path: Path) -> None:
    facts = facts_of("clinic", (("name", "A"), ("beds", 3)), (("name", "B"), ("beds", 12)))
    with engine_of(tmp_path, *facts) as engine:
        assert engine.run("FROM clinic").columns == ["name", "beds", *CAME]
        assert rows(engine, "SELECT name FROM clinic WHERE beds > 4") == [("B",)]
        assert rows(engine, "SELECT DISTINCT _crawler, _visit, _kind FROM clinic") == [
            ("health", "v1", "row")
        ]


VALUES: list[tuple[str, list[Any], str, list[Any]]] = [
    ("texts", ["a", "b'\"c"], "VARCHAR", ["a", "b'\"c"]),
    ("integers", [1, -(2**63)], "BIGINT", [1, -(2**63)]),
    ("large integers", [2**63 - 1], "BIGINT", [2**63 - 1]),
    ("floats", [1.5, 2], "DOUBLE", [1.5, 2.0]),
    ("truths", [True, False], "BOOLEAN", [True, False]),
    ("symbols", [Symbol("x"), Symbol("a;b")], "VARCHAR", ["x", "a;b"]),
    ("symbols and texts", [Symbol("x"), "y"], "VARCHAR", ["x", "y"]),
    ("numbers and texts", [1, "y"], "VARCHAR", ["1", "y"]),
    ("infinities", [math.inf, -math.inf], "DOUBLE", [math.inf, -math.inf]),
    ("multislot of integers", [(1, 2), ()], "BIGINT[]", [[1, 2], []]),
    ("multislot of texts", [("a", "b"), ("c",)], "VARCHAR[]", [["a", "b"], ["c"]]),
    ("multislot of symbols", [(Symbol("a"), "b")], "VARCHAR[]", [["a", "b"]]),
]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A template for each kind of values."""
    facts = []
    for template, values, *_ in VALUES:
        facts += facts_of(template, *((("n", number), ("v", value)) for number, value in enumerate(values)))
    with engine_of(tmp_path_factory.mktemp("typed"), *facts) as engine:
        yield engine


@pytest.mark.parametrize(
    ("template", "kind", "expected"),
    [(template, kind, expected) for template, _, kind, expected in VALUES],
    ids=[each[0] for each in VALUES],
)
def test_type_of_a_column_is_that_of_its_values(
    typed: Engine, template: str, kind: str, expected: list[Any]
) -> None:
    described = f"SELECT column_type FROM (DESCRIBE \"{template}\") WHERE column_name = 'v'"
    assert rows(typed, described) == [(kind,)]
    assert [value for (value,) in rows(typed, f'SELECT v FROM "{template}" ORDER BY n')] == expected


def test_facts_without_a_slot_have_null_there(tmp_path: Path) -> None:
    with engine_of(tmp_path, *facts_of("t", (("a", 1),), (("b", "x"),))) as engine:
        assert sorted(rows(engine, "SELECT a, b FROM t"), key=str) == [(1, None), (None, "x")]


def test_values_of_ordered_facts_are_numbered(tmp_path: Path) -> None:
    with engine_of(tmp_path, *facts_of("pair", ("x", 7), ("y",))) as engine:
        assert engine.run("FROM pair").columns == ["value_1", "value_2", *CAME]
        assert rows(engine, "SELECT value_1, value_2 + 1 FROM pair ORDER BY 1") == [("x", 8), ("y", None)]


def test_what_crawlers_remember_is_in_the_table_too() -> None:
    own = fact_table(
        [fact(to_json(Fact("seen", slots=(("n", 1),))), template="seen", visit="", received=None)]
    )
    with Engine({}, extra={"fact": own}) as engine:
        assert rows(engine, "SELECT n, _kind, _visit, _received FROM seen") == [(1, "own", None, None)]


def test_case_counts_only_where_templates_differ_in_nothing_else(tmp_path: Path) -> None:
    facts = [
        *facts_of("Clinic", (("a", 1),)),
        *facts_of("clinic", (("a", 2),)),
        *facts_of("Other", (("a", 3),)),
    ]
    with engine_of(tmp_path, *facts) as engine:
        assert rows(engine, "SELECT a FROM clinic") == [(2,)]
        assert rows(engine, 'SELECT a FROM "Clinic"') == [(1,)]
        assert rows(engine, "SELECT a FROM other") == [(3,)]


def test_slots_that_sql_takes_for_one_get_numbers(tmp_path: Path) -> None:
    with engine_of(
        tmp_path, *facts_of("t", (("Name", 1), ("name", 2), ("_site", 3), ("name_2", 4)))
    ) as engine:
        assert engine.run("FROM t").columns[:4] == ["Name", "name_2", "_site_2", "name_2_2"]
        assert rows(engine, "SELECT COLUMNS(*)::VARCHAR FROM t")[0][:4] == ("1", "2", "3", "4")


def test_template_with_the_name_of_a_table_is_asked_through_fact(tmp_path: Path) -> None:
    with engine_of(tmp_path, *facts_of("page", (("url", "x"),))) as engine:
        assert rows(engine, "SELECT count(*) FROM page") == [(0,)]
        assert rows(engine, "SELECT data->>'url' FROM fact WHERE template = 'page'") == [("x",)]


def test_two_templates_can_be_joined_also_in_a_subquery(tmp_path: Path) -> None:
    facts = [*facts_of("a", (("k", 1), ("v", "x"))), *facts_of("b", (("k", 1), ("v", "y")))]
    with engine_of(tmp_path, *facts) as engine:
        sql = "WITH c AS (SELECT * FROM b) SELECT a.v, c.v FROM a JOIN c USING (k)"
        assert rows(engine, sql) == [("x", "y")]
        assert rows(engine, "SELECT v FROM query_table('b')") == [("y",)]


def test_template_with_too_many_slots_is_refused_in_one_line(tmp_path: Path) -> None:
    slots = tuple((f"s{number}", number) for number in range(MOST_COLUMNS + 1))
    with (
        engine_of(tmp_path, *facts_of("wide", slots)) as engine,
        pytest.raises(QueryError, match=r"^the template 'wide' has 201 slots.*'SLOT' of fact instead$"),
    ):
        engine.run("FROM wide")


HOSTILE = [
    'x"; DROP TABLE site; --',
    "x'; DROP TABLE site; --",
    'a" AS b, (SELECT 1) AS "c',
    "$.a",
    "a.b[0]",
    "~0~1/",
    "",
    "\\",
    "{0}",
    "SELECT",
    "\x1b[2J",
    "名前",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """CLIPS would not have most of them; whatever lies in the archive must do no harm."""
    facts = []
    for name in HOSTILE:
        data = json.dumps({"template": name, "slots": {name: "value", "plain": name}})
        facts.append(fact(data, template=name or "t"))
    with engine_of(tmp_path_factory.mktemp("hostile"), *facts) as engine:
        yield engine


@pytest.mark.parametrize("name", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_hostile_names_of_templates_and_slots_are_only_names(hostile: Engine, name: str) -> None:
    quoted = (name or "t").replace('"', '""')
    found = hostile.run(f'SELECT * FROM "{quoted}"')
    assert found.columns[:2] == [name or "_", "plain"]
    assert next(found.rows)[:2] == ("value", name)
    assert rows(hostile, "SELECT count(*) FROM page") == [(0,)]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20))
@settings(max_examples=15, deadline=None)
def test_no_name_of_a_slot_breaks_the_table(name: str) -> None:
    data = json.dumps({"template": "t", "slots": {name: 7}})
    with Engine({}, extra={"fact": fact_table([fact(data, template="t")])}) as engine:
        assert rows(engine, "SELECT * FROM t")[0][0] == 7
