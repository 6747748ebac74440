"""The service as a home meets it: each wrong call gets its problem, and no wrong call does harm."""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.host.knocking import NAME, SITE, Home, Stream, limits_of, open_home, problem_in, send

from sterna.errors import Refused
from sterna.host.files import lock
from sterna.host.keyring import ALLOWED
from sterna.host.policy.policy import Policy
from sterna.host.visiting import reception
from sterna.host.visiting.reception import LIVE_LOCK
from sterna.model import Budget, Crawler, Program, Source, Target
from sterna.runtime.engine.client import Engines
from sterna.transport.interface import Call, Op
from sterna.wire.discovery import decode_offer
from sterna.wire.handshake import Greeting
from sterna.wire.keys import Identity
from sterna.wire.merkle import Tree, leaf_of
from sterna.wire.orders import Look, Resume, seal_acknowledgement, seal_order


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with open_home(tmp_path) as opened:
        yield opened


# -- discovery and greeting --------------------------------------------------------------------------------


async def test_discovery_tells_key_endpoint_and_policy(home: Home) -> None:
    reply = await home.service.answer(Call("discover"))
    assert isinstance(reply.body, bytes)
    offer = decode_offer(reply.body, SITE)
    assert (reply.status, reply.media_type) == (200, "application/json")
    assert ("Cache-Control", "max-age=3600") in reply.headers
    assert offer.public_key == home.host.public
    assert offer.endpoint == f"{SITE}/sterna"
    assert offer.sources == ("root", "http")
    assert offer.policy["pages"] == 100_000
    assert not offer.is_live_only


async def test_greeting_grants_what_the_policy_caps(tmp_path: Path) -> None:
    policy = msgspec.convert({"budget": {"pages": 10}}, Policy)
    async with open_home(tmp_path, policy=policy) as home:
        session = await home.greet(wants=Budget(pages=500))
        assert session.grants.pages == 10
        assert session.platform["engine"] == "clips"


async def test_stranger_and_stale_and_misled_homes_are_told_apart(home: Home) -> None:
    async def problem(greeting: Greeting) -> str:
        return problem_in(await home.service.answer(Call("hello", greeting.body))).name

    assert await problem(Home(home.service, home.host).greeting()) == "unknown-home"
    assert await problem(home.greeting(audience="http://other.test")) == "wrong-audience"
    assert await problem(home.greeting(now=home.clock.now() - 1000)) == "stale"
    refused = await home.service.answer(Call("hello", home.greeting(now=1.0).body))
    assert problem_in(refused).time == pytest.approx(home.clock.now(), abs=5)


async def test_greeting_counts_once(home: Home) -> None:
    body = home.greeting().body
    assert (await home.service.answer(Call("hello", body))).status == 200
    assert problem_in(await home.service.answer(Call("hello", body))).name == "replayed"


async def test_greeting_that_was_changed_is_refused_and_does_not_use_its_nonce_up(home: Home) -> None:
    body = home.greeting().body
    for at in range(0, len(body), 7):
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        name = problem_in(await home.service.answer(Call("hello", changed))).name
        assert name in ("bad-signature", "malformed", "version", "unknown-home", "wrong-audience")
    assert (await home.service.answer(Call("hello", body))).status == 200


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xc1" * 100, b"\x92" * 5000, b"x" * 20_000])
@pytest.mark.parametrize("op", ["hello", "order", "acknowledge"])
async def test_garbage_is_answered_with_a_problem(home: Home, op: str, body: bytes) -> None:
    problem = problem_in(await home.service.answer(msgspec.convert([op, body], Call)))
    assert problem.name in ("malformed", "too-large", "ticket-expired")


async def test_allowed_key_may_be_taken_back_between_greeting_and_order(home: Home, tmp_path: Path) -> None:
    session = await home.greet()
    (tmp_path / "keys" / ALLOWED).unlink()
    reply, _ = await home.order(send(), session)
    assert problem_in(reply).name == "unknown-home"


# -- orders ------------------------------------------------------------------------------------------------


async def test_whole_site_comes_home_with_a_signed_end(home: Home) -> None:
    stream = await home.visit(send())
    ending = stream.ending
    assert len(stream.pages) == 13
    assert stream.pages["/3.html"].title == "Page 3"
    ending.check(home.host.public)
    tree = Tree()
    for parcel in stream.parcels:
        for page in parcel.pages:
            tree.add(leaf_of(page))
    assert (ending.pages, ending.root) == (13, tree.root())
    assert (ending.parcels, ending.usage.pages, ending.ended) == (len(stream.parcels), 13, "finished")
    assert stream.parcels[-1].ended == "finished"


async def test_forty_copies_of_an_order_have_one_winner(home: Home) -> None:
    session = await home.greet()
    body = seal_order(session.keys, session.ticket, send())
    replies = await asyncio.gather(*(home.service.answer(Call("order", body)) for _ in range(40)))
    won = [reply for reply in replies if reply.status == 200]
    lost = {problem_in(reply).name for reply in replies if reply.status != 200}
    assert len(won) == 1
    assert lost == {"ticket-spent"}
    stream = Stream(won[0], session)
    await stream.read()
    assert len(stream.pages) == 13


