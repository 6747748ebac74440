"""The example queries on a real site, each against a computation that knows no SQL."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.query.real_collection import ADDED, CHANGED, REMOVED, RealCollection, Row, sqlite_docs

from sterna import Collection

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

QUERIES = Path(__file__).parent.parent.parent / "examples" / "queries"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCollection]:
    with sqlite_docs(tmp_path_factory.mktemp("real")) as collection:
        yield collection


def ask(real: RealCollection, name: str, **parameters: object) -> list[tuple[Any, ...]]:
    sql = (QUERIES / f"{name}.sql").read_text()
    return [tuple(row.values()) for row in Collection(real.folder).query(sql, parameters)]


def good(real: RealCollection) -> dict[str, Row]:
    return {url: row for url, row in real.pages.items() if row["status"] == 200}


def matching(real: RealCollection, word: str) -> set[str]:
    pattern = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE | re.ASCII)
    return {
        url for url, row in good(real).items() if pattern.search(f"{row['title'] or ''} {row['text'] or ''}")
    }


def test_collection_is_large_and_has_a_history(real: RealCollection) -> None:
    assert len(good(real)) > 500
    assert len(real.links) > 10_000
    assert len(real.history) > len(real.pages)


def test_pages_that_link_to_a_page_with_a_word(real: RealCollection) -> None:
    wanted = matching(real, "mmap")
    found: defaultdict[str, set[str]] = defaultdict(set)
    for link in real.links:
        if link["to_url"] in wanted and link["from_url"] != link["to_url"]:
            found[link["from_url"]].add(link["to_url"])
    expected = [(url, real.pages[url]["title"], len(to)) for url, to in found.items()]
    assert len(expected) > 20
    assert ask(real, "links-to-word", word="mmap") == sorted(expected, key=lambda row: (-row[2], row[0]))


@pytest.mark.parametrize(("word", "least"), [("mmap", 3), ("virtual", 5), ("terns", 1)])
def test_roots_of_trees_in_which_several_pages_have_a_word(
    real: RealCollection, word: str, least: int
) -> None:
    pages, wanted = good(real), matching(real, word)
    below: defaultdict[str, set[str]] = defaultdict(set)
    for url in pages:
        seen: set[str] = set()
        root: str | None = url
        while root in pages and root not in seen:
            seen.add(root)
            below[root].add(url)
            root = pages[root]["referrer"]
    roots = {root for root, tree in below.items() if len(tree & wanted) >= least}
    deepest = roots - {pages[root]["referrer"] for root in roots if pages[root]["referrer"] != root}
    expected = [(root, pages[root]["title"], len(below[root] & wanted), len(below[root])) for root in deepest]
    assert expected
    found = ask(real, "tree-roots", word=word, least=least)
    assert found == sorted(expected, key=lambda row: (-row[2], row[0]))


def test_dead_links_with_the_pages_that_carry_them(real: RealCollection) -> None:
    expected = []
    for link in real.links:
        target = real.pages.get(link["to_url"], {"status": 200, "error": None})
        if (target["status"] or 0) >= 400 or (target["status"] is None and target["error"] != "robots"):
            why = target["error"] if target["status"] is None else str(target["status"])
            expected.append((link["to_url"], why, link["from_url"], link["text"]))
    found = ask(real, "dead-links")
    assert Counter(found) == Counter(expected)
    assert (f"{real.origin}/{REMOVED}", "404", f"{real.origin}/{ADDED}", "gone") in found
    assert [row[:1] for row in found] == sorted(row[:1] for row in found)


def test_table_3_of_the_thesis(real: RealCollection) -> None:
    loaded = ask(real, "loaded-pages")
    assert sorted(loaded) == sorted((url, row["text"]) for url, row in good(real).items())
    dead = {url for url, row in real.pages.items() if row["status"] in (401, 404, 410)}
    assert f"{real.origin}/{REMOVED}" in dead
    assert sorted(ask(real, "dead-pages")) == sorted((url,) for url in dead)


def test_biggest_pages(real: RealCollection) -> None:
    largest = sorted(good(real).values(), key=lambda row: (-row["size"], row["url"]))[:7]
    found = ask(real, "biggest-pages", count=7)
    assert [(row[0], row[2], row[3]) for row in found] == [
        (row["url"], row["size"], len(row["text"]) if row["text"] else None) for row in largest
    ]


def test_sites_by_their_pages(real: RealCollection) -> None:
    dead = sum(row["status"] in (404, 410) for row in real.pages.values())
    ((site, pages, percent, size, last),) = ask(real, "sites-by-pages")
    assert (site, pages, size) == (
        real.origin,
        len(good(real)),
        sum(row["size"] for row in good(real).values()),
    )
    assert percent == pytest.approx(100 * dead / len(real.pages), abs=0.06)
    assert last == max(row["fetched"] for row in real.pages.values())


def last_events(real: RealCollection) -> dict[str, str]:
    """What became of each page last, told by its history alone."""
    events: dict[str, str] = {}
    digests: dict[str, str | None] = {}
    for row in real.history:
        url = row["url"]
        if row["status"] == 200:
            if url not in digests:
                events[url] = "created"
            elif row["digest"] != digests[url]:
                events[url] = "updated"
            digests[url] = row["digest"]
        elif row["status"] in (404, 410) and url in digests:
            events[url] = "deleted"
            del digests[url]
    return events


def test_changes_since_a_time(real: RealCollection) -> None:
    second = min(row["fetched"] for row in real.history if row["url"].endswith(ADDED))
    first = max(
        row["fetched"] for row in real.history if row["fetched"] < second and not row["url"].endswith(CHANGED)
    )
    since = min(first, second)
    changed = {
        row[0].removeprefix(f"{real.origin}/"): row[1] for row in ask(real, "changes-since", since=since)
    }
    assert changed[ADDED] == "created"
    everything = ask(real, "changes-since", since=datetime(2000, 1, 1, tzinfo=UTC))
    by_page = {row[0]: row[1] for row in everything}
    assert by_page == last_events(real)
    assert [by_page[f"{real.origin}/{name}"] for name in (CHANGED, REMOVED, ADDED)] == [
        "updated",
        "deleted",
        "created",
    ]


def test_most_linked_pages(real: RealCollection) -> None:
    pages = good(real)
    linking: defaultdict[str, set[str]] = defaultdict(set)
    for link in real.links:
        if link["from_url"] != link["to_url"] and link["to_url"] in pages:
            linking[link["to_url"]].add(link["from_url"])
    first = sorted(linking.items(), key=lambda item: (-len(item[1]), item[0]))[:10]
    found = ask(real, "most-linked", count=10)
    assert [(row[0], row[2]) for row in found] == [(url, len(others)) for url, others in first]


def test_pages_that_nobody_links_to(real: RealCollection) -> None:
    linked = {link["to_url"] for link in real.links if link["from_url"] != link["to_url"]}
    assert [row[0] for row in ask(real, "unlinked")] == sorted(set(good(real)) - linked)


def test_every_example_is_tested() -> None:
    text = Path(__file__).read_text()
    assert [path.stem for path in QUERIES.glob("*.sql") if f'"{path.stem}"' not in text] == []
