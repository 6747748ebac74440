"""Odd HTTP answers: Sterna reads at least as many as the best of a browser, Scrapy and wget."""

from collections.abc import Iterator

import pytest
from tests.odd.answers import CASES
from tests.odd.expected import MISSED
from tests.odd.reading import names_of, pages_of_all
from tests.odd.server import serve
from tests.odd.table import PAGE, PEERS, page_of, recorded

from sterna.model import Page

LEAST = 150


@pytest.fixture(scope="module")
def pages() -> Iterator[dict[str, list[Page]]]:
    with serve(CASES) as url:
        yield pages_of_all(url)


def test_each_answer_is_read_or_left_out_for_a_reason(pages: dict[str, list[Page]]) -> None:
    read = names_of(pages)
    assert CASES.keys() - read == MISSED.keys()
    assert all(MISSED.values())


def test_as_many_are_read_as_by_the_best_of_the_peers(pages: dict[str, list[Page]]) -> None:
    best = max(sum(peer in peers for peers in recorded().values()) for peer in PEERS)
    assert len(CASES) >= LEAST
    assert len(names_of(pages)) >= best


def test_a_page_of_which_only_a_part_came_is_marked(pages: dict[str, list[Page]]) -> None:
    notes = {name: page.note for name, found in pages.items() for page in found if page.status == 200}
    assert {name for name, note in notes.items() if note in ("cut", "damaged")} >= {
        "coding-gzip-cut",
        "coding-gzip-bad-checksum",
        "coding-gzip-broken-late",
        "length-too-large",
        "chunked-cut",
        "reset-within-page",
    }
    assert {name for name, note in notes.items() if note} <= {
        name for name in CASES if name.startswith(("coding-", "length-", "chunked-", "reset-"))
    }


def test_the_table_in_the_documentation_is_that_of_the_record() -> None:
    record = recorded()
    assert record.keys() == CASES.keys()
    assert PAGE.read_text() == page_of(record, CASES.keys() - MISSED.keys())
