"""`sterna trust`: what hosts are believed, and forgetting it."""

import json
import time
from pathlib import Path

import pytest
from tests.crawl.running import sterna

from sterna.cli.exits import Exit
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import SampleRow, TrustRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger

HONEST, LIAR, NEW = "https://honest.example", "https://liar.example", "https://new.example"


def sample(site: str, path: str, verdict: str, detail: str = "") -> SampleRow:
    return SampleRow(visit="v1", url=site + path, site=site, verdict=verdict, at=time.time(), detail=detail)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    collection = CollectionFolder(tmp_path / "c")
    with collection.open_for_crawl():
        ledger = SqliteLedger(collection.ledger_path)
        now = time.time()
        ledger.trust.set(
            TrustRow(site=HONEST, key="ed25519:h", good=200.0, at=now),
            [sample(HONEST, f"/{n}", "same") for n in range(25)],
        )
        ledger.trust.set(
            TrustRow(site=LIAR, key="ed25519:l", bad=2.0, at=now, until=now + 9_000),
            [
                sample(LIAR, "/a", "same"),
                sample(LIAR, "/b", "altered", "its digest is right\x1b[31m, and not"),
            ],
        )
        ledger.trust.set(TrustRow(site=NEW, key="ed25519:n", good=1.0, at=now))
        ledger.close()
    return collection.folder


def said(*words: str | Path) -> str:
    result = sterna("trust", *words)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_list_says_who_is_believed(folder: Path) -> None:
    first, honest, liar, new = said("list", folder).splitlines()
    assert first == f"{folder}: 3 hosts checked"
    assert honest.endswith(f"{HONEST}  trusted")
    assert f"{LIAR}  lied; left alone until 20" in liar
    assert new.endswith(f"{NEW}  results wait until they are checked")


def test_show_says_why_and_lets_no_control_characters_through(folder: Path) -> None:
    lines = said("show", folder, LIAR).splitlines()
    assert "2 pages checked" in lines[2]
    assert lines[2].endswith("1 same, 1 altered")
    assert lines[3].strip() == "of a large visit 59 pages would be checked now"
    assert f"altered   {LIAR}/b  its digest is right" in lines[4]  # what speaks against it comes first
    assert "\x1b" not in "".join(lines)


def test_show_stops_at_twenty_pages_and_json_tells_all(folder: Path) -> None:
    assert (
        said("show", folder, "honest.example").splitlines()[-1] == "  ... and 5 more: --json shows them all"
    )
    told = json.loads(said("show", folder, HONEST, "--json"))
    assert (len(told["samples"]), told["is_trusted"], round(told["mean"], 2)) == (25, True, 1.0)
    assert [row["site"] for row in json.loads(said("list", folder, "--json"))["hosts"]] == [HONEST, LIAR, NEW]


def test_reset_makes_a_host_unknown_again(folder: Path) -> None:
    assert said("reset", folder, LIAR) == f"{LIAR}: its host counts as unknown again\n"
    again = sterna("trust", "reset", folder, LIAR)
    assert (again.returncode, again.stderr.count("\n")) == (Exit.USAGE, 1)
    assert f"no host of {LIAR} was checked" in again.stderr


@pytest.mark.parametrize("words", [("show", "https://nobody.example"), ("show", "no site")])
def test_site_that_is_unknown_or_none_is_one_line(folder: Path, words: tuple[str, str]) -> None:
    result = sterna("trust", words[0], folder, words[1])
    assert (result.returncode, result.stderr.count("\n")) == (Exit.USAGE, 1)


def test_folder_that_is_no_collection_is_refused(tmp_path: Path) -> None:
    assert sterna("trust", "list", tmp_path).returncode == Exit.COLLECTION
