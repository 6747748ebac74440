"""Homes that are let in and take more than their share: each is refused or bounded, and harms no other."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.fuzz_parts import stage
from bench.fuzz_parts.client import Client
from bench.fuzz_parts.host_inputs import Knock
from bench.fuzz_parts.knocking import Knocker, Unclean, judged
from bench.fuzz_parts.stage import HostProcess, Watch, running
from tests.host.knocking import SITE, open_home, send

from sterna.model import Budget, Crawler, Program, Scope, Source, Target
from sterna.wire.keys import Identity
from sterna.wire.orders import Agent, Look, Send, seal_order

START_URLS = 100_000
MEMORY_BYTES = 300 << 20


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """One for all tests, each of which has homes of its own: what a home used up is of no other's account."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "POLICY", "[load]\nmachine = 0\n")  # else as it is without one
        with running(tmp_path_factory.mktemp("greed") / "host") as started:
            yield started


def order(**fields: Any) -> Send:
    given: dict[str, Any] = {
        "visit": "v1",
        "agent": Agent("Tern/1", "Tern"),
        "starts": (Target(f"{SITE}/"),),
    }
    return Send(**(given | fields))


async def longest_greeting(
    host: HostProcess, hostile: Send, *, copies: int, homes: Sequence[Identity]
) -> float:
    """How long the second home waits at the longest while these orders of the first are carried out."""
    greedy, other = homes

    async def send_one(number: int) -> str:
        async with Client(host.port, seconds=300) as client:
            session = await Knocker(client.ask, greedy, host.key).greet()
            one = msgspec.structs.replace(hostile, visit=f"v{number}")
            return judged(await client.ask(Knock("order", seal_order(session.keys, session.ticket, one))))

    sending = asyncio.gather(*map(send_one, range(copies)))
    longest = 0.0
    async with Client(host.port, seconds=100) as client:
        knocker = Knocker(client.ask, other, host.key)
        while not sending.done():
            began = time.monotonic()
            await knocker.greet()
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0.1)
    await sending
    return longest


async def test_order_without_time_does_not_stop_the_site_for_others(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        await home.visit(send(visit="hostile", budget=Budget(seconds=0.0)))
        stream = await asyncio.wait_for(home.visit(send(budget=Budget(seconds=5.0))), 20)
        assert stream.ending.ended == "finished"


async def test_lines_of_rules_stay_out_of_the_owners_log(host: HostProcess) -> None:
    rules = '(defrule a (page) => (loop-for-count (?n 1 50) do (log-line "\x1b[31mred" ?n)))'
    async with Client(host.port, seconds=40) as client:
        session = await Knocker(client.ask, host.homes[0], host.key).greet()
        crawler = Crawler(program=Program(rules=(Source("a.clp", rules),)))
        said = await client.ask(
            Knock("order", seal_order(session.keys, session.ticket, order(crawler=crawler)))
        )
    assert judged(said) == "ok"
    assert "red" not in host.errors.read_text()


async def test_broken_body_is_not_a_fault_of_the_host(host: HostProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    await asyncio.wait_for(reader.read(), 20)
    writer.close()
    async with Client(host.port, seconds=40) as client:  # once it answers again, it has logged what it had to
        await Knocker(client.ask, host.homes[1], host.key).greet()
    assert not host.tracebacks()


@pytest.mark.timeout(200)
async def test_home_that_asks_a_lot_shuts_nobody_out(host: HostProcess) -> None:
    greedy, other = host.homes[2:4]
    async with Client(host.port, seconds=40) as client:
        knocker = Knocker(client.ask, greedy, host.key)
        with suppress(Unclean):  # it may itself be told to wait
            for number in range(2_100):
                session = await knocker.greet()
                if number < 100:
                    look = seal_order(session.keys, session.ticket, Look("nothing"))
                    await client.ask(Knock("order", look))
        assert (await Knocker(client.ask, other, host.key).greet()).ticket


async def test_expressions_that_are_slow_together_are_refused(host: HostProcess) -> None:
    starts = tuple(Target(f"{SITE}/{number}" + "/abcaba" * 100, 1) for number in range(20_000))
    exclude = tuple(f"(.a|.b|a.)*.{{300}}q{number}$" for number in range(300))
    hostile = order(starts=starts, crawler=Crawler(scope=Scope(exclude=exclude)))
    assert await longest_greeting(host, hostile, copies=1, homes=host.homes[4:6]) < 5


@pytest.mark.timeout(400)
async def test_many_start_urls_do_not_fill_the_memory(host: HostProcess) -> None:
    watch = Watch(host)
    watch.start()
    starts = tuple(Target(f"{SITE}/{number}", 1) for number in range(START_URLS))
    hostile = order(starts=starts, budget=Budget(urls=START_URLS))  # when all are in, the visit ends
    assert await longest_greeting(host, hostile, copies=4, homes=host.homes[6:8]) < 10
    assert watch.stop() < MEMORY_BYTES