async def test_order_that_was_changed_does_not_burn_the_ticket(home: Home) -> None:
    session = await home.greet()
    body = seal_order(session.keys, session.ticket, send())
    for at in (16, 30, 60, len(body) - 1):
        changed = body[:at] + bytes([body[at] ^ 0x80]) + body[at + 1 :]
        assert problem_in(await home.service.answer(Call("order", changed))).name == "bad-signature"
    assert problem_in(await home.service.answer(Call("order", body[:-1]))).name == "bad-signature"
    assert (await home.service.answer(Call("order", body))).status == 200


async def test_order_under_the_keys_of_another_session_is_refused(home: Home) -> None:
    one, other = await home.greet(), await home.greet()
    body = seal_order(one.keys, one.ticket, send())
    swapped = other.keys.session + body[16:]
    assert problem_in(await home.service.answer(Call("order", swapped))).name == "bad-signature"
    reply, _ = await home.order(send(), msgspec.structs.replace(one, ticket=other.ticket))
    assert problem_in(reply).name == "malformed"
    reply, _ = await home.order(send(), one)
    assert reply.status == 200


async def test_start_outside_the_site_is_refused(home: Home) -> None:
    reply, _ = await home.order(send(starts=(Target("http://127.0.0.1/admin"),)))
    problem = problem_in(reply)
    assert (problem.name, problem.status) == ("refused", 403)


@pytest.mark.parametrize(
    "fields",
    [
        {"not_before": 1e300},
        {"not_before": -1e300},
        {"priority": -(2**63)},
        {"depth": -1},
        {"attempts": 2**40},
    ],
    ids=str,
)
async def test_start_with_numbers_that_no_parcel_can_carry_is_refused(
    home: Home, fields: dict[str, Any]
) -> None:
    reply, _ = await home.order(send(starts=(Target(f"{SITE}/", **fields),)))
    problem = problem_in(reply)
    assert (problem.name, problem.status) == ("refused", 403)
    assert "out of range" in problem.detail


async def test_visit_that_is_here_is_not_begun_twice(home: Home) -> None:
    await home.order(send())
    reply, _ = await home.order(send())
    assert problem_in(reply).name == "replayed"


async def test_crawler_with_rules_runs_and_its_lines_come_home(home: Home) -> None:
    rule = '(defrule note (page (url ?u) (title "Page 3")) => (log-line (str-cat "found " ?u)))'
    crawler = Crawler(name="noter", program=Program(rules=(Source("note.clp", rule),)))
    stream = await home.visit(send(crawler=crawler))
    assert stream.ending.ended == "finished"
    assert any(line.endswith(f"found {SITE}/3.html") for line in stream.lines)


async def test_crawler_that_breaks_its_engine_costs_its_own_visit_only(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna.runtime.runtime.Engines", partial(Engines, page_seconds=1.0))
    rule = "(defrule spin (page) => (while TRUE do (bind ?x 1)))"
    crawler = Crawler(name="spinner", program=Program(rules=(Source("spin.clp", rule),)))
    spinning = asyncio.create_task(home.visit(send(crawler=crawler, visit="v1")))
    other = await home.visit(send(visit="v1b"))
    assert other.ending.ended == "finished"
    assert (await spinning).ending.ended == "wall_seconds"


async def test_crawlers_are_refused_where_there_is_no_jail(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nothing:
        has_seccomp = False

    monkeypatch.setattr(reception, "protection", Nothing)
    rules = (Source("a.clp", "(defrule a (page) => (keep))"),)
    for crawler in (Crawler(program=Program(rules=rules)), Crawler()):
        reply, _ = await home.order(send(crawler=crawler))
        assert problem_in(reply).name == "no-jail"


async def test_mistake_of_ours_tells_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the secret is 42")

    monkeypatch.setattr("sterna.host.service.admit", fail)
    with caplog.at_level(logging.ERROR):
        reply = await home.service.answer(Call("hello", home.greeting().body))
    assert (problem_in(reply).name, reply.status) == ("internal", 500)
    assert isinstance(reply.body, bytes)
    assert b"42" not in reply.body
    assert "the secret is 42" in caplog.text


async def test_robots_hold_at_the_site_unless_the_policy_frees_a_home(tmp_path: Path) -> None:
    identity = Identity.new()
    policy = msgspec.convert({"homes": {NAME: {"key": identity.public.text, "obey_robots": False}}}, Policy)
    async with open_home(tmp_path, policy=policy) as home:
        (tmp_path / "site" / "robots.txt").write_text("User-agent: *\nDisallow: /3.html\n")
        stream = await home.visit(send())
        assert stream.pages["/3.html"].error == "robots"
        free = Home(home.service, home.host, identity)
        assert (await free.visit(send())).pages["/3.html"].status == 200


async def test_thousands_of_mutilated_messages_do_no_harm(home: Home) -> None:
    chance = random.Random(5)
    session = await home.greet()
    good: dict[Op, bytes] = {
        "hello": home.greeting().body,
        "order": seal_order(session.keys, session.ticket, send()),
        "acknowledge": seal_acknowledgement(session.keys, "v1", 1),
    }
    seen = set()
    for _ in range(3_000):
        op = chance.choice(list(good))
        body = mutilated(good[op], chance)
        if body != good[op]:
            seen.add(problem_in(await home.service.answer(Call(op, body))).name)
    assert seen <= {"malformed", "bad-signature", "version", "too-large", "ticket-expired", "gone"}
    assert (await home.service.answer(Call("order", good["order"]))).status == 200


def mutilated(body: bytes, chance: random.Random) -> bytes:
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data)) if data else 0
        how = chance.randrange(5)
        if how == 0:
            del data[at:]
        elif how == 1:
            data[at:at] = chance.randbytes(chance.randint(1, 40))
        elif how == 2:
            del data[at : at + chance.randint(1, 40)]
        elif data:
            data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


