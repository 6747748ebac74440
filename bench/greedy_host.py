"""A host that sends parcels as large as home takes them, for `bench.memory`."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread

import msgspec
from bench.greedy_parcels import Fill, packed, wide_texts
from tests.home.away.lying import LyingHost
from tests.transport.serving import HttpFace, Said, refusing

from sterna.model import Ended, Parcel
from sterna.wire.discovery import Offer
from sterna.wire.handshake import SessionKeys
from sterna.wire.orders import Order, Resume, Send
from sterna.wire.parcels import pack_parcel
from sterna.wire.stream import StreamWriter

PARCELS, LISTS = 16, 6  # in a stream: of pages, of lists


@dataclass
class GreedyHost(LyingHost):
    """Says what `fill` makes, one parcel after the other, and no end."""

    site: str = ""
    fill: Fill = wide_texts
    endpoint: str = ""  # set once it is known

    @property
    def offer(self) -> Offer:
        return Offer(site=self.site, key=self.identity.public.text, endpoint=self.endpoint)

    def _carry_out(self, order: Order, keys: SessionKeys) -> Said:
        if isinstance(order, Resume):
            return refusing("gone", "it sends no end")
        return super()._carry_out(order, keys)

    async def _stream(self, order: Send | Resume, keys: SessionKeys) -> AsyncIterator[bytes]:
        assert isinstance(order, Send)
        writer = StreamWriter(keys.stream, level=3)
        yield writer.begin()
        given = {"visit": order.visit, "part": order.part, "epoch": order.epoch}
        number, most = 0, PARCELS
        while number < most:
            number += 1
            made = self.fill(self.site, number)
            most = PARCELS if isinstance(made, Parcel) else LISTS
            ended = Ended.FINISHED if number == most else None
            if isinstance(made, Parcel):
                data = pack_parcel(msgspec.structs.replace(made, **given, ended=ended), {})
            else:
                data = packed(made, **given, number=number, ended=ended)
            yield writer.parcel(data)


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
