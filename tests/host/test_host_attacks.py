"""Attacks by name, on a host in its own process, over real HTTP: each is refused, and the host goes on."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.fuzz_parts import stage
from bench.fuzz_parts.client import Client
from bench.fuzz_parts.host_inputs import Knock
from bench.fuzz_parts.knocking import Knocker, followed, judged
from bench.fuzz_parts.spoiling import SITE, bombs
from bench.fuzz_parts.stage import HostProcess, Watch, quiet, running
from tests.host.knocking import open_home, problem_in
from tests.host.knocking import send as send_order
from tests.servers.pages import Page, PageServer, linking
from tests.servers.plain import Reply

from sterna.errors import WireError
from sterna.host.asgi import MAX_CONNECTIONS
from sterna.model import Budget, Crawler, Program, Source, Target
from sterna.transport.interface import Call
from sterna.wire.handshake import Greeting, Session, SessionKeys, seal
from sterna.wire.keys import Identity
from sterna.wire.orders import (
    Agent,
    Kill,
    Look,
    Order,
    Report,
    Resume,
    Send,
    open_report,
    seal_acknowledgement,
    seal_order,
)
from sterna.wire.problems import Problem, decode_problem

MEMORY_BYTES = 500 << 20  # of the host and its engines, readers and orders


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """Crawlers have less time than those of the bench, for some of these use all of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "POLICY", stage.POLICY.replace("cpu_seconds = 1.0", "cpu_seconds = 0.4"))
        with running(tmp_path_factory.mktemp("host")) as started:
            yield started


class Attacker:
    """A home and its connection to the host."""

    def __init__(self, host: HostProcess, home: Identity) -> None:
        self.host = host
        self.home = home
        self.client = Client(host.port, seconds=40.0)
        self.knocker = Knocker(self.client.ask, home, host.key)

    def greeting(self, **fields: Any) -> Greeting:
        given: dict[str, Any] = {"home": "ada", "audience": SITE, "wants": Budget(), "now": time.time()}
        return Greeting.begin(self.home, **(given | fields))

    async def greet(self) -> Session:
        return await self.knocker.greet()

    async def hello(self, body: bytes) -> Problem:
        """The problem with which a greeting is answered."""
        return decode_problem((await self.client.ask(Knock("hello", body))).body)

    async def order(self, order: Order, session: Session | None = None) -> str:
        """How an order is answered, or how its visit ends."""
        session = session or await self.greet()
        return await self.send(seal_order(session.keys, session.ticket, order), session)

    async def send(self, body: bytes, session: Session) -> str:
        said = await self.client.ask(Knock("order", body))
        answer = judged(said)
        return followed(said, session) if answer == "ok" else answer

    async def look(self, visit: str) -> Report:
        session = await self.greet()
        said = await self.client.ask(Knock("order", seal_order(session.keys, session.ticket, Look(visit))))
        return open_report(session.keys, said.body)


@pytest.fixture
async def ada(host: HostProcess) -> AsyncIterator[Attacker]:
    attacker = Attacker(host, host.homes[0])
    yield attacker
    attacker.client.close()


@pytest.fixture
async def eve(host: HostProcess) -> AsyncIterator[Attacker]:
    attacker = Attacker(host, host.homes[1])
    yield attacker
    attacker.client.close()


@pytest.fixture(autouse=True)
def unhurt(host: HostProcess) -> Iterator[None]:
    """After each attack the host is alive, and nothing in its log is a fault of its own."""
    yield
    assert host.is_alive
    assert "Traceback" not in host.errors.read_text(errors="replace")


_numbers = iter(range(10**6))


def a_visit(**fields: Any) -> Send:
    given: dict[str, Any] = {
        "visit": f"attack-{next(_numbers)}",
        "agent": Agent("Tern/1", "Tern"),
        "starts": (Target(f"{SITE}/"),),
        "budget": Budget(seconds=10.0),
    }
    return Send(**(given | fields))


def ruled(rules: str, **fields: Any) -> Send:
    return a_visit(crawler=Crawler(program=Program(rules=(Source("a.clp", rules),))), **fields)


