"""Sites of a few pages that a test writes down: each on its own loopback address, all on one port."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tests.servers.plain import Listener, ListeningServer, Reply, Request, send

Page = Reply | str | list[Reply]


@dataclass(frozen=True, slots=True)
class PageHit:
    """A request as it arrived, by the wall clock, and when its answer was about to be sent."""

    began: float
    ended: float
    address: str
    path: str
    headers: Mapping[str, str]
    sent_bytes: int


class PageServer(ListeningServer):
    """`sites` maps an address to its paths and their replies; `{port}` in a body becomes the port.

    A list of replies is given out one after the other, the last one for good.
    """

    def __init__(
        self, sites: Mapping[str, Mapping[str, Page]], *, latency_seconds: float = 0.0, port: int = 0
    ) -> None:
        self.sites = sites
        self.log: list[PageHit] = []
        self.latency_seconds = latency_seconds  # a test may change it at any time
        super().__init__(Listener(self._answer, addresses=tuple(sites), port=port))

    def url(self, address: str, path: str = "/") -> str:
        return f"http://{address}:{self.port}{path}"

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        began = time.time()
        await asyncio.sleep(self.latency_seconds)
        reply: Page = self.sites[request.address].get(request.target, Reply(404, body=b"not here"))
        if isinstance(reply, list):
            reply = reply.pop(0) if len(reply) > 1 else reply[0]
        if isinstance(reply, str):
            reply = Reply(body=reply.encode())
        body = reply.body.replace(b"{port}", str(self.port).encode())
        # Noted before it is sent: afterwards the client may have had it for a while already.
        ended = time.time()
        is_open = await send(request, writer, Reply(reply.status, reply.headers, body))
        self.log.append(PageHit(began, ended, request.address, request.target, request.headers, len(body)))
        return is_open


def linking(*urls: str, title: str = "") -> str:
    """A page with these links."""
    anchors = "".join(f'<a href="{url}">{url}</a> ' for url in urls)
    return f"<!doctype html><title>{title}</title><p>{anchors}"
