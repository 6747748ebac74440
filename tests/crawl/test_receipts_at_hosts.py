"""A whole crawl at a host leaves the same receipt on both sides, signed by both."""

import json
from pathlib import Path

import pytest
from tests.crawl.hosting import crawl_with_keys, hosts
from tests.crawl.running import sterna
from tests.servers.pages import PageServer, linking

from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.host.owner.receipts import read_book
from sterna.wire.receipts import decode_receipt

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

ADDRESS = "127.0.6.21"
PAGES = 60


def test_crawl_at_a_host_is_signed_by_both_sides(tmp_path: Path) -> None:
    site = {"/": linking(*(f"/{n}" for n in range(PAGES)), title="Front")}
    site |= {f"/{n}": linking(title=f"Page {n}") + "tern " * 500 for n in range(PAGES)}
    with PageServer({ADDRESS: site}).run_in_thread() as server, hosts(server, tmp_path, ADDRESS):
        assert crawl_with_keys(tmp_path, server.url(ADDRESS, "/"))["visits"] == {"here": 0, "host": 1}
    ledger = SqliteLedger(tmp_path / "c" / "ledger.sqlite", is_reader=True)
    ((_, at, data),) = ledger.receipts()
    ledger.close()
    state = tmp_path / f"state-{ADDRESS}"
    (kept,) = read_book(state).rows
    assert at == server.url(ADDRESS, "")
    assert decode_receipt(data) == kept.signed
    assert kept.is_countersigned
    assert kept.receipt.pages == PAGES + 1
    assert 0 < kept.receipt.sent_bytes < kept.receipt.spared_bytes < kept.receipt.read_bytes
    answer = json.loads(sterna("host", "receipts", "--state", state, "--json").stdout)
    assert (answer["total"]["visits"], answer["total"]["countersigned"]) == (1, 1)
    assert [each["home"] for each in answer["homes"]] == ["this-machine"]