# -- copies ------------------------------------------------------------------------------------------------


async def test_both_requests_are_good_once(ada: Attacker) -> None:
    greeting = ada.greeting()
    said = await ada.client.ask(Knock("hello", greeting.body))
    session = greeting.finish(said.body, ada.host.key)
    assert (await ada.hello(greeting.body)).name == "replayed"
    body = seal_order(session.keys, session.ticket, a_visit())
    assert await ada.send(body, session) == "visit: finished"
    assert await ada.send(body, session) == "ticket-spent"


async def test_forty_copies_of_one_order_at_once_have_one_winner(host: HostProcess, ada: Attacker) -> None:
    session = await ada.greet()
    body = seal_order(session.keys, session.ticket, a_visit())
    clients = [Client(host.port, seconds=40.0) for _ in range(40)]
    answers = await asyncio.gather(*(client.ask(Knock("order", body)) for client in clients))
    assert Counter(map(judged, answers)) == {"ok": 1, "ticket-spent": 39}
    winner = next(each for each in answers if each.status == 200)
    assert followed(winner, session) == "visit: finished"
    for client in clients:
        client.close()


async def test_copies_that_were_tampered_with_do_not_burn_the_ticket(ada: Attacker) -> None:
    session = await ada.greet()
    body = seal_order(session.keys, session.ticket, a_visit())
    for at in range(0, len(body), 23):
        changed = body[:at] + bytes([body[at] ^ 0x40]) + body[at + 1 :]
        assert await ada.send(changed, session) in ("bad-signature", "ticket-expired")
    for cut in (0, 15, 16, 40, len(body) - 1):
        assert await ada.send(body[:cut], session) in ("malformed", "bad-signature")
    assert await ada.send(body, session) == "visit: finished"


async def test_acknowledgement_may_be_said_again(ada: Attacker) -> None:
    order, session = a_visit(), await ada.greet()
    assert await ada.order(order, session) == "visit: finished"
    body = seal_acknowledgement(session.keys, order.visit, 1)
    for _ in range(3):
        assert judged(await ada.client.ask(Knock("acknowledge", body))) == "ok"
    assert (await ada.look(order.visit)).acknowledged == 1


# -- keys, clocks, sites -----------------------------------------------------------------------------------


async def test_keys_are_good_for_one_purpose(ada: Attacker) -> None:
    session = await ada.greet()
    keys = session.keys
    swapped = SessionKeys(keys.session, keys.acknowledge, keys.stream, keys.order, keys.report)
    assert await ada.send(seal_order(swapped, session.ticket, a_visit()), session) == "bad-signature"
    acknowledged = await ada.client.ask(Knock("acknowledge", seal_acknowledgement(swapped, "v1", 1)))
    assert judged(acknowledged) == "bad-signature"


async def test_session_is_good_for_its_own_keys(ada: Attacker, eve: Attacker) -> None:
    hers, session = await eve.greet(), await ada.greet()
    body = seal_order(session.keys, session.ticket, a_visit())
    assert await ada.send(hers.keys.session + body[16:], hers) == "bad-signature"
    stolen = SessionKeys(hers.keys.session, *msgspec.structs.astuple(session.keys)[1:])
    assert await ada.send(seal_order(stolen, session.ticket, a_visit()), hers) == "bad-signature"
    mixed = seal_order(hers.keys, session.ticket, a_visit())  # her session with another's ticket
    assert await eve.send(mixed, hers) == "malformed"


async def test_reply_to_another_greeting_is_not_believed(ada: Attacker) -> None:
    mine, other = ada.greeting(), ada.greeting()
    said = await ada.client.ask(Knock("hello", other.body))
    with pytest.raises(WireError, match="bad-signature"):
        mine.finish(said.body, ada.host.key)
    with pytest.raises(WireError, match="bad-signature"):
        other.finish(said.body, Identity.new().public)
    assert other.finish(said.body, ada.host.key).ticket


