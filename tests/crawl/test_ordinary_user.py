"""Sterna needs no rights that an ordinary user lacks, and reads a collection that its user may not change."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crawl import ordinarily
from tests.crawl.ordinarily import PAGES
from tests.ordinary import IS_ROOT, NOBODY, home_of_a_user, run_as_user

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

USER = NOBODY if IS_ROOT else os.geteuid()


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with home_of_a_user() as folder:
        yield folder


def told(home: Path, step: str) -> dict[str, Any]:
    done = run_as_user(home, ordinarily.__name__, step, home)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def crawled(home: Path) -> dict[str, Any]:
    return told(home, "crawl")


@pytest.fixture
def unwritable(home: Path, crawled: dict[str, Any]) -> Iterator[Path]:
    """The collection, every file 0400 and every folder 0500."""
    paths = [home / "c", *(home / "c").rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in reversed(paths):
        path.chmod(0o500 if path.is_dir() else 0o400)
    yield home / "c"
    for path, mode in modes.items():
        path.chmod(mode)


def test_ordinary_user_crawls_from_here_and_through_a_host(crawled: dict[str, Any]) -> None:
    assert crawled == {"user": USER, "visits": {"here": 1, "host": 1}, "pages": 2 * PAGES}


def test_collection_that_its_user_may_only_read_is_searched_queried_exported_and_shown(
    home: Path, unwritable: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in unwritable.rglob("*")}

    found = told(home, "read")

    assert found["user"] == USER
    assert found["codes"] == {**dict.fromkeys(found["codes"], 0), "index": 6}, found["errors"]
    assert json.loads(found["out"]["search"])["total"] == PAGES - 1  # both sites have the same texts
    assert found["out"]["query"].split() == ["n", str(2 * PAGES)]
    assert found["made"] == ["all.csv", "all.wacz", "pages", "rows.csv"]
    assert found["rows"] == found["files"] == 2 * PAGES
    assert "make the folder writable" in found["errors"]["index"]
    assert {path: path.stat().st_mtime_ns for path in unwritable.rglob("*")} == before