# -- bodies ------------------------------------------------------------------------------------------------


async def pieces(*chunks: bytes, then_wait: bool = False) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    if then_wait:
        await asyncio.Event().wait()


async def refused(home: Home, op: str, body: AsyncIterator[bytes], announced: int | None = None) -> str:
    with pytest.raises(Refused) as caught:
        await home.service.bodies.read(op, body, announced=announced)  # type: ignore[arg-type]
    return caught.value.problem


async def test_large_body_is_refused_before_it_is_read(home: Home) -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    assert await refused(home, "order", never(), announced=10**9) == "too-large"
    assert await refused(home, "hello", never(), announced=10_000) == "too-large"


async def test_body_that_is_larger_than_announced_is_refused(home: Home) -> None:
    assert await refused(home, "hello", pieces(b"x" * 8000, b"x" * 8000), announced=100) == "too-large"
    assert await refused(home, "acknowledge", pieces(b"x" * 5000)) == "too-large"


async def test_stranger_cannot_fill_the_memory_with_an_order(home: Home) -> None:
    assert await refused(home, "order", pieces(b"s" * 10, b"s" * 10, b"x" * 10**6)) == "ticket-expired"


async def test_bodies_of_all_calls_together_are_bounded(tmp_path: Path) -> None:
    async with open_home(tmp_path, limits=limits_of(order_bytes=10_000)) as home:
        session = await home.greet()
        slow = [
            asyncio.create_task(
                home.service.bodies.read(
                    "order", pieces(session.keys.session + b"x" * 9_000, then_wait=True), announced=None
                )
            )
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await refused(home, "order", pieces(session.keys.session + b"x" * 9_000)) == "busy"
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        body = await home.service.bodies.read(
            "order", pieces(session.keys.session + b"x" * 9_000), announced=None
        )
        assert len(body) == 9_016


async def test_slow_body_times_out(tmp_path: Path) -> None:
    async with open_home(tmp_path, limits=limits_of(body_seconds=0.05)) as home:
        assert await refused(home, "hello", pieces(b"x", then_wait=True)) == "malformed"


# -- a host that keeps nothing -----------------------------------------------------------------------------


async def test_live_host_streams_and_keeps_nothing(tmp_path: Path) -> None:
    async with open_home(tmp_path, is_live_only=True) as home:
        stream = await home.visit(send())
        assert len(stream.pages) == 13
        assert stream.ending.ended == "finished"
        assert kept_in(tmp_path) == []
        for order in (Resume("v1", 1), Look("v1")):
            reply, _ = await home.order(order)
            assert problem_in(reply).name == "gone"
        offer = await home.service.answer(Call("discover"))
        assert isinstance(offer.body, bytes)
        assert decode_offer(offer.body, SITE).is_live_only


def kept_in(folder: Path) -> list[Path]:
    return [path for path in folder.glob("state/live-*/*/*") if path.is_file()]


async def test_what_a_live_host_left_is_deleted_unless_its_process_may_live_in_another_container(
    tmp_path: Path,
) -> None:
    state, no_process = tmp_path / "state", 2**22 + 1  # above the kernel's largest number
    for name in (f"live-{no_process}", f"live-{no_process}-aa", f"live-{no_process}-bb"):
        (state / name / "visit").mkdir(parents=True)
    held = lock(state / f"live-{no_process}-bb" / LIVE_LOCK)
    async with open_home(tmp_path, is_live_only=True) as home:
        await home.visit(send())
        assert [path.name for path in state.glob(f"live-{no_process}*")] == [f"live-{no_process}-bb"]
    assert held is not None
    os.close(held)


async def test_live_hosts_share_their_places(tmp_path: Path) -> None:
    async with open_home(tmp_path, is_live_only=True, limits=limits_of(crawlers_at_once=1)) as home:
        await home.order(send())
        other = Home(home.service, home.host, home.identity)
        reply, _ = await other.order(send(visit="v2"))
        problem = problem_in(reply)
        assert (problem.name, problem.retry_after) == ("busy", 30)
