"""The receipts of visits at a host: made at the end, kept for good, countersigned by their homes alone."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.host.knocking import (
    NAME,
    SITE,
    FastClock,
    GatedSite,
    Home,
    Stream,
    limits_of,
    open_home,
    problem_in,
    send,
    until,
    visit_of,
)
from tests.host.test_cgi import written_cgi

from sterna.errors import Refused, WireError
from sterna.host.calls import Reply
from sterna.host.files import Database
from sterna.host.keyring import ALLOWED, allow
from sterna.host.owner import receipts as module
from sterna.host.owner.receipts import Account, Book, HomeTotals, KeptReceipt, Receipts, read_book
from sterna.host.service import Service
from sterna.host.state import open_state
from sterna.host.visiting import visits
from sterna.model import Ended, Usage
from sterna.transport.interface import Call
from sterna.web.clock import SystemClock
from sterna.wire.handshake import Greeting, Session
from sterna.wire.keys import Identity
from sterna.wire.orders import Kill, Look, Order, Resume, seal_acknowledgement, seal_order
from sterna.wire.receipts import TAKES_RECEIPTS, Receipt, SignedReceipt, decode_receipt
from sterna.wire.stream import Ending, ParcelCame, ReceiptCame

UNDERSTANDS = ("zstd", TAKES_RECEIPTS)


@pytest.fixture
def site() -> GatedSite:
    return GatedSite()


@pytest.fixture
async def home(tmp_path: Path, site: GatedSite) -> AsyncIterator[Home]:
    async with open_home(tmp_path, site=site) as opened:
        yield opened


async def begin(home: Home, order: Order | None = None) -> Stream:
    """The stream of a home that takes receipts."""
    reply, session = await home.order(order or send(), await home.greet(understands=UNDERSTANDS))
    return Stream(reply, session)


async def visit(home: Home, order: Order | None = None) -> Stream:
    stream = await begin(home, order)
    await stream.read()
    return stream


def came(stream: Stream) -> tuple[SignedReceipt, int]:
    """The receipt right before the end, and the bytes before it."""
    receipt, ending = stream.came[-2:]
    assert isinstance(ending, Ending)
    assert isinstance(receipt, ReceiptCame)
    return decode_receipt(receipt.packed), receipt.before_bytes


def rows(folder: Path) -> tuple[KeptReceipt, ...]:
    book = read_book(folder / "state")
    assert book.bad_lines == 0
    return book.rows


async def countersign(home: Home, session: Session, visit: str, signature: bytes) -> Reply:
    body = seal_acknowledgement(session.keys, visit, 0, receipt=signature)
    return await home.service.answer(Call("acknowledge", body))


# -- a visit that goes well --------------------------------------------------------------------------------


async def test_receipt_says_what_the_visit_cost_and_spared(
    home: Home, site: GatedSite, tmp_path: Path
) -> None:
    site.let(12)
    stream = await visit(home)
    signed, before_bytes = came(stream)
    receipt = signed.open()
    ending = stream.ending
    assert (receipt.visit, receipt.site, receipt.ended) == ("v1", SITE, Ended.FINISHED)
    assert (receipt.home, receipt.host) == (home.identity.public.data, home.host.public.data)
    assert (receipt.pages, receipt.requests) == (13, len(site.asked)) == (13, ending.usage.requests)
    assert receipt.read_bytes == ending.usage.bytes_received > 12 * 1000
    assert receipt.sent_bytes == before_bytes
    assert receipt.spared_bytes == receipt.read_bytes - receipt.sent_bytes
    assert receipt.spared_requests == receipt.requests - 2
    assert (receipt.root, receipt.cpu_seconds) == (ending.root, ending.usage.cpu_seconds)
    assert abs(receipt.over - SystemClock().now()) < 60
    (kept,) = rows(tmp_path)
    assert (kept.signed, kept.name, kept.agent) == (signed, NAME, "Tern/1 (+mailto:ada@home.test)")
    assert not kept.is_countersigned


async def test_both_have_what_both_signed(home: Home, site: GatedSite, tmp_path: Path) -> None:
    site.let(12)
    stream = await visit(home)
    signed = came(stream)[0].countersign(home.identity)
    for _ in range(2):  # to say it twice does no harm
        assert (await countersign(home, stream.session, "v1", signed.by_home)).status == 200
    (kept,) = rows(tmp_path)
    assert kept.signed == signed


async def test_home_that_does_not_know_receipts_gets_none(
    home: Home, site: GatedSite, tmp_path: Path
) -> None:
    site.let(12)
    stream = await home.visit(send())
    assert stream.ending.ended == "finished"
    assert not any(isinstance(each, ReceiptCame) for each in stream.came)
    (kept,) = rows(tmp_path)
    assert (kept.receipt.pages, kept.is_countersigned) == (13, False)


async def test_calls_of_the_home_are_not_spared(home: Home, site: GatedSite) -> None:
    stream = await begin(home)
    await stream.read(until=ParcelCame)
    await home.acknowledge(stream.session, "v1", 1)
    site.let(12)
    await stream.read()
    receipt = came(stream)[0].open()
    assert receipt.spared_requests == receipt.requests - 3  # a greeting, an order, an acknowledgement


# -- one that does not -------------------------------------------------------------------------------------


async def test_all_streams_of_a_visit_that_was_cut_are_counted(
    home: Home, site: GatedSite, tmp_path: Path
) -> None:
    first = await begin(home)
    await first.read(until=ParcelCame)
    await first.close()
    site.let(12)
    rest = await visit(home, Resume("v1", first.numbers[-1] + 1))
    signed, before_bytes = came(rest)
    assert signed.open().sent_bytes >= first.size + before_bytes
    assert signed.open().spared_requests == signed.open().requests - 4
    (kept,) = rows(tmp_path)
    assert kept.signed == signed


async def test_stream_that_is_resumed_at_its_end_counts_too_but_fills_no_disk(
    home: Home, site: GatedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BILLS", 3)
    site.let(12)
    last = (await visit(home)).numbers[-1]
    sent = [came(await visit(home, Resume("v1", last + 1)))[0].open().sent_bytes for _ in range(4)]
    assert sent[0] < sent[1] == sent[2] == sent[3]
    with open_state(tmp_path / "state").snapshot() as db:
        assert db.execute("SELECT count(*) FROM receipt").fetchone() == (3,)
    (kept,) = rows(tmp_path)
    assert kept.receipt.sent_bytes == sent[1]


async def test_killed_visit_has_a_receipt(home: Home, site: GatedSite, tmp_path: Path) -> None:
    stream = await begin(home)
    reading = asyncio.create_task(stream.read())
    await until(lambda: len(site.asked) > 2)
    site.let(3)
    await until(lambda: len(site.asked) > 5)
    killing = asyncio.create_task(home.report(Kill("v1")))
    await asyncio.sleep(0.05)
    site.let(4)  # those that are under way
    await killing
    await reading
    receipt = came(stream)[0].open()
    assert receipt.ended is Ended.STOPPED
    assert receipt.pages == len(stream.pages) < 13
    assert rows(tmp_path)[0].receipt == receipt


async def test_visit_that_was_killed_hard_has_one_that_only_the_host_signed(
    home: Home, site: GatedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "KILL_SECONDS", 0.2)
    stream = await begin(home)
    reading = asyncio.create_task(stream.read())
    await until(lambda: len(site.asked) > 2)
    await home.report(Kill("v1"))
    await reading
    assert stream.problem.name == "gone"
    assert not any(isinstance(each, ReceiptCame) for each in stream.came)
    (kept,) = rows(tmp_path)
    assert (kept.receipt.ended, kept.is_countersigned) == (Ended.LOST, False)
    assert kept.receipt.pages == len(stream.pages)


async def test_visit_whose_home_never_came_for_its_end_has_one(
    tmp_path: Path, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "SWEEP_SECONDS", 0.02)
    site.let(12)
    async with open_home(tmp_path, site=site, clock=(clock := FastClock())) as home:
        await begin(home)  # and nobody reads
        while (await home.report(Look("v1"))).state != "finished":  # noqa: ASYNC110 - nobody tells a test
            await asyncio.sleep(0.02)
        assert not rows(tmp_path)
        clock.ahead_seconds = limits_of().kept_seconds + 1
        await until(lambda: bool(rows(tmp_path)))
    (kept,) = rows(tmp_path)
    assert (kept.receipt.ended, kept.receipt.sent_bytes, kept.receipt.pages) == (Ended.FINISHED, 0, 13)


async def test_visit_that_never_began_has_none(tmp_path: Path, site: GatedSite) -> None:
    async with open_home(tmp_path, site=site, limits=limits_of(crawlers_at_once=1)) as home:
        await begin(home, send(visit="v1"))
        await begin(home, send(visit="w2"))
        await until(lambda: len(site.asked) > 2)
        assert (await home.report(Kill("w2"))).state == "killed"
    assert not rows(tmp_path)  # the other goes on when the host starts again


async def test_disk_that_refuses_harms_no_visit(
    home: Home, site: GatedSite, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_state(tmp_path / "state").transaction() as db:
        db.execute("DROP TABLE receipt")
    site.let(12)
    stream = await visit(home)
    assert came(stream)[0].open().pages == 13  # home has it all the same
    assert stream.ending.ended == "finished"
    assert "the receipt of visit v1 is not kept" in caplog.text


@pytest.mark.parametrize("times", [(2_000.0, 1_000.0), (-5.0, -1.0), (1e15, 1e16), (0.0, 0.0)])
async def test_clock_that_jumps_makes_no_false_receipt(tmp_path: Path, times: tuple[float, float]) -> None:
    shown = iter(times)
    kept = Receipts(open_state(tmp_path), HOST, wall=lambda: next(shown))
    costs = Account(visit_of(), home=HOME.public.text, name=NAME, receipts=kept)
    costs.begin()
    costs.end(Usage(), Ended.FINISHED, root=bytes(32), at=kept.wall())
    assert decode_receipt(await costs.bill()).open().ended is Ended.FINISHED
    assert len(read_book(tmp_path).rows) == 1


# -- forged signatures -------------------------------------------------------------------------------------


async def test_forged_countersignature_is_refused(home: Home, site: GatedSite, tmp_path: Path) -> None:
    site.let(12)
    stream = await visit(home)
    signed = came(stream)[0]
    other = SignedReceipt.make(msgspec.structs.replace(signed.open(), pages=12), home.host)
    for signature in (
        bytes(64),
        b"short",
        Identity.new().sign("receipt-home", signed.payload),
        home.identity.sign("receipt", signed.payload),
        other.countersign(home.identity).by_home,
    ):
        reply = await countersign(home, stream.session, "v1", signature)
        assert problem_in(reply).name == "bad-signature"
    reply = await countersign(home, stream.session, "v2", signed.countersign(home.identity).by_home)
    assert problem_in(reply).name == "gone"
    assert not rows(tmp_path)[0].is_countersigned


async def test_nobody_countersigns_for_another_home(home: Home, site: GatedSite, tmp_path: Path) -> None:
    mallory = Home(home.service, home.host, Identity.new())
    allow(tmp_path / "keys" / ALLOWED, mallory.identity.public, "mallory")
    site.let(24)
    mine, _ = await visit(home), await visit(mallory)
    true = came(mine)[0].countersign(home.identity).by_home
    session = await mallory.greet()
    assert problem_in(await countersign(mallory, session, "v1", true)).name == "bad-signature"
    assert not any(kept.is_countersigned for kept in rows(tmp_path))


async def test_acknowledgement_goes_through_though_its_receipt_is_refused(
    home: Home, site: GatedSite, tmp_path: Path
) -> None:
    site.let(12)
    stream = await visit(home)
    body = seal_acknowledgement(stream.session.keys, "v1", stream.numbers[-1], receipt=bytes(64))
    assert problem_in(await home.service.answer(Call("acknowledge", body))).name == "bad-signature"
    assert (await home.report(Look("v1"))).kept_bytes == 0


# -- a host that keeps no visits ---------------------------------------------------------------------------


async def test_process_that_never_had_the_visit_takes_the_signature(tmp_path: Path, site: GatedSite) -> None:
    site.let(12)
    async with open_home(tmp_path, site=site, is_live_only=True) as home:
        stream = await visit(home)
        signed, _ = came(stream)
        config = home.service._config
    later = Service(config, identity=home.host, clock=SystemClock(), is_live_only=True)
    again = Home(later, home.host, home.identity)
    signature = signed.countersign(home.identity).by_home
    reply = await countersign(again, stream.session, "v1", signature)
    assert reply.status == 200
    assert problem_in(await again.acknowledge(stream.session, "v1", 1)).name == "gone"
    (kept,) = rows(tmp_path)
    assert (kept.is_countersigned, kept.receipt.pages) == (True, 13)


async def test_visit_of_a_cgi_host_is_signed_by_both(tmp_path: Path) -> None:
    cgi = written_cgi(tmp_path)
    greeting = Greeting.begin(
        cgi.identity, home=NAME, audience=SITE, wants=send().budget, now=SystemClock().now(),
        understands=UNDERSTANDS,
    )  # fmt: skip
    session = greeting.finish(cgi.ask("POST", "/hello", greeting.body).body, cgi.host.public)
    reply = cgi.ask("POST", "/order", seal_order(session.keys, session.ticket, send()))

    async def once() -> AsyncIterator[bytes]:
        yield reply.body

    stream = Stream(Reply(reply.status, "", (), once()), session)
    await stream.read()
    signed, before_bytes = came(stream)
    assert signed.open().sent_bytes == before_bytes
    signature = signed.countersign(cgi.identity).by_home
    body = seal_acknowledgement(session.keys, "v1", 0, receipt=signature)
    assert cgi.ask("POST", "/acknowledge", body).status == 200
    (kept,) = rows(tmp_path)
    assert (kept.is_countersigned, kept.receipt.ended) == (True, Ended.FINISHED)


def test_visit_of_a_cgi_host_that_was_cut_has_one_that_only_the_host_signed(tmp_path: Path) -> None:
    cgi = written_cgi(tmp_path, policy="delay_seconds = 30\n")
    session = cgi.greet()
    process = cgi.start("POST", "/order", seal_order(session.keys, session.ticket, send()))
    assert process.stdout
    while not process.stdout.readline().isspace():
        pass
    assert process.stdout.read(1)  # the stream has begun
    deadline = time.monotonic() + 20
    while not list((tmp_path / "state").glob("live-*/*/1")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.terminate()
    process.communicate(timeout=30)
    (kept,) = rows(tmp_path)
    assert (kept.receipt.ended, kept.is_countersigned) == (Ended.LOST, False)
    assert kept.receipt.sent_bytes > 0


# -- the book ----------------------------------------------------------------------------------------------


HOST, HOME = Identity(bytes([2]) * 32), Identity(bytes([1]) * 32)


def receipt(name: str = "v1", **fields: Any) -> Receipt:
    given: dict[str, Any] = {
        "visit": name,
        "site": SITE,
        "home": HOME.public.data,
        "host": HOST.public.data,
        "began": 1_700_000_000.0,
        "over": 1_700_000_010.0,
        "ended": Ended.FINISHED,
        "pages": 10,
        "requests": 12,
        "read_bytes": 5_000,
        "sent_bytes": 1_000,
        "cpu_seconds": 0.5,
        "spared_requests": 10,
        "spared_bytes": 4_000,
        "root": bytes(32),
    }
    return Receipt(**(given | fields))


@pytest.fixture
def kept(tmp_path: Path) -> Receipts:
    return Receipts(open_state(tmp_path), HOST)


def test_receipt_has_its_signatures_and_what_the_host_knew_of_its_home(
    kept: Receipts, tmp_path: Path
) -> None:
    kept.note(kept.sign(receipt()), name="ada", agent="Tern/1")
    (row,) = read_book(tmp_path).rows
    assert (row.receipt, row.name, row.agent) == (receipt(), "ada", "Tern/1")


@pytest.mark.parametrize("column", ["payload", "by_host", "by_home"])
def test_changed_receipt_is_found(kept: Receipts, tmp_path: Path, column: str) -> None:
    for name in ("v1", "v2"):
        kept.note(kept.sign(receipt(name)).countersign(HOME))
    with open_state(tmp_path).transaction() as db:
        data = bytearray(db.execute(f"SELECT {column} FROM receipt WHERE visit = 'v1'").fetchone()[0])
        data[len(data) // 2] ^= 1
        db.execute(f"UPDATE receipt SET {column} = ? WHERE visit = 'v1'", (bytes(data),))
    book = read_book(tmp_path)
    assert ([each.receipt.visit for each in book.rows], book.bad_lines) == (["v2"], 1)


@pytest.mark.parametrize("rubbish", [b"{", b"", b"\xff\xfe", b"\0" * 70_000])
def test_rubbish_among_the_receipts_is_passed_over(kept: Receipts, tmp_path: Path, rubbish: bytes) -> None:
    kept.note(kept.sign(receipt("v1")))
    with open_state(tmp_path).transaction() as db:
        db.execute("INSERT INTO receipt VALUES (NULL, 'v0', x'00', ?, ?, ?, '', '')", (rubbish,) * 3)
    kept.note(kept.sign(receipt("v2")))
    book = read_book(tmp_path)
    assert [each.receipt.visit for each in book.rows] == ["v1", "v2"]
    assert book.bad_lines == 1
    kept.countersign("v1", HOME.public, kept.sign(receipt("v1")).countersign(HOME).by_home)
    assert read_book(tmp_path).rows[0].is_countersigned


def test_what_both_signed_is_not_taken_back_by_a_receipt_of_the_host_alone(
    tmp_path: Path, kept: Receipts
) -> None:
    kept.note(kept.sign(receipt()))
    kept.countersign("v1", HOME.public, kept.sign(receipt()).countersign(HOME).by_home)
    kept.note(kept.sign(receipt()))  # the same once more
    kept.note(kept.sign(receipt(sent_bytes=2_000, spared_bytes=3_000)))  # a later one
    (row,) = read_book(tmp_path).rows
    assert (row.is_countersigned, row.receipt.sent_bytes) == (True, 1_000)
    later = kept.sign(receipt(sent_bytes=2_000, spared_bytes=3_000))
    kept.countersign("v1", HOME.public, later.countersign(HOME).by_home)
    assert read_book(tmp_path).rows[0].receipt.sent_bytes == 2_000


def test_visit_that_comes_again_under_its_name_has_its_own_receipt(tmp_path: Path, kept: Receipts) -> None:
    later = receipt(began=1_700_000_100.0, over=1_700_000_200.0)
    for each in (receipt(), later):
        kept.note(kept.sign(each))
    kept.countersign("v1", HOME.public, kept.sign(later).countersign(HOME).by_home)
    assert [each.is_countersigned for each in read_book(tmp_path).rows] == [False, True]


def test_receipt_that_is_not_there_cannot_be_countersigned(kept: Receipts) -> None:
    with pytest.raises(Refused, match="gone"):
        kept.countersign("v1", HOME.public, bytes(64))
    kept.note(kept.sign(receipt()))
    with pytest.raises(Refused, match="gone"):
        kept.countersign("v1", HOST.public, bytes(64))
    with pytest.raises(WireError, match="bad-signature"):
        kept.countersign("v1", HOME.public, bytes(64))


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    """Each has a connection of its own, as processes have."""
    names = [f"v{number}" for number in range(60)]

    def write(name: str) -> None:
        mine = Receipts(open_state(tmp_path), HOST)
        mine.note(mine.sign(receipt(name)))
        mine.countersign(name, HOME.public, mine.sign(receipt(name)).countersign(HOME).by_home)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, names))
    book = read_book(tmp_path)
    assert sorted(each.receipt.visit for each in book.rows) == sorted(names)
    assert all(each.is_countersigned for each in book.rows)
    assert book.bad_lines == 0


def test_folder_without_a_host_has_no_receipts_and_stays_empty(tmp_path: Path) -> None:
    assert read_book(tmp_path).rows == ()
    assert list(tmp_path.iterdir()) == []


# -- sums for the status page ------------------------------------------------------------------------------


def test_receipts_are_summed_by_home(kept: Receipts, tmp_path: Path) -> None:
    other = Identity.new()
    first = kept.sign(receipt("v1"))
    kept.note(first, name="ada")
    kept.note(first.countersign(HOME), name="ada")  # the same visit, signed by its home too
    kept.note(kept.sign(receipt("v2")), name="ada")
    kept.note(kept.sign(receipt("v3", home=other.public.data)))
    ada, unnamed = HomeTotals(tmp_path)()
    total = ada.total
    assert (ada.home, total.visits, total.countersigned, total.spared_requests) == ("ada", 2, 1, 20)
    assert (total.spared_bytes, total.cpu_seconds) == (8_000, 1.0)
    assert (unnamed.home, unnamed.total.visits) == (other.public.id, 1)


def test_receipts_are_read_again_only_when_they_changed(
    kept: Receipts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Database] = []

    def counted(database: Database) -> Book:
        read.append(database)
        return original(database)

    original = module._read
    monkeypatch.setattr(module, "SUM_SECONDS", 0.0)
    monkeypatch.setattr(module, "_read", counted)
    totals = HomeTotals(tmp_path)
    assert totals() == ()
    kept.note(kept.sign(receipt("v1")))
    assert [totals()[0].total.visits for _ in range(2)] == [1, 1]
    kept.note(kept.sign(receipt("v2", began=1_700_000_001.0)))
    assert totals()[0].total.visits == 2
    kept.countersign(
        "v2", HOME.public, kept.sign(receipt("v2", began=1_700_000_001.0)).countersign(HOME).by_home
    )
    assert totals()[0].total.countersigned == 1
    assert len(read) == 3
