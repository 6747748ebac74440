"""Several collections are queried as one: all their rows, and of each page the newest version."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import making

from sterna.archive.manifest import Batch, FactRow
from sterna.archive.rows import fact_table, link_table, page_table
from sterna.errors import QueryError
from sterna.model import Link, Links, Page
from sterna.query.engine import Engine
from sterna.query.union import Part

SITE = "https://www.example.org"


def page(path: str, *, at: float, title: str, to: str = "") -> Page:
    links = Links.of(Link(to, "go")) if to else Links()
    return making.page(path, fetched=at, title=title, links=links, is_kept=True, digest=title.encode())


def part(folder: Path, name: str, *batches: tuple[Page, ...], facts: tuple[str, ...] = ()) -> Part:
    """A collection with a segment for each batch; a page is stored again if an earlier batch has it."""
    files: dict[str, list[str]] = {"page": [], "link": [], "fact": []}
    seen: set[str] = set()
    for number, pages in enumerate(batches, start=1):
        again = tuple(each.url in seen for each in pages)
        seen |= {each.url for each in pages}
        batch = Batch(number=number, crawler=name, visits=(f"{name}{number}",) * len(pages), again=again)
        rows = [(SITE, each) for each in pages]
        for table, made in (("page", page_table(rows, batch)), ("link", link_table(rows, batch))):
            path = folder / f"{name}-{number}.{table}.parquet"
            pq.write_table(made, path)
            files[table].append(str(path))
    own = [
        FactRow(
            crawler=name,
            site=SITE,
            visit="",
            template="seen",
            data=f'{{"slots": {{"what": "{fact}"}}}}',
            received=None,
        )
        for fact in facts
    ]
    site = pa.table({"site": [SITE], "pages": [len(seen)]})
    return Part(name, files, {"fact": fact_table(own), "site": site})


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    first = part(
        tmp_path,
        "birds",
        (page("/", at=100.0, title="old", to="/a"), page("/a", at=110.0, title="a of birds", to="/x")),
        (page("/", at=300.0, title="new", to="/b"),),
        facts=("tern",),
    )
    second = part(
        tmp_path,
        "fish",
        (page("/", at=200.0, title="between", to="/c"), page("/a", at=400.0, title="a of fish", to="/y")),
        (page("/only", at=50.0, title="only"),),
        facts=("cod", "eel"),
    )
    return Engine({}, members=(first, second), warn=lambda line: None)


def rows(engine: Engine, sql: str) -> list[tuple[object, ...]]:
    return list(engine.run(sql).rows)


def test_newest_version_of_a_page_wins_across_collections(engine: Engine) -> None:
    with engine:
        for _ in range(3):  # the second query changes how outdated versions are left out
            assert rows(engine, "SELECT collection, title FROM page ORDER BY title") == [
                ("fish", "a of fish"),
                ("birds", "new"),
                ("fish", "only"),
            ]


def test_links_are_those_of_the_newest_versions(engine: Engine) -> None:
    with engine:
        assert rows(engine, "SELECT collection, to_url FROM link ORDER BY ALL") == [
            ("birds", "/b"),
            ("fish", "/y"),
        ]


def test_history_and_events_keep_all_versions_of_each(engine: Engine) -> None:
    with engine:
        assert rows(engine, "SELECT collection, count(*) FROM page_history GROUP BY ALL ORDER BY ALL") == [
            ("birds", 3),
            ("fish", 3),
        ]
        kinds = "SELECT collection, kind, count(*) FROM event GROUP BY ALL ORDER BY ALL"
        assert rows(engine, kinds) == [
            ("birds", "created", 2),
            ("birds", "updated", 1),
            ("fish", "created", 3),
        ]


def test_facts_templates_and_tables_of_the_ledger_name_their_collection(engine: Engine) -> None:
    with engine:
        assert rows(engine, "SELECT collection, count(*) FROM fact GROUP BY ALL ORDER BY ALL") == [
            ("birds", 1),
            ("fish", 2),
        ]
        assert rows(engine, "SELECT what, _collection FROM seen ORDER BY what") == [
            ("cod", "fish"),
            ("eel", "fish"),
            ("tern", "birds"),
        ]
        assert rows(engine, "SELECT collection, pages FROM site ORDER BY ALL") == [("birds", 2), ("fish", 3)]
        (first, *_) = rows(engine, "DESCRIBE page")
        assert first[0] == "collection"
        assert {name for (name,) in rows(engine, "SHOW TABLES")} >= {"page", "link", "event", "fact", "site"}


def test_unknown_names_are_explained_and_nothing_else_is_reached(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with engine:
        with pytest.raises(QueryError, match='no column "titel", did you mean "title"'):
            rows(engine, "SELECT titel FROM page")
        for sql in (
            f"SELECT * FROM '{tmp_path}/secret.csv'",
            "ATTACH ':memory:' AS other",
            "CREATE TABLE collection_0.main.x AS SELECT 1",
            "WITH x AS (DELETE FROM sterna.earlier RETURNING *) FROM x",
        ):
            with pytest.raises(QueryError):
                rows(engine, sql)


def test_damaged_segment_costs_its_own_rows_only(tmp_path: Path) -> None:
    good = part(tmp_path, "good", (page("/", at=100.0, title="good"),))
    bad = part(tmp_path, "bad", (page("/", at=200.0, title="bad"),), (page("/b", at=200.0, title="b"),))
    path = Path(bad.files["page"][0])
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    said: list[str] = []
    with Engine({}, members=(good, bad), warn=said.append) as engine:
        assert rows(engine, "SELECT collection, title FROM page ORDER BY title") == [
            ("bad", "b"),
            ("good", "good"),
        ]
    assert len(said) == 1
    assert "bad-1.page" in said[0]