async def test_greeting_under_the_key_of_somebody_else_is_refused(ada: Attacker, eve: Attacker) -> None:
    payload, _ = msgspec.msgpack.decode(ada.greeting().body)
    forged = msgspec.msgpack.encode([payload, eve.home.sign("hello", payload)])
    assert (await eve.hello(forged)).name == "bad-signature"
    in_another_context = msgspec.msgpack.encode([payload, ada.home.sign("ending", payload)])
    assert (await ada.hello(in_another_context)).name == "bad-signature"


@pytest.mark.parametrize("audience", ["http://other.test", f"{SITE}:8080", "https://site.test", f"{SITE}/"])
async def test_greeting_for_another_site_is_refused(ada: Attacker, audience: str) -> None:
    refused = await ada.hello(ada.greeting(audience=audience).body)
    assert (refused.name, refused.status) == ("wrong-audience", 421)


@pytest.mark.parametrize("off", [-125.0, 125.0, -1e9, 1e12])
async def test_clock_that_is_wrong_is_told_the_hosts_time(ada: Attacker, off: float) -> None:
    refused = await ada.hello(ada.greeting(now=time.time() + off).body)
    assert refused.name == "stale"
    assert refused.time == pytest.approx(time.time(), abs=10)
    said = await ada.client.ask(Knock("hello", ada.greeting(now=refused.time).body))
    assert judged(said) == "ok"


async def test_stranger_is_refused_and_learns_nothing_of_the_clock(host: HostProcess) -> None:
    stranger = Attacker(host, Identity.new())
    refused = await stranger.hello(stranger.greeting(now=1.0).body)
    assert (refused.name, refused.time) == ("unknown-home", None)
    stranger.client.close()


