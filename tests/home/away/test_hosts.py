"""Finding hosts: who is asked, how often, and what is believed."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace
from tests.clocks import StillClock
from tests.home.away import lying
from tests.home.away.lying import ENDPOINT, SITE
from tests.home.away.outings import FreeDesk
from tests.transport.serving import Cut, MemoryTransport, Said, Saying, refusing

from sterna.home.away.hosts import CONFIGURED_SECONDS, ERROR_SECONDS, NONE_SECONDS, Configured, Hosts
from sterna.home.ledger.records import HostRow
from sterna.model import Etiquette, Robots, RobotsState
from sterna.transport.interface import Call
from sterna.wire.discovery import Offer, encode_offer
from sterna.wire.keys import Identity, Succession

HOST, OTHER = Identity(bytes([2]) * 32), Identity(bytes([3]) * 32)
DAY = 24 * 3600.0


def offer(**fields: Any) -> Offer:
    given: dict[str, Any] = {"site": SITE, "key": HOST.public.text, "endpoint": ENDPOINT}
    return Offer(**(given | fields))


@dataclass
class Store:
    rows: dict[str, HostRow] = field(default_factory=dict)

    def host_row(self, site: str) -> HostRow | None:
        return self.rows.get(site)

    def set_host(self, row: HostRow) -> None:
        self.rows[row.site] = row


@dataclass
class World:
    """A site, what it answers, and the home that asks it."""

    thread: Executor
    said: Said = field(default_factory=lambda: Saying(encode_offer(offer()), media_type="application/json"))
    address: str = SITE
    configured: dict[str, Configured] = field(default_factory=dict)
    store: Store = field(default_factory=Store)
    clock: StillClock = field(default_factory=StillClock)
    asked: int = 0
    warnings: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    is_cut: bool = False

    def __post_init__(self) -> None:
        self.hosts = self.open()

    def open(self) -> Hosts:
        """Hosts as another run has them."""
        self.hosts = Hosts(
            FreeDesk(self.store),
            MemoryTransport({self.address: self.answer}),
            clock=self.clock,
            configured=self.configured,
            let_private=self.private.append,
            warn=self.warnings.append,
        )
        return self.hosts

    async def answer(self, call: Call) -> Said:
        assert call == Call("discover")
        self.asked += 1
        if self.is_cut:
            raise Cut
        return self.said

    async def find(self, **fields: Any) -> Offer | None:
        return await self.hosts.find(lying.visit(**fields))

    @property
    def row(self) -> HostRow:
        return self.store.rows[SITE]


@pytest.fixture
def world() -> Iterator[World]:
    with ThreadPoolExecutor(1) as thread:
        yield World(thread)


def robots(text: bytes) -> dict[str, Any]:
    return {"robots": Robots(RobotsState.QUALIFIED, tried_at=1.0, rules=text)}


def saying(data: bytes) -> Saying:
    return Saying(data, media_type="application/json")


# -- asking, and not asking again --------------------------------------------------------------------------


async def test_offer_is_found_kept_and_its_key_pinned(world: World) -> None:
    assert await world.find() == offer()
    assert await world.find() == offer()
    assert await world.open().find(lying.visit()) == offer()
    assert world.asked == 1
    assert (world.row.key, world.row.offer) == (HOST.public.text, encode_offer(offer()))


async def test_offer_is_asked_for_again_when_it_is_old(world: World) -> None:
    world.said = saying(encode_offer(offer(max_age=1000)))
    await world.find()
    world.clock.time += 999
    await world.find()
    assert world.asked == 1
    world.clock.time += 2
    assert await world.find()
    assert world.asked == 2


@pytest.mark.parametrize(
    ("max_age", "control", "seconds"),
    [(0, "", 300.0), (10**6, "", 7 * DAY), (5000, "max-age=900", 900.0), (900, "max-age=5000", 900.0)],
)
async def test_offer_is_kept_for_a_sensible_time(
    world: World, max_age: int, control: str, seconds: float
) -> None:
    headers = (("Cache-Control", control),) if control else ()
    world.said = Saying(encode_offer(offer(max_age=max_age)), headers=headers)
    await world.find()
    assert world.row.until == world.clock.time + seconds


async def test_site_without_a_host_is_not_asked_again_for_a_day(world: World) -> None:
    world.said = Saying(b"not found", 404, "text/html")
    assert await world.find() is None
    world.clock.time += NONE_SECONDS - 1
    assert await world.open().find(lying.visit()) is None
    assert world.asked == 1
    world.clock.time += 2
    await world.find()
    assert world.asked == 2


async def test_site_that_cannot_be_reached_is_asked_again_sooner(world: World) -> None:
    world.is_cut = True
    assert await world.find() is None
    world.is_cut = False
    assert await world.find() is None
    world.clock.time += ERROR_SECONDS
    assert await world.find() == offer()


async def test_site_that_asks_for_patience_gets_it(world: World) -> None:
    world.said = refusing("busy", retry_after=2 * DAY)
    await world.find()
    assert world.row.until == world.clock.time + 2 * DAY


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<!doctype html><h1>Welcome to our shop",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 50_000,
        encode_offer(offer(site="https://other.example")),
        encode_offer(offer(version=2)),
        encode_offer(offer(key="ed25519:nonsense")),
        encode_offer(offer(endpoint="ftp://www.example.org/")),
        encode_offer(offer()) + b" " * (64 * 1024),
    ],
)
async def test_document_that_is_none_is_no_host(world: World, data: bytes) -> None:
    world.said = saying(data)
    assert await world.find() is None
    assert (world.row.offer, world.row.key, world.row.until) == (b"", "", world.clock.time + NONE_SECONDS)
    assert world.row.reason
    assert world.warnings == []


async def test_endless_document_is_not_read_to_its_end(world: World) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 8192

    world.said = Saying(endless())
    assert await world.find() is None
    assert "too-large" in world.row.reason


async def test_kept_offer_that_cannot_be_read_is_asked_for_again(world: World) -> None:
    world.store.set_host(HostRow(site=SITE, offer=b"{old}", until=1e12))
    assert await world.find() == offer()


# -- where to ask ------------------------------------------------------------------------------------------


async def test_robots_txt_may_say_where_the_document_is(world: World) -> None:
    world.address = f"{SITE}/host.json"
    world.open()
    assert await world.find(**robots(b"Sterna: https://www.example.org/host.json\n")) == offer()


@pytest.mark.parametrize("url", [b"https://evil.example/x", b"http://www.example.org/x", b"nonsense"])
async def test_robots_txt_cannot_send_home_to_another_place(world: World, url: bytes) -> None:
    assert await world.find(**robots(b"Sterna: " + url)) == offer()


async def test_announced_host_is_asked_for_again_sooner(world: World) -> None:
    world.said = Saying(b"", 404, "text/html")
    await world.find()
    world.said = saying(encode_offer(offer()))
    announced = robots(f"Sterna: {SITE}/".encode())
    world.address = f"{SITE}/"
    world.open()
    assert await world.find(**announced) is None
    world.clock.time += ERROR_SECONDS
    assert await world.find(**announced) == offer()


async def test_place_that_robots_txt_closes_is_not_asked_for(world: World) -> None:
    closed = robots(b"User-agent: *\nDisallow: /.well-known/\n")
    assert await world.find(**closed) is None
    assert world.asked == 0
    assert "robots.txt" in world.row.reason


async def test_robots_txt_is_not_asked_where_it_need_not_be_obeyed(world: World) -> None:
    closed = robots(b"User-agent: *\nDisallow: /\n")
    assert await world.find(**closed, etiquette=Etiquette(obey_robots=False)) == offer()


async def test_private_site_that_the_user_named_may_be_asked(world: World) -> None:
    await world.find()
    assert world.private == []
    await world.find(may_be_private=True)
    await world.find(allow_private=True)
    assert world.private == ["www.example.org"] * 2


# -- trust -------------------------------------------------------------------------------------------------


async def renewed(world: World, new: Offer) -> Offer | None:
    """What is found once the site has another offer."""
    await world.find()
    world.said = saying(encode_offer(new))
    world.clock.time += DAY
    return await world.find()


async def test_changed_key_is_refused_in_one_line_and_once(world: World) -> None:
    assert await renewed(world, offer(key=OTHER.public.text)) is None
    world.clock.time += DAY
    assert await world.find() is None
    (line,) = world.warnings
    assert "\n" not in line
    assert SITE in line
    assert OTHER.public.id in line
    assert "from here" in line
    assert world.row.key == HOST.public.text  # still


async def test_old_host_is_welcome_again_after_another_took_its_place(world: World) -> None:
    assert await renewed(world, offer(key=OTHER.public.text)) is None
    world.said = saying(encode_offer(offer()))
    world.clock.time += ERROR_SECONDS
    assert await world.find() == offer()


async def test_key_that_the_old_one_signed_takes_its_place(world: World) -> None:
    chain = (Succession.sign(HOST, OTHER.public).text,)
    new = offer(key=OTHER.public.text, succession=chain)
    assert await renewed(world, new) == new
    assert world.row.key == OTHER.public.text
    assert world.warnings == []


async def test_key_that_somebody_else_signed_does_not(world: World) -> None:
    chain = (Succession.sign(Identity.new(), OTHER.public).text,)
    assert await renewed(world, offer(key=OTHER.public.text, succession=chain)) is None


async def test_configured_key_is_the_one_that_counts(world: World) -> None:
    world.configured[SITE] = Configured(key=OTHER.public.text)
    assert await world.open().find(lying.visit()) is None
    assert len(world.warnings) == 1
    world.configured[SITE] = Configured(key=HOST.public.text)
    world.clock.time += CONFIGURED_SECONDS
    assert await world.open().find(lying.visit()) == offer()


async def test_key_that_the_user_names_replaces_the_pinned_one(world: World) -> None:
    assert await renewed(world, offer(key=OTHER.public.text)) is None
    world.configured[SITE] = Configured(key=OTHER.public.text)
    world.clock.time += CONFIGURED_SECONDS
    found = await world.open().find(lying.visit())
    assert found
    assert found.key == world.row.key == OTHER.public.text


async def test_key_that_the_user_names_holds_against_a_kept_offer(world: World) -> None:
    assert await world.find() == offer()
    world.configured[SITE] = Configured(key=OTHER.public.text)
    assert await world.open().find(lying.visit()) is None


@pytest.mark.parametrize("endpoint", ["https://evil.example/sterna", "http://www.example.org/sterna"])
async def test_endpoint_elsewhere_is_refused(world: World, endpoint: str) -> None:
    world.said = saying(encode_offer(offer(endpoint=endpoint)))
    assert await world.find() is None
    assert len(world.warnings) == 1
    assert world.row.key == ""


async def test_endpoint_on_another_port_is_fine(world: World) -> None:
    there = offer(endpoint="https://www.example.org:8443/x")
    world.said = saying(encode_offer(there))
    assert await world.find() == there


async def test_configured_endpoint_may_be_anywhere(world: World) -> None:
    endpoint = "http://127.0.0.1:8421/sterna"
    world.address = endpoint
    world.configured[SITE] = Configured(endpoint=endpoint)
    world.open()
    assert await world.find() == replace(offer(), endpoint=endpoint)
    assert world.private == ["127.0.0.1"]


# -- failures ----------------------------------------------------------------------------------------------


async def test_host_that_failed_is_left_alone_and_then_asked_anew(world: World) -> None:
    await world.find()
    await world.hosts.fail(SITE, "it lied", seconds=600)
    assert await world.open().find(lying.visit()) is None
    assert (world.row.reason, world.asked) == ("it lied", 1)
    world.clock.time += 601
    assert await world.find() == offer()
    assert world.asked == 2
    assert world.row.key == HOST.public.text


async def test_longer_failure_is_not_made_shorter(world: World) -> None:
    await world.hosts.fail(SITE, "long", seconds=600)
    await world.hosts.fail(SITE, "short", seconds=10)
    assert world.row.failed_until == world.clock.time + 600
