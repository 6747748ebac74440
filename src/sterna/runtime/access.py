"""Polite requests to a site: names, addresses, holds, connections."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sterna.errors import FetchError
from sterna.model import Record, Visit
from sterna.runtime.engine.client import Engines
from sterna.runtime.notices import Notices
from sterna.runtime.packer import FULL_BYTES, FULL_PAGES
from sterna.runtime.readers import Readers
from sterna.runtime.reins import Reins
from sterna.web.bodies import BodyClaim, BodyRoom
from sterna.web.clock import Clock
from sterna.web.cookies import CookieJar
from sterna.web.curl import CurlConfig
from sterna.web.dns import Resolver, allowed_addresses
from sterna.web.http import MAX_BODY_BYTES, Fetcher, Request, Response
from sterna.web.politeness import TOTAL, Gate, Keys, Limits, keys_of, next_delay, site_key
from sterna.web.secrets import Secrets
from sterna.web.urls import hostname_of, is_within, site_of

MAX_ADDRESSES = 8  # tried for one page
ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class RuntimeConfig(CurlConfig, frozen=True, kw_only=True):
    """What a runtime may use."""

    readers: int = 2
    limits: Limits = Limits()
    timeout_seconds: float = 60.0
    accept_language: str = "*"  # "": no such header
    secrets: Secrets = Secrets()
    parcel_bytes: int = FULL_BYTES  # the size of a full parcel, before compression
    ruled_pages: int = FULL_PAGES  # pages in a full parcel, of a crawler with rules
    is_jailed: bool | None = None  # readers and engines; None: if this machine can
    reads_css: bool = False  # within pages, for what they need
    shares_holds: bool = True  # False where visits have different owners: each has holds of its own


@dataclass(frozen=True, slots=True)
class Kit:
    """What all visits of a runtime share; only the reins belong to one visit."""

    clock: Clock
    resolver: Resolver
    fetcher: Fetcher
    gate: Gate
    slots: asyncio.Semaphore
    bodies: BodyRoom
    documents: BodyRoom  # until they are at home
    readers: Readers
    engines: Engines
    config: RuntimeConfig = field(default_factory=RuntimeConfig)
    reins: Reins = field(default_factory=Reins)
    notices: Notices = field(default_factory=Notices)


class Reply(Record, frozen=True):
    """A response, and the request that it answers."""

    response: Response
    request: Request
    cookie_changes: int = 0  # of the visit's jar when it was asked


class Access:
    """Makes the requests of one visit, each when politeness allows it."""

    def __init__(self, kit: Kit, visit: Visit) -> None:
        self._kit = kit
        self._visit = visit
        self._etiquette = visit.etiquette
        sender = (("From", visit.etiquette.sender),) if visit.etiquette.sender else ()
        language = kit.config.accept_language
        secrets = kit.config.secrets
        self._secrets = secrets if visit.site in secrets.sites else Secrets()
        self.jar = CookieJar(self._secrets.cookies)
        self._is_malformed = False  # the site's answers: set once libcurl has refused one of them
        self._headers = (
            ("User-Agent", visit.etiquette.user_agent),
            *sender,
            ("Accept", ACCEPT),
            ("Accept-Encoding", "gzip, br, zstd"),
            *((("Accept-Language", language),) if language else ()),
        )
        self._crawl_delay = 0.0  # set by obey(), once robots.txt is known
        self._ended_at = 0.0  # of the last request
        self.waiting: set[asyncio.Task[Any]] = set()  # tasks that wait for a hold or a connection
        self._last_response_seconds = 0.0
        self.requests_total = 0
        self.bytes_total = 0
        self.held: set[str] = set()  # the keys of holds that requests touched since the last parcel

    @property
    def delay_seconds(self) -> float:
        seconds = self._last_response_seconds
        return next_delay(self._etiquette, response_seconds=seconds, crawl_delay=self._crawl_delay)

    def obey(self, crawl_delay: float) -> None:
        """Keeps this Crawl-delay, also after the request that brought it."""
        self._crawl_delay = crawl_delay
        wait = self._ended_at + self.delay_seconds - self.now()
        # A host keeps no holds: a wait beyond their patience would end all visits before their first page.
        if self._ended_at and (self._kit.config.shares_holds or wait <= self._visit.budget.patience_seconds):
            self.hold_site(self._visit.site, wait)

    def now(self) -> float:
        return self._kit.clock.now()

    def wait_seconds(self, site: str) -> float:
        return self._kit.gate.until(site_key(site)) - self._kit.clock.now()

    def hold_site(self, site: str, seconds: float, *, why: str = "") -> None:
        """Asks nothing of the site for so long; users are told why, if that is more than its delay."""
        key, until = site_key(site), self._kit.clock.now() + seconds
        self.held.add(key)
        self._kit.gate.hold(key, until)
        if why:
            self._kit.notices.pause(site, why, until=until)

    async def addresses(self, url: str, *, most: int = MAX_ADDRESSES) -> tuple[str, ...]:
        """The addresses that may be asked for the URL; FetchError if there are none."""
        hostname = hostname_of(url)
        if is_within(hostname, self._etiquette.blocked):
            raise FetchError("blocked", f"{hostname} is on the block list")
        # A private address may be asked for the site itself, not for where it redirects.
        visit, kit = self._visit, self._kit
        may_be_private = visit.allow_private or (visit.may_be_private and site_of(url) == visit.site)
        found = await allowed_addresses(
            kit.resolver, hostname, may_be_private=may_be_private, config=kit.config
        )
        return found[:most]

    async def get(
        self,
        url: str,
        *,
        validators: Sequence[tuple[str, str]] = (),
        addresses: Sequence[str] = (),
        max_bytes: int = 0,
        may_cut: bool = False,
        claim: BodyClaim | None = None,
        is_last: bool = False,
    ) -> Reply:
        """The response from the first address that accepts the connection.

        One that is cut off is an error, unless the try `is_last`.
        """
        found = tuple(addresses) or await self.addresses(url)
        headers = (*self._headers, *validators) if validators else self._headers
        for address in found:
            cookie_changes = self.jar.changes
            request = Request(
                url=url,
                address=address,
                headers=headers,
                private=self._private(url),
                max_bytes=max_bytes or MAX_BODY_BYTES,
                may_cut=may_cut,
                timeout_seconds=self._kit.config.timeout_seconds,
                is_fresh=bool(addresses),
                is_tolerant=is_last or self._is_malformed,
                claim=claim,
            )
            try:
                response = await self._ask_twice(request)
                if response.is_cut and not is_last:
                    raise FetchError("truncated", url)
            except FetchError as error:
                if error.kind != "connect" or address == found[-1]:
                    raise
            else:
                self._kit.resolver.prefer(hostname_of(url), address)
                return Reply(response, request, cookie_changes)
        raise FetchError("connect", url)

    def _private(self, url: str) -> tuple[tuple[str, str], ...]:
        """The headers that are for the visit's site alone, and that nobody stores."""
        if site_of(url) != self._visit.site:
            return ()
        cookies = self.jar.header(url, now=self._kit.clock.now())
        return (*self._secrets.headers, *((("Cookie", cookies),) if cookies else ()))

    async def _ask_twice(self, request: Request) -> Response:
        """The response; one that libcurl refuses is asked for once more, and read as browsers do."""
        try:
            response = await self._ask(request)
        except FetchError as error:
            if error.kind != "protocol" or request.is_tolerant or self._kit.config.proxy:
                raise
            response = await self._ask(msgspec.structs.replace(request, is_tolerant=True))
            self._is_malformed = True
        if site_of(request.url) == self._visit.site:
            fields = [value for name, value in response.headers if name == "set-cookie"]
            self.jar.note(request.url, fields, now=self._kit.clock.now())
        return response

    async def take_turn(self, url: str) -> None:
        """Waits as a request for the URL would; the caller then makes it. FetchError if it may not."""
        keys = keys_of(site_of(url), (await self.addresses(url))[0])
        await self._take_turn(keys)
        self._kit.gate.start(keys, self._kit.clock.now(), delay=self.delay_seconds)
        self._kit.slots.release()

    async def _ask(self, request: Request) -> Response:
        keys = keys_of(site_of(request.url), request.address)
        task = asyncio.current_task()
        assert task
        self.waiting.add(task)
        try:
            await self._take_turn(keys)
        finally:
            self.waiting.discard(task)
        kit = self._kit
        kit.gate.start(keys, kit.clock.now(), delay=self.delay_seconds)
        self.requests_total += 1
        self.held.update((keys.site, keys.address, keys.domain, TOTAL))
        response: Response | None = None
        size = 0
        try:
            response = await kit.fetcher.fetch(request)
            size = response.wire_bytes
            return response
        except FetchError as error:
            size = error.wire_bytes
            raise
        finally:
            self._ended_at = now = kit.clock.now()
            self.bytes_total += size
            if response:
                self._last_response_seconds = response.seconds
            kit.gate.finish(keys, now, delay=self.delay_seconds, size_bytes=size)
            kit.slots.release()

    async def _take_turn(self, keys: Keys) -> None:
        """Waits until no hold applies and a connection is free, and takes it."""
        kit = self._kit
        while True:
            await kit.reins.wait()
            while (wait := kit.gate.ready_at(keys) - kit.clock.now()) > 0:
                await kit.clock.sleep(wait)
            await kit.slots.acquire()
            try:
                if (wait := kit.gate.reserve(kit.clock.now()) - kit.clock.now()) > 0:
                    await kit.clock.sleep(wait)
            except asyncio.CancelledError:
                kit.slots.release()
                raise
            if not kit.reins.is_paused and kit.gate.ready_at(keys) <= kit.clock.now():
                return
            kit.slots.release()