async def test_ticket_is_good_for_a_minute(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        session = await home.greet()
        body = seal_order(session.keys, session.ticket, send_order())
        premises = home.service._premises
        late = _Clock(lambda: premises.clock.now() + 61.0)
        home.service._premises = replace(premises, clock=late)  # type: ignore[arg-type]
        assert problem_in(await home.service.answer(Call("order", body))).name == "ticket-expired"


class _Clock:
    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now


# -- visits of others --------------------------------------------------------------------------------------


async def test_visit_of_another_home_cannot_be_touched(ada: Attacker, eve: Attacker) -> None:
    order, session = a_visit(), await ada.greet()
    assert await ada.order(order, session) == "visit: finished"
    orders: tuple[Order, ...] = (Look(order.visit), Kill(order.visit), Resume(order.visit))
    for foreign in orders:
        assert await eve.order(foreign) == "gone"
    # Her own session acknowledges nothing of his, and his session is of no use to her.
    hers = await eve.greet()
    for body in (
        seal_acknowledgement(hers.keys, order.visit, 1),
        session.keys.session
        + seal(hers.keys.acknowledge, msgspec.msgpack.encode([order.visit, 1]), bound=session.keys.session),
    ):
        answer = judged(await eve.client.ask(Knock("acknowledge", body)))
        assert answer in ("gone", "bad-signature")
    report = await ada.look(order.visit)
    assert (report.state, report.acknowledged) == ("finished", 0)


@pytest.mark.parametrize("visit", ["..", "../../x", "a/b", "", "x" * 65, "a\0b", "Ü", "v1\n"])
async def test_visit_cannot_be_named_after_a_file(ada: Attacker, visit: str) -> None:
    order = msgspec.structs.replace(a_visit(), visit=visit)
    assert await ada.order(order) == "malformed"
    assert await ada.order(Look(visit)) == "malformed"


# -- too much ----------------------------------------------------------------------------------------------


async def test_order_that_is_too_large_is_refused_by_its_announcement(host: HostProcess) -> None:
    answered = await thrown(host, head(b"Content-Length: 33554433") + bytes(64))
    assert b" 413 " in answered.split(b"\r\n")[0]
    assert b"urn:sterna:problem:too-large" in answered


async def test_order_that_is_too_large_is_refused_as_it_comes(host: HostProcess, ada: Attacker) -> None:
    """Chunked, it announces nothing; with a session that is good, so that it is read at all."""
    session = await ada.greet()
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(head(b"Transfer-Encoding: chunked"))
    writer.write(b"10\r\n" + session.keys.session + b"\r\n")
    piece, sent = b"100000\r\n" + bytes(1 << 20) + b"\r\n", 0
    answer = asyncio.create_task(reader.readuntil(b"}"))
    while not answer.done() and sent < 64 << 20:
        writer.write(piece)
        sent += 1 << 20
        await asyncio.wait({asyncio.ensure_future(_drained(writer)), answer}, return_when="FIRST_COMPLETED")
    assert b"too-large" in await asyncio.wait_for(answer, 30)
    assert sent <= 56 << 20  # 32 are taken; the rest is what kernels buffer while the answer is on its way
    writer.transport.abort()


async def _drained(writer: asyncio.StreamWriter) -> None:
    try:
        await writer.drain()
    except ConnectionError:
        return  # the host has said no, and gone


@pytest.mark.parametrize("bomb", bombs(), ids=range(len(bombs())))
async def test_bomb_under_a_good_seal_does_not_go_off(host: HostProcess, ada: Attacker, bomb: bytes) -> None:
    session = await ada.greet()
    body = session.keys.session + seal(session.keys.order, bomb, bound=session.keys.session)
    watch = Watch(host)
    watch.start()
    assert await ada.send(body, session) in ("malformed", "too-large")
    assert watch.stop() < MEMORY_BYTES
    assert await ada.order(a_visit(), session) == "visit: finished"  # and the ticket is unspent


async def test_clients_that_never_read_hold_up_nobody(
    host: HostProcess, ada: Attacker, eve: Attacker
) -> None:
    writers = []
    for _ in range(8):
        session = await eve.greet()
        _, writer = await asyncio.open_connection("127.0.0.1", host.port)
        body = seal_order(session.keys, session.ticket, a_visit())
        writer.write(head(b"Content-Length: %d" % len(body)) + body)
        await writer.drain()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writers.append(writer)
    assert await ada.order(a_visit()) == "visit: finished"
    for writer in writers:
        writer.transport.abort()


async def test_more_connections_than_there_are_that_say_a_letter_hold_up_nobody(
    host: HostProcess, ada: Attacker
) -> None:
    beginnings = (b"P", b"POST /hello HTTP/1.1\r\nHo", head(b"Content-Length: 100") + b"x", b"")
    writers = []
    for number in range(3 * MAX_CONNECTIONS // 2):
        _, writer = await asyncio.open_connection("127.0.0.1", host.port)
        writer.write(beginnings[number % len(beginnings)])
        writers.append(writer)
    began = time.monotonic()
    assert await ada.order(a_visit()) == "visit: finished"
    assert time.monotonic() - began < 10
    for writer in writers:
        writer.transport.abort()


def head(*fields: bytes) -> bytes:
    return b"\r\n".join((b"POST /sterna/order HTTP/1.1", b"Host: site.test", *fields, b"", b""))


async def thrown(host: HostProcess, raw: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(raw)
    answered = await asyncio.wait_for(reader.readuntil(b"}"), 20)
    writer.transport.abort()
    return answered


# -- crawlers ----------------------------------------------------------------------------------------------

FOREVER = {
    "loops": ("(defrule a (page) => (while TRUE do (bind ?x 1)))", {"cpu_seconds"}),
    "loops before the first page": ("(defrule a => (while TRUE do (bind ?x 1)))", {"cpu_seconds"}),
    "loops among its own facts": (
        "(deffacts f (own 0)) (defrule a ?f <- (own ?n) => (retract ?f) (assert (own (+ ?n 1))))",
        {"cpu_seconds"},
    ),
    "eats memory": (
        '(defrule a (page) => (bind ?s "0123456789") (while TRUE do (bind ?s (str-cat ?s ?s))))',
        {"memory_bytes", "finished"},  # where a page that kills its engine is an error of that page
    ),
    "eats memory by facts": (
        "(defrule a (page) => (loop-for-count (?n 1 10000000) do (assert (own ?n))))",
        {"facts", "memory_bytes", "cpu_seconds"},
    ),
    "calls itself": (
        "(deffunction f (?n) (f (+ ?n 1))) (defrule a (page) => (f 1))",
        {"crash", "memory_bytes", "rules", "cpu_seconds", "finished"},
    ),
    "sends forever": (
        '(defrule a (page) => (while TRUE do (emit row "' + "x" * 1000 + '")))',
        {"sent_bytes"},
    ),
    "logs forever": ("(defrule a (page) => (while TRUE do (log-line x)))", {"cpu_seconds", "memory_bytes"}),
    "stores forever": (
        '(defrule a (page) => (loop-for-count (?n 1 1000000) do (store (str-cat "k" ?n) ?n)))',
        {"scratch_bytes", "memory_bytes", "cpu_seconds"},
    ),
}


@pytest.mark.parametrize("name", FOREVER)
async def test_crawler_that_never_ends_is_ended_by_name(host: HostProcess, ada: Attacker, name: str) -> None:
    rules, names = FOREVER[name]
    watch = Watch(host)
    watch.start()
    ended = await ada.order(ruled(rules))
    assert ended.removeprefix("visit: ") in names | {"wall_seconds"}  # where the machine is busy
    assert watch.stop() < MEMORY_BYTES
    assert await ada.order(a_visit()) == "visit: finished"


async def test_many_crawlers_that_never_end_leave_room_for_others(ada: Attacker, host: HostProcess) -> None:
    others = [Attacker(host, home) for home in host.homes[2:6]]
    hostile = [asyncio.create_task(each.order(ruled(FOREVER["loops"][0]))) for each in others]
    assert await ada.order(a_visit()) == "visit: finished"
    assert set(await asyncio.gather(*hostile)) <= {"visit: cpu_seconds", "visit: wall_seconds"}
    for each in others:
        each.client.close()


CANARY = "127.0.0.2"


async def test_crawler_reaches_no_other_site(tmp_path: Path) -> None:
    other = f"http://{CANARY}:{{port}}"
    pages: dict[str, Page] = {
        "/robots.txt": f"User-agent: *\nAllow: /\nSitemap: {other}/map.xml\nSitemap: /map.xml\n",
        "/map.xml": Reply(
            headers={"Content-Type": "application/xml"},
            body=f"<urlset><url><loc>{other}/of-map</loc></url></urlset>".encode(),
        ),
        "/": linking(f"{other}/link", "/moved", "/based", "/far", "/refreshed"),
        "/based": f'<base href="{other}/"><a href="of-base">x</a>',
        "/refreshed": f'<meta http-equiv="refresh" content="0; url={other}/refresh">',
    }
    async with PageServer({"127.0.0.1": pages, CANARY: {"/": "never"}}) as server:
        target = server.url(CANARY)
        pages["/moved"] = Reply(302, {"Location": f"{target}redirected"})
        rules = f'(defrule a (page) => (load-page "{target}loaded") (follow "{target}followed"))'
        crawler = Crawler(program=Program(rules=(Source("a.clp", rules),)))
        upstream = server.url("127.0.0.1", "")
        async with open_home(tmp_path, root=None, check="", upstream=upstream) as home:
            reply, _ = await home.order(send_order(starts=(Target(f"{target}start"),)))
            assert problem_in(reply).name == "refused"
            for each in (Crawler(), crawler):
                order = send_order(visit=f"v{id(each)}", crawler=each)
                stream = await home.visit(order)
                assert stream.ending.ended == "finished"
        asked = {hit.path for hit in server.log if hit.address == "127.0.0.1"}
        assert asked >= {"/", "/robots.txt", "/map.xml", "/moved", "/based", "/refreshed"}
        assert not [hit.path for hit in server.log if hit.address == CANARY]


# -- afterwards --------------------------------------------------------------------------------------------


async def test_nothing_is_left_behind(host: HostProcess, ada: Attacker) -> None:
    assert await ada.order(a_visit()) == "visit: finished"
    assert await quiet(host, seconds=40.0)
