"""SQL of a command taken apart: what is a parameter and what only looks like one."""

import pytest
from sqlalchemy import make_url, text

from sterna.storage.statements import InvalidSql, PlainInsert, ValuesInsert, parameters_of, statements_of

SQLITE, PSYCOPG = (make_url(f"{name}://").get_dialect()() for name in ("sqlite", "postgresql+psycopg"))


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("INSERT INTO t VALUES (:a, :b, :a)", ["a", "b"]),
        ("INSERT INTO t VALUES (':a', :b)", ["b"]),
        ("INSERT INTO t VALUES ('it''s :a', :b)", ["b"]),
        ("INSERT INTO t VALUES (E'it\\'s :a', :b)", ["b"]),
        ('INSERT INTO "t:a" VALUES (:b)', ["b"]),
        ("INSERT INTO t VALUES (:a::int, '12:30'::time)", ["a"]),
        ("INSERT INTO t VALUES (:a) -- :b\n", ["a"]),
        ("INSERT INTO t /* :b ; */ VALUES (:a)", ["a"]),
        ("INSERT INTO t VALUES ($$:b; '$$, :a)", ["a"]),
        ("INSERT INTO t VALUES ($x$ $$ :b $x$, :a)", ["a"]),
        ("UPDATE t SET a = b[1:c] WHERE d = :a", ["a"]),
        ("SELECT 1", []),
    ],
)
def test_parameters_are_found(sql: str, names: list[str]) -> None:
    assert parameters_of(statements_of(sql)) == names


def test_statements_are_parted_but_not_in_quotes_and_comments() -> None:
    sql = "INSERT INTO a VALUES (';');\n -- ; \n INSERT INTO b VALUES (:x) ;; /* ; */"
    assert [each.text for each in statements_of(sql)] == [
        "INSERT INTO a VALUES (';')",
        "INSERT INTO b VALUES (:x)",
    ]
    assert len(statements_of((sql, "DELETE FROM c"))) == 3


@pytest.mark.parametrize("sql", ["COMMIT", "insert into t values (1); rollback", "BEGIN", " savepoint x"])
def test_command_must_not_end_the_transaction(sql: str) -> None:
    with pytest.raises(InvalidSql, match="Sterna begins and ends the transaction"):
        statements_of(sql)


def test_text_means_the_same_to_sqlalchemy() -> None:
    (statement,) = statements_of("INSERT INTO t VALUES ('a :b c', :x::int, '12:30', 'C:\\:x', '100%')")
    compiled = text(statement.text).compile(dialect=SQLITE)
    assert str(compiled) == "INSERT INTO t VALUES ('a :b c', ?::int, '12:30', 'C:\\:x', '100%')"
    assert compiled.positiontup == ["x"]
    named = str(text(statement.text).compile(dialect=PSYCOPG))
    assert named == "INSERT INTO t VALUES ('a :b c', %(x)s::int, '12:30', 'C:\\:x', '100%%')"


@pytest.mark.parametrize(
    ("sql", "insert"),
    [
        ("INSERT INTO t (a, b) VALUES (:x, :y)", PlainInsert("t", ("a", "b"), ("x", "y"))),
        ('insert  into s."T"("a b") values(:x);', PlainInsert('s."T"', ('"a b"',), ("x",))),
        ("INSERT INTO t /* why */ (a) VALUES (:x) -- so", PlainInsert("t", ("a",), ("x",))),
        ("INSERT INTO t (a, b) VALUES (:x)", None),
        ("INSERT INTO t (a) VALUES (lower(:x))", None),
        ("INSERT INTO t (a) VALUES (:x::int)", None),
        ("INSERT INTO t (a) VALUES (:x), (:y)", None),
        ("INSERT INTO t (a) VALUES (:x) ON CONFLICT DO NOTHING", None),
        ("INSERT INTO t VALUES (:x)", None),
        ("UPDATE t SET a = :x", None),
    ],
)
def test_plain_insert_is_known(sql: str, insert: PlainInsert | None) -> None:
    assert statements_of(sql)[0].insert == insert


@pytest.mark.parametrize(
    ("sql", "parts", "parameters", "tail"),
    [
        ("INSERT INTO t (a) VALUES (:x)", ("(", ")"), ("x",), ""),
        ("INSERT INTO t VALUES (:x, lower(:y), :x)", ("(", ", lower(", "), ", ")"), ("x", "y", "x"), ""),
        (
            "INSERT INTO t (a) VALUES ( :x::int ) on conflict (a) do nothing;",
            ("( ", "::int )"),
            ("x",),
            " on conflict (a) do nothing",
        ),
        ("INSERT INTO t (a, b) VALUES (':y) SELECT', coalesce(:x, now()))",
         ("(':y) SELECT', coalesce(", ", now()))"), ("x",), ""),
        ("INSERT INTO t (a) VALUES (:x) ON CONFLICT ON CONSTRAINT c DO NOTHING",
         ("(", ")"), ("x",), " ON CONFLICT ON CONSTRAINT c DO NOTHING"),
    ],
)  # fmt: skip
def test_insert_of_values_is_known(
    sql: str, parts: tuple[str, ...], parameters: tuple[str, ...], tail: str
) -> None:
    found = statements_of(sql)[0].values
    assert isinstance(found, ValuesInsert)
    assert (found.table, found.parts, found.parameters, found.tail) == ("t", parts, parameters, tail)
    assert sql.startswith(found.head)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t (a) VALUES (:x) ON CONFLICT (a) DO UPDATE SET a = 1",
        "INSERT INTO t (a) VALUES (:x) RETURNING a",
        "INSERT INTO t (a) VALUES (:x), (:y)",
        "INSERT INTO t (a) VALUES ((SELECT max(a) FROM t) + :x)",
        "INSERT INTO t (a) VALUES (mine(:x))",
        'INSERT INTO t (a) VALUES ("lower"(:x))',
        "INSERT INTO t (a) VALUES (own.lower(:x))",
        "INSERT INTO t (a) VALUES (clock_timestamp(), :x)",
        "INSERT INTO t (a) VALUES (now())",
        "INSERT INTO t (a) SELECT :x",
        "WITH w AS (SELECT 1) INSERT INTO t (a) VALUES (:x)",
        "UPDATE t SET a = :x",
        "INSERT INTO t (a) VALUES (:x",
    ],
)
def test_insert_that_may_depend_on_rows_before_is_none_of_values(sql: str) -> None:
    assert statements_of(sql)[0].values is None
