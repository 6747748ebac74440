"""`sterna crawlers` as a user and a script meet it; what it does to hosts is in tests/crawl/test_at_hosts."""

import base64
import json
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.crawl.running import sterna
from tests.home.away.visits import OFFER, SITE, parcel, target, visit
from tests.host.owner.test_host_receipts import receipt

from sterna.home.away.luggage import pack
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Change, Out, OutboxRow, OwnerRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Arrival, Ended, Target
from sterna.wire.keys import Identity
from sterna.wire.receipts import SignedReceipt, decode_receipt

# Nobody said that it may be on this machine, so not even a connection is tried.
UNREACHABLE = msgspec.structs.replace(OFFER, endpoint="http://127.0.0.1:1/sterna")


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """A crawler that came back, and one that is away at a host that is not to be reached."""
    collection = CollectionFolder(tmp_path / "c")
    with collection.open_for_crawl():
        ledger = SqliteLedger(collection.ledger_path)
        ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/b")], now=1.0)
        for number, ended in ((1, Ended.BUDGET), (2, None)):
            trip = visit(target("/"), target("/b"), id=f"visit{number}", epoch=number)
            ledger.lease([trip.id], now=10.0 * number, pages=5, max_depth=5)
            row = OutboxRow(
                visit=trip.id,
                site=SITE,
                endpoint=UNREACHABLE.endpoint,
                key=UNREACHABLE.key,
                state=Out.WAITING,
                written_at=10.0 * number,
            )
            ledger.write_out(row, pack(trip, UNREACHABLE))
            came = parcel(trip, 1, "/" if number == 1 else "/b", ended=ended)
            came = replace(came, arrival=Arrival(received_at=15.0))
            ledger.commit(Change(parcels=(came,)), now=16.0)
            if ended:
                ledger.mark_out(trip.id, Out.RETURNED, now=17.0, bytes_received=1_500, reason="budget")
        ledger.close()
    return collection.folder


def test_list_tells_what_became_of_each(collection: Path) -> None:
    first, returned, away = sterna("crawlers", collection).stdout.splitlines()
    assert first == f"{collection}: 1 away, 1 returned"
    assert returned.split() == ["visit1", "returned", "7.0", "s", "1", "pages", "1.5", "kB", SITE, "budget"]
    assert away.split()[:2] == ["visit2", "away"]


def test_list_as_json_has_every_field(collection: Path) -> None:
    answer = json.loads(sterna("crawlers", collection, "--json").stdout)
    assert [(row["visit"], row["state"], row["parcels"]) for row in answer["crawlers"]] == [
        ("visit1", "returned", 1),
        ("visit2", "away", 1),
    ]
    assert set(answer["crawlers"][0]) == set(OutboxRow.__struct_fields__)


@pytest.mark.parametrize(("is_both", "said"), [(True, "by both"), (False, "by its host alone")])
def test_list_tells_who_signed_the_receipt(collection: Path, is_both: bool, said: str) -> None:
    home, host = Identity.new(), Identity.new()
    made = receipt("visit1", home=home.public.data, host=host.public.data)
    signed = SignedReceipt.make(made, host)
    signed = signed.countersign(home) if is_both else signed
    ledger = SqliteLedger(CollectionFolder(collection).ledger_path)
    ledger.add_receipt("visit1", SITE, signed.encode())
    ledger.close()
    _, returned, away = sterna("crawlers", collection).stdout.splitlines()
    assert returned.endswith(f"budget, receipt signed {said}")
    assert "receipt" not in away
    kept = json.loads(sterna("crawlers", collection, "--json").stdout)["receipts"]["visit1"]
    assert (kept["pages"], kept["is_countersigned"]) == (10, is_both)
    assert decode_receipt(base64.b64decode(kept["signed"])) == signed


def test_status_tells_of_crawlers_that_are_away(collection: Path) -> None:
    assert f"1 crawler away at hosts: sterna crawlers {collection}" in sterna("status", collection).stdout


@pytest.mark.parametrize("command", ["status", "crawlers"])
def test_what_an_owner_asked_for_is_shown(collection: Path, command: str) -> None:
    ledger = SqliteLedger(CollectionFolder(collection).ledger_path)
    until = time.time() + 1000
    ledger.set_owner(
        OwnerRow(site=SITE, reason="back on Monday", until=until, closed="/x/", closed_until=until)
    )
    ledger.close()
    shown = sterna(command, collection).stdout
    assert f"the owner of {SITE} stopped this crawler until 2" in shown
    assert "(back on Monday)" in shown
    assert "--despite-owner" in shown
    assert f"closed by the owner of {SITE}: /x/" in shown


def test_collection_without_any_is_no_error(tmp_path: Path) -> None:
    with CollectionFolder(tmp_path / "c").open_for_crawl():
        SqliteLedger(tmp_path / "c" / "ledger.sqlite").close()
    assert "no crawler was sent to a host" in sterna("crawlers", tmp_path / "c").stdout


@pytest.mark.parametrize("has_key", [True, False])
def test_kill_counts_though_the_host_is_not_to_be_told(
    collection: Path, tmp_path: Path, has_key: bool
) -> None:
    if has_key:
        sterna("keys", "new", "home", "--keys", tmp_path / "keys")
    result = sterna("crawlers", "kill", collection, "--keys", tmp_path / "keys")
    assert result.returncode == 0
    assert result.stdout.startswith(f"visit2 at {SITE}: killed here, but its host was not reached (")
    assert ("private network" if has_key else "no key") in result.stdout
    ledger = SqliteLedger(collection / "ledger.sqlite", is_reader=True)
    assert [row.state for row in ledger.outbox()] == [Out.RETURNED, Out.KILLED]
    assert ledger.counts(now=100.0).leased == 0
    ledger.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kill", "{}", "visit1"], "no crawler visit1 is away: sterna crawlers {} lists them"),
        (["{}", "visit1"], "too many arguments"),
        (["kill", "{}", "visit1", "visit2"], "too many arguments"),
    ],
)
def test_wrong_words_are_one_line_that_says_what_to_do(collection: Path, words: list[str], said: str) -> None:
    result = sterna("crawlers", *(word.format(collection) for word in words))
    assert result.returncode == 2
    assert result.stderr.startswith(f"sterna: {said.format(collection)}")
    assert result.stderr.count("\n") == 1


def test_other_folder_is_no_collection(tmp_path: Path) -> None:
    result = sterna("crawlers", tmp_path)
    assert result.returncode == 5
    assert "is not a collection" in result.stderr
