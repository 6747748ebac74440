"""A host that sends parcels as large as home takes them, for `bench.memory`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread

import msgspec
from tests import making
from tests.home.away.lying import LyingHost
from tests.transport.serving import HttpFace

from sterna.model import Checkpoint, Ended, Links, Page, Parcel, Raw, Target, Usage
from sterna.wire.discovery import Offer
from sterna.wire.handshake import SessionKeys
from sterna.wire.orders import Resume, Send
from sterna.wire.parcels import pack_parcel
from sterna.wire.stream import StreamWriter

PARCELS = 16
_WORDS = "tern " * 200_000  # a megabyte

Fill = Callable[[str, int], Parcel]  # a parcel of a site, with its number


def wide_texts(site: str, number: int) -> Parcel:
    return _parcel(site, number, {"text": f"\N{BIRD}{number} " + 6 * _WORDS})


def long_texts(site: str, number: int) -> Parcel:
    text = f"{number} " + 12 * _WORDS
    return _parcel(site, number, {"text": text}, {"text": text})


def long_html(site: str, number: int) -> Parcel:
    return _parcel(site, number, {"html": f"{number} " + 24 * _WORDS})


def too_wide(site: str, number: int) -> Parcel:
    return _parcel(site, number, {"text": f"\N{BIRD}{number} " + 40 * _WORDS})


def raw_responses(site: str, number: int) -> Parcel:
    body = (f"{number} " + 24 * _WORDS).encode()
    return _parcel(site, number, {"raw": Raw(b"", b"HTTP/1.1 200 OK\r\n\r\n", body, "127.0.0.1")})


def many_links(site: str, number: int) -> Parcel:
    links = Links("\n".join(f"{site}/{n}" for n in range(10_000)))
    return _parcel(site, number, *({"links": links} for _ in range(80)))


@dataclass
class GreedyHost(LyingHost):
    """Says what `fill` makes, one parcel after the other, and no end."""

    site: str = ""
    fill: Fill = wide_texts
    endpoint: str = ""  # set once it is known

    @property
    def offer(self) -> Offer:
        return Offer(site=self.site, key=self.identity.public.text, endpoint=self.endpoint)

    async def _stream(self, order: Send | Resume, keys: SessionKeys) -> AsyncIterator[bytes]:
        writer = StreamWriter(keys.stream, level=3)
        yield writer.begin()
        if isinstance(order, Resume):
            return
        for number in range(1, PARCELS + 1):
            parcel = msgspec.structs.replace(
                self.fill(self.site, number), visit=order.visit, part=order.part, epoch=order.epoch
            )
            if number == PARCELS:
                parcel = msgspec.structs.replace(parcel, ended=Ended.FINISHED)
            yield writer.parcel(pack_parcel(parcel, {}))


@contextmanager
def greedy_host(site: str, fill: Fill) -> Iterator[str]:
    """The endpoint of such a host, which runs in a thread."""
    host = GreedyHost([], site=site, fill=fill)
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    face = HttpFace(host.answer)
    try:
        asyncio.run_coroutine_threadsafe(face.__aenter__(), loop).result()
        host.endpoint = face.url
        yield face.url
        asyncio.run_coroutine_threadsafe(face.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _parcel(site: str, number: int, *pages: dict[str, object]) -> Parcel:
    made: list[Page] = []
    for place, fields in enumerate(pages):
        made.append(
            making.page(f"/{number}/{place}", site=site, fetched=time.time(), digest=bytes(16), **fields)
        )
    return Parcel(
        visit="",
        site=site,
        part="",
        epoch=0,
        number=number,
        pages=tuple(made),
        checkpoint=Checkpoint(found=tuple(Target(page.url) for page in made)),
        usage=Usage(pages=len(made)),
    )
