"""Names to addresses, asked of a real server over UDP."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import aiodns
import pytest
from tests.clocks import StillClock
from tests.servers.names import NameServer

from sterna.errors import FetchError
from sterna.web import dns
from sterna.web.curl import CurlConfig
from sterna.web.dns import (
    KEEP_FAILURE_SECONDS,
    MAX_KEEP_SECONDS,
    MIN_KEEP_SECONDS,
    DnsResolver,
    allowed_addresses,
)

BOTH = ("192.0.2.1", "192.0.2.2", "2001:db8::1")


class Answers:
    """Takes the place of c-ares, which keeps answers by a clock of its own."""

    def __init__(self, *, ttl: int) -> None:
        self.ttl = ttl
        self.asked: list[str] = []

    async def getaddrinfo(self, hostname: str, **_: object) -> SimpleNamespace:
        self.asked.append(hostname)
        await asyncio.sleep(0)
        return SimpleNamespace(nodes=[SimpleNamespace(addr=(b"192.0.2.1", 0), ttl=self.ttl)])

    async def close(self) -> None: ...


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with NameServer({"one.test": ["192.0.2.7"], "many.test": BOTH, "empty.test": ()}) as server:
        yield server


@pytest.fixture
async def resolver(clock: StillClock, server: NameServer) -> AsyncIterator[DnsResolver]:
    resolver = DnsResolver(clock, nameservers=[server.address], timeout_seconds=0.2, tries=1)
    yield resolver
    await resolver.close()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    answers = Answers(ttl=300)
    monkeypatch.setattr(aiodns, "DNSResolver", lambda *_, **__: answers)
    return answers


@pytest.mark.parametrize(
    ("hostname", "address"),
    [("192.0.2.9", "192.0.2.9"), ("2001:DB8:0::9", "2001:db8::9"), ("[::1]", "::1")],
)
async def test_literal_address_is_its_own_answer(
    resolver: DnsResolver, server: NameServer, hostname: str, address: str
) -> None:
    assert await resolver.resolve(hostname) == (address,)
    assert server.questions == []


async def test_localhost_is_this_machine_and_nobody_is_asked(
    resolver: DnsResolver, server: NameServer
) -> None:
    found = await resolver.resolve("localhost")
    assert "127.0.0.1" in found
    assert set(found) <= {"127.0.0.1", "::1"}
    assert server.questions == []


async def test_all_addresses_of_a_name_are_found_each_once(resolver: DnsResolver) -> None:
    assert await resolver.resolve("one.test") == ("192.0.2.7",)
    found = await resolver.resolve("many.test")
    assert sorted(found) == sorted(BOTH)


@pytest.mark.parametrize("hostname", ["nowhere.test", "empty.test", "a..test", f"{'x' * 64}.test", ""])
async def test_name_without_an_address_is_an_error_of_the_kind_dns(
    resolver: DnsResolver, hostname: str
) -> None:
    with pytest.raises(FetchError, match="no address found") as failure:
        await resolver.resolve(hostname)
    assert failure.value.kind == "dns"


async def test_failure_is_kept_for_a_while_and_no_longer(
    resolver: DnsResolver, server: NameServer, clock: StillClock
) -> None:
    for _ in range(3):
        with pytest.raises(FetchError):
            await resolver.resolve("nowhere.test")
    assert server.questions.count("nowhere.test") == 1
    server.records = {"nowhere.test": ["192.0.2.3"]}
    clock.time += KEEP_FAILURE_SECONDS
    assert await resolver.resolve("nowhere.test") == ("192.0.2.3",)


async def test_silent_name_server_is_a_failure_within_its_time(
    resolver: DnsResolver, server: NameServer
) -> None:
    server.is_silent = True
    with pytest.raises(FetchError, match="Timeout"):
        await asyncio.wait_for(resolver.resolve("one.test"), 5)


async def test_who_asks_at_the_same_time_shares_one_question(
    resolver: DnsResolver, server: NameServer
) -> None:
    found = await asyncio.gather(*(resolver.resolve("one.test") for _ in range(100)))
    assert set(found) == {("192.0.2.7",)}
    assert server.questions == ["one.test"]


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others(
    resolver: DnsResolver, server: NameServer
) -> None:
    impatient = asyncio.create_task(resolver.resolve("one.test"))
    patient = asyncio.create_task(resolver.resolve("one.test"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == ("192.0.2.7",)
    assert impatient.cancelled()


async def test_short_life_of_a_record_is_stretched(
    resolver: DnsResolver, server: NameServer, clock: StillClock
) -> None:
    await resolver.resolve("one.test")
    clock.time += MIN_KEEP_SECONDS - 1
    await resolver.resolve("one.test")
    assert server.questions == ["one.test"]
    clock.time += 1
    await resolver.resolve("one.test")
    assert server.questions == ["one.test"] * 2


@pytest.mark.parametrize(
    ("ttl", "kept"),
    [(5, MIN_KEEP_SECONDS), (300, 300.0), (10**6, MAX_KEEP_SECONDS), (2**31, MAX_KEEP_SECONDS)],
)
async def test_record_is_kept_for_its_life_between_two_bounds(
    clock: StillClock, answers: Answers, ttl: int, kept: float
) -> None:
    answers.ttl = ttl
    resolver = DnsResolver(clock)
    await resolver.resolve("a.test")
    clock.time += kept - 0.1
    await resolver.resolve("a.test")
    assert len(answers.asked) == 1
    clock.time += 0.1
    await resolver.resolve("a.test")
    assert len(answers.asked) == 2


async def test_address_that_answered_comes_first_from_then_on(resolver: DnsResolver) -> None:
    *others, last = await resolver.resolve("many.test")
    resolver.prefer("many.test", last)
    assert await resolver.resolve("many.test") == (last, *others)
    resolver.prefer("many.test", "198.51.100.1")
    resolver.prefer("never-asked.test", last)
    assert await resolver.resolve("many.test") == (last, *others)


async def test_preference_does_not_prolong_the_life_of_a_record(
    resolver: DnsResolver, server: NameServer, clock: StillClock
) -> None:
    *_, last = await resolver.resolve("many.test")
    clock.time += MIN_KEEP_SECONDS - 1
    resolver.prefer("many.test", last)
    clock.time += 1
    await resolver.resolve("many.test")
    assert server.questions == ["many.test"] * 2


async def test_cache_forgets_the_oldest_names_beyond_its_bound(
    clock: StillClock, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns, "MAX_NAMES", 3)
    resolver = DnsResolver(clock)
    for name in ("a.test", "b.test", "c.test", "d.test", "b.test", "a.test"):
        await resolver.resolve(name)
    assert answers.asked == ["a.test", "b.test", "c.test", "d.test", "a.test"]


async def test_close_ends_questions_under_way(clock: StillClock, server: NameServer) -> None:
    server.is_silent = True
    resolver = DnsResolver(clock, nameservers=[server.address])
    asking = asyncio.create_task(resolver.resolve("one.test"))
    await asyncio.wait_for(server.was_asked.wait(), 5)
    await resolver.close()
    with pytest.raises(FetchError, match="cancelled"):
        await asyncio.wait_for(asking, 1)


# Through a proxy, which often stands inside of a private network

PROXIED = CurlConfig(proxy="http://proxy.test:3128")
TRUSTING = CurlConfig(proxy="http://proxy.test:3128", proxy_resolves=True)
PUBLIC = ("198.41.0.4", "199.9.14.201")


@pytest.fixture
async def split_resolver(clock: StillClock) -> AsyncIterator[DnsResolver]:
    names = {"public.test": PUBLIC, "inside.test": ["10.0.0.1"], "both.test": [PUBLIC[0], "169.254.169.254"]}
    async with NameServer(names) as server:
        resolver = DnsResolver(clock, nameservers=[server.address], timeout_seconds=0.2, tries=1)
        yield resolver
        await resolver.close()


@pytest.mark.parametrize("config", [PROXIED, TRUSTING])
@pytest.mark.parametrize(
    "hostname",
    [
        *("169.254.169.254", "10.0.0.1", "127.0.0.1", "::1", "::ffff:a9fe:a9fe"),
        *("localhost", "localhost.", "any.localhost", "inside.test", "both.test"),
    ],
)
async def test_proxy_is_not_asked_for_private_addresses_and_names_that_lead_there(
    split_resolver: DnsResolver, config: CurlConfig, hostname: str
) -> None:
    with pytest.raises(FetchError, match="private_address"):
        await allowed_addresses(split_resolver, hostname, may_be_private=False, config=config)


async def test_proxy_finds_the_address_of_a_public_name_itself(split_resolver: DnsResolver) -> None:
    found = await allowed_addresses(split_resolver, "public.test", may_be_private=False, config=PROXIED)
    assert found == ("",)


async def test_name_that_only_the_proxy_can_resolve_is_left_to_it_if_the_user_says_so(
    split_resolver: DnsResolver,
) -> None:
    with pytest.raises(FetchError, match=r"no address found for unknown\.test: .*--proxy-resolves"):
        await allowed_addresses(split_resolver, "unknown.test", may_be_private=False, config=PROXIED)
    found = await allowed_addresses(split_resolver, "unknown.test", may_be_private=False, config=TRUSTING)
    assert found == ("",)


async def test_private_site_that_was_named_goes_through_the_proxy(split_resolver: DnsResolver) -> None:
    found = await allowed_addresses(split_resolver, "10.0.0.1", may_be_private=True, config=PROXIED)
    assert found == ("",)
