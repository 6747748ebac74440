"""The sums of receipts that a status page shows."""

from pathlib import Path

import msgspec
import pytest

from sterna.host.owner import spared
from sterna.host.owner.receipts import Book, Receipts, read_book
from sterna.host.owner.spared import ReceiptSums
from sterna.model import Ended
from sterna.wire.keys import Identity
from sterna.wire.receipts import Receipt

HOST, HOME, OTHER = Identity.new(), Identity.new(), Identity.new()


def receipt(visit: str, home: Identity) -> Receipt:
    return Receipt(
        visit=visit,
        site="http://site.test",
        home=home.public.data,
        host=HOST.public.data,
        began=1000.0,
        over=1010.0,
        ended=Ended.FINISHED,
        pages=10,
        requests=12,
        read_bytes=1_000,
        sent_bytes=100,
        cpu_seconds=0.5,
        spared_requests=10,
        spared_bytes=900,
        root=bytes(32),
    )


def test_receipts_are_summed_by_home(tmp_path: Path) -> None:
    receipts = Receipts(tmp_path, HOST)
    first = receipts.sign(receipt("v1", HOME))
    receipts.note(first, name="ada")
    receipts.note(first.countersign(HOME), name="ada")  # the same visit, signed by its home too
    receipts.note(receipts.sign(receipt("v2", HOME)), name="ada")
    receipts.note(receipts.sign(receipt("v3", OTHER)))
    ada, other = ReceiptSums(tmp_path)()
    assert (ada.home, ada.visits, ada.signed, ada.requests, ada.bytes) == ("ada", 2, 1, 20, 1_800)
    assert ada.cpu_seconds == 1.0
    assert (other.home, other.visits, other.signed) == (OTHER.public.text, 1, 0)


def test_file_is_read_again_only_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counted(state: Path) -> Book:
        read.append(state)
        return read_book(state)

    monkeypatch.setattr(spared, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(spared, "read_book", counted)
    receipts, sums = Receipts(tmp_path, HOST), ReceiptSums(tmp_path)
    assert sums() == ()
    receipts.note(receipts.sign(receipt("v1", HOME)))
    assert [sums()[0].visits, sums()[0].visits] == [1, 1]
    receipts.note(receipts.sign(msgspec.structs.replace(receipt("v2", HOME), began=1001.0)))
    assert sums()[0].visits == 2
    assert len(read) == 2
