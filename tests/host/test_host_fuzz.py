"""Some of the inputs of `bench.fuzz`: each is answered well, or with a clean no; and the host goes on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from bench.fuzz_parts import host_inputs
from bench.fuzz_parts.client import Client
from bench.fuzz_parts.host_inputs import Knock
from bench.fuzz_parts.knocking import (
    GREETINGS,
    SEALED,
    Ask,
    Knocker,
    Said,
    Unclean,
    chance_of,
    followed,
    judged,
)
from bench.fuzz_parts.spoiling import hostile, spoil_bytes, spoil_fields
from bench.fuzz_parts.stage import running
from tests.host.knocking import Home, limits_of, open_home, send

from sterna.host.policy.policy import Caps, Policy
from sterna.transport.interface import Call
from sterna.wire.discovery import MEDIA_TYPE
from sterna.wire.problems import PROBLEM_TYPE, encode_problem, problem

SEED = 7
SECONDS = 20.0  # for any answer
COUNTS = {
    "greeting, bytes": 300,
    "greeting, fields": 300,
    "greeting, garbage": 150,
    "order, bytes": 200,
    "order, fields": 350,
    "order, garbage": 150,
    "order, crawler": 30,
    "acknowledgement": 200,
}
POLICY = Policy(
    budget=Caps(pages=20, seconds=5, urls=5_000, cpu_seconds=1, memory_bytes=64 << 20, facts=5_000)
)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with open_home(tmp_path, policy=POLICY, limits=limits_of(kept_seconds=5)) as opened:
        yield opened


def asking(home: Home) -> Ask:
    async def ask(knock: Knock) -> Said:
        async with asyncio.timeout(SECONDS):
            reply = await home.service.answer(Call(knock.op, knock.body))  # type: ignore[arg-type]
            body = reply.body
            whole = body if isinstance(body, bytes) else b"".join([chunk async for chunk in body])
            return Said(reply.status, reply.media_type, whole)

    return ask


def test_every_kind_is_thrown() -> None:
    assert set(COUNTS) == {*GREETINGS, *SEALED}


@pytest.mark.parametrize("kind", COUNTS)
async def test_every_input_is_answered_well_or_cleanly_refused(home: Home, kind: str) -> None:
    knocker = Knocker(asking(home), home.identity, home.host.public)
    for number in range(COUNTS[kind]):
        try:
            await knocker.knock(kind, chance_of(SEED, kind, number))
        except Unclean as error:
            raise AssertionError(f"input {number} of {kind!r}, seed {SEED}: {error}") from error
    assert len(knocker.answers) > 1  # not all of them end at the first hurdle
    assert (await home.visit(send(visit="good"))).ending.pages == 13


def test_whatever_comes_over_a_connection_leaves_a_host_that_answers(tmp_path: Path) -> None:
    with running(tmp_path) as host:
        asyncio.run(throw(host.port, 300))
        asyncio.run(greet_well(Knocker(Client(host.port, seconds=SECONDS).ask, host.homes[0], host.key)))
        assert host.end() == 0
        # uvicorn's own are not counted: it writes one where a client breaks off within a body.
        assert [each for each in host.tracebacks() if "LocalProtocolError" not in each] == []


async def throw(port: int, count: int) -> None:
    client = Client(port, seconds=SECONDS)
    for number in range(count):
        answered = await client.throw(host_inputs.http(chance_of(SEED, "http", number)))
        assert not answered or answered.startswith(b"HTTP/1.1 "), number
        assert b" 500 " not in answered[:40], number


async def greet_well(knocker: Knocker) -> None:
    assert (await knocker.greet()).ticket


# -- the tools themselves ----------------------------------------------------------------------------------


def test_same_chance_makes_the_same_input() -> None:
    tree = msgspec.msgpack.decode(msgspec.msgpack.encode(send()))
    for number in range(200):
        first, second = (spoil_fields(tree, chance_of(1, "x", number)) for _ in range(2))
        assert msgspec.msgpack.encode(first) == msgspec.msgpack.encode(second)
        assert spoil_bytes(b"abc" * 20, Random(number)) == spoil_bytes(b"abc" * 20, Random(number))


def test_all_that_is_hostile_can_be_written() -> None:
    assert all(msgspec.msgpack.encode(hostile(Random(number))) for number in range(2_000))


@pytest.mark.parametrize(
    "said",
    [
        Said(500, PROBLEM_TYPE, encode_problem(problem("internal"))),
        Said(400, "text/plain", b"no"),
        Said(400, PROBLEM_TYPE, b"{}"),
        Said(403, PROBLEM_TYPE, encode_problem(problem("malformed"))),
    ],
)
def test_answer_that_no_host_may_give_is_seen(said: Said) -> None:
    with pytest.raises(Unclean):
        judged(said)


async def test_stream_that_ends_nowhere_is_seen(home: Home) -> None:
    reply, session = await home.order(send())
    body = b"".join([chunk async for chunk in reply.body])  # type: ignore[union-attr]
    assert followed(Said(200, MEDIA_TYPE, body), session) == "visit: finished"
    for cut in (0, 24, len(body) - 1):
        with pytest.raises(Unclean):
            followed(Said(200, MEDIA_TYPE, body[:cut]), session)
