"""`sterna explain DIR` and `sterna crawl --priority`: what is asked of hosts, and what is offered for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.crawl.running import sterna
from tests.home.away.visits import OFFER, SITE, parcel, visit

from sterna.cli.explain import explanation
from sterna.crawler.pack import PackedCrawler, encode
from sterna.errors import UsageError
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Change, HostRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.options import Options, dump
from sterna.model import Checkpoint, Crawler, Ended, Program, Source, Target
from sterna.wire.discovery import Offer, encode_offer

Make = Callable[..., Path]

PUBLIC = msgspec.structs.replace(OFFER, policy={"pages": 50, "seconds": 3600.0})
WAITING = [*(f"/a/{n}" for n in range(40)), *(f"/b/{n}" for n in range(30)), *(f"/c/{n}" for n in range(8))]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a collection whose site has a host with this offer, and with these URLs waiting."""

    def make(
        offer: Offer | None = PUBLIC,
        *,
        waiting: list[str] = WAITING,
        crawler: Crawler | None = None,
        **given: Any,
    ) -> Path:
        collection = CollectionFolder(tmp_path / "c")
        with collection.open_for_crawl():
            ledger = SqliteLedger(collection.ledger_path)
            ledger.set_setting("options", dump(Options(seeds=(f"{SITE}/",), **given)))
            if crawler:
                ledger.set_setting("errand", encode(PackedCrawler(crawler=crawler)).hex())
            ledger.seed([Target(f"{SITE}/")], now=1.0)
            ledger.lease(["v"], now=10.0, pages=5, max_depth=5)
            found = tuple(Target(f"{SITE}{path}", 1) for path in waiting)
            last = parcel(visit(id="v"), 1, "/", ended=Ended.BUDGET, checkpoint=Checkpoint(found=found))
            ledger.commit(Change(parcels=(last,)), now=20.0)
            if offer:
                ledger.set_host(HostRow(site=SITE, offer=encode_offer(offer), key=offer.key, until=9e9))
                ledger.set_priority(SITE, 3)
            ledger.close()
        return collection.folder

    return make


def asked(folder: Path) -> list[str]:
    """What is said of hosts, line by line."""
    _, _, said = explanation(str(folder)).partition("At the hosts of its sites\n\n")
    return [line.strip() for line in said.splitlines()]


def test_command_shows_budget_priority_and_what_would_be_narrowed(make: Make) -> None:
    folder = make(priority=(f"{SITE}=5",))
    result = sterna("explain", folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("The crawler 'default'")
    assert result.stdout.partition("At the hosts of its sites\n\n")[2].splitlines() == [
        f"{SITE}: home asks for 20,000 pages and 600 seconds per visit, and offers revisit priority 5 of 10",
        "  priority 3 was promised for the last visit: others are revisited after it",
        "  its host grants at most 50 pages and 600 seconds per visit",
        "  pending pages: 78; a visit has room for 50: it visits /a/ (40), /c/ (8);"
        " left for further visits: 30",
    ]


def test_site_that_fits_into_a_visit_is_gone_to_whole(make: Make) -> None:
    assert asked(make(waiting=WAITING[:20]))[-1] == (
        "pending pages: 20; a visit has room for 50: it visits the whole site"
    )


def test_site_of_which_nothing_waits_is_told_of_as_a_refresh_would_have_it(make: Make) -> None:
    assert asked(make(waiting=[]))[-1] == (
        "pages to revisit: 1; a visit has room for 50: it visits the whole site"
    )


def test_collection_without_hosts_asks_nothing(make: Make) -> None:
    assert asked(make(None)) == ["no host is known at its sites: nothing is asked of any"]


def test_rules_that_no_host_could_jail_stay_here(make: Make) -> None:
    crawler = Crawler(name="ruled", program=Program(rules=(Source("a.clp", "(defrule a (page) => (keep))"),)))
    offer = msgspec.structs.replace(PUBLIC, platform={"jail": "none"})
    told = asked(make(offer, crawler=crawler))[-1]
    assert told == "its machine cannot sandbox rules: the crawler stays here"


def test_crawler_with_an_order_of_its_own_is_not_narrowed(make: Make) -> None:
    crawler = Crawler(name="best", program=Program(is_best_first=True))
    assert asked(make(crawler=crawler))[-1].startswith("the crawler's rules set the order")


def test_offer_of_an_earlier_version_is_passed_over(make: Make) -> None:
    folder = make()
    ledger = SqliteLedger(folder / "ledger.sqlite")
    ledger.set_host(HostRow(site=SITE, offer=b"{}", key=OFFER.key, until=9e9))
    ledger.close()
    assert asked(folder) == ["no host is known at its sites: nothing is asked of any"]


def test_what_a_host_says_cannot_move_the_terminal(make: Make) -> None:
    waiting = [f"/\x1b[2J{n}/{m}" for n in range(4) for m in range(20)]
    assert "\x1b" not in "".join(asked(make(waiting=waiting)))


def test_folder_that_is_no_collection_is_named(tmp_path: Path) -> None:
    result = sterna("explain", tmp_path)
    assert result.returncode == 5
    assert str(tmp_path) in result.stderr


def test_long_query_is_no_folder() -> None:
    words = " OR ".join(f"text LIKE '%{n}%'" for n in range(100))
    assert "How the query is carried out" in explanation(f"SELECT title FROM page WHERE {words}")


@pytest.mark.parametrize(
    "text", ["5", "https://a.example", "https://a.example=11", "https://a.example=-1", "=5", "a.example=1e1"]
)
def test_priority_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--priority"):
        Options(priority=(text,)).check()


def test_priority_is_by_site() -> None:
    options = Options(priority=("https://a.example/deep?x=1=7", "b.example=0"))
    options.check()
    assert options.priorities_by_site() == {"https://a.example": 7, "https://b.example": 0}


def test_crawl_remembers_the_priority(tmp_path: Path) -> None:
    result = sterna(
        "crawl", "http://127.0.0.1:1/", "--into", tmp_path / "c", "--priority", "http://127.0.0.1:1=4"
    )
    assert result.returncode == 1, result.stderr  # nobody is there
    ledger = SqliteLedger(tmp_path / "c" / "ledger.sqlite", is_reader=True)
    kept = ledger.setting("options")
    ledger.close()
    assert msgspec.json.decode(kept or "{}", type=Options).priority == ("http://127.0.0.1:1=4",)
