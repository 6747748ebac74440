"""One URL of a visit: fetch, read, follow its links, keep the page, or say what went wrong."""

import logging
from array import array
from collections.abc import Callable
from functools import lru_cache

import msgspec

from sterna.crawler.scope import ScopeRules
from sterna.errors import FetchError, ReadError
from sterna.model import Ended, Link, Links, Page, Raw, Target, Validator, Visit
from sterna.runtime.access import Access, Kit, Reply
from sterna.runtime.frontier import Frontier
from sterna.runtime.packer import Packer
from sterna.web.document import Answer, Document, Manner
from sterna.web.http import Response, head_of, retry_after_seconds
from sterna.web.robots import Rules
from sterna.web.urls import Canonical, fingerprint, site_of

MAX_TRIES = 3
MAX_BUSY_TRIES = 8
MAX_REDIRECTS = 10
MAX_NESTED_SITEMAPS = 5
MAX_FAILURES_IN_A_ROW = 10
FAILING_PAUSE_SECONDS = 600.0
BACKOFF_SECONDS = 2.0
BUSY_SECONDS = 30.0
MAX_PAUSE_SECONDS = 24 * 3600.0
LONGEST_WAIT_SECONDS = 30.0  # a longer pause ends the visit, and its slot goes to another site
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024

# Failures that may pass: the URL is tried again, and many in a row mean that the site is down.
_PASSING = frozenset({"connect", "timeout", "network", "empty", "truncated", "dns", "proxy"})

_log = logging.getLogger(__name__)


class Handler:
    """Handles a visit's URLs; shares the visit's frontier and packer, and may end it."""

    def __init__(
        self,
        visit: Visit,
        kit: Kit,
        *,
        access: Access,
        frontier: Frontier,
        packer: Packer,
        end: Callable[[Ended], None],
        send_soon: Callable[[], None],
    ) -> None:
        self._visit = visit
        self._kit = kit
        self._access = access
        self._frontier = frontier
        self._packer = packer
        self._end = end
        self._send_soon = send_soon
        self._canonical = Canonical(visit.crawler.scope.drop_params)
        self._scope = ScopeRules(visit.crawler.scope)
        self._seed_sites = _site_set(visit.crawler.scope.seed_sites)
        self._manner = Manner(
            drop_params=visit.crawler.scope.drop_params,
            max_bytes=MAX_DOCUMENT_BYTES,
            agent=visit.etiquette.robots_name,
            keeps_text=visit.crawler.keeps_text,
        ).encoded()
        self._validators = {each.fingerprint: each for each in visit.known.validators}
        self.rules: Rules | None = None  # set once robots.txt is known
        # Fingerprints of links that are not for this frontier: outside, out of scope, known before; and 0,
        # which stands for a link that must not be followed.
        self._passed: set[int] = {0}
        self._failures = 0

    @property
    def held_count(self) -> int:
        """How many URLs the visit keeps in memory."""
        return self._frontier.seen_count + len(self._passed)

    def begin(self) -> None:
        """Puts the start URLs into the frontier, but for those that the scope no longer wants."""
        for target in self._visit.starts:
            mark = fingerprint(target.url)
            if target.depth == 0 or target.kind == "sitemap" or self._scope.admits(target.url):
                self._frontier.add(target, mark)
            else:
                self._packer.add_done(mark)

    async def handle(self, target: Target) -> None:
        """Takes one URL to its end: a page, an error, a redirect, or another try later."""
        mark = fingerprint(target.url)
        if self.rules and not self.rules.may_fetch(target.url):
            self._give_up(target, "robots")
            return
        known = self._validators.get(mark)
        if known and self._visit.crawler.keeps_raw and not known.has_raw:
            known = None  # a revisit record would refer to nothing
        try:
            reply = await self._access.get(target.url, validators=_conditions(known))
            self._failures = 0
            if self._is_settled(target, reply, known):
                return
            answer, reply = self._answer(target, reply.response, known), self._slim(reply)
            reading = self._read(target, reply, answer)
            del answer  # the body may be large, and goes to the reader: nobody else keeps it
            await reading
        except FetchError as error:
            self._fail(target, error.kind)
        except Exception as error:
            # One page must not end a crawl, and a crash would meet the same page again after each restart.
            _log.warning("the page %r was given up: %r", target.url, error)
            _log.debug("where it happened", exc_info=error)
            self._give_up(target, "internal")

    def _is_settled(self, target: Target, reply: Reply, known: Validator | None) -> bool:
        """Does what the status asks for; False if the body is to be read."""
        status = reply.response.status
        if status in (429, 503):
            self._be_told_to_wait(target, reply.response)
        elif status >= 500 and target.attempts + 1 < MAX_TRIES:
            self._try_again(target)
        elif status == 304 and known:
            self._keep(target, self._page(target, reply, digest=known.digest, is_unchanged=True))
        elif 300 <= status < 400:
            self._redirect(target, reply)
        else:
            return False
        return True

    def _slim(self, reply: Reply) -> Reply:
        """The reply without its body, unless the archive wants it."""
        if self._visit.crawler.keeps_raw:
            return reply
        return Reply(msgspec.structs.replace(reply.response, body=b""), reply.request)

    async def _read(self, target: Target, reply: Reply, answer: Answer) -> None:
        size = len(answer.body)
        reading = self._kit.readers.read(answer)
        del answer
        try:
            document = await reading
        except ReadError as error:
            page = self._page(target, reply, error=error.kind)
            self._keep(target, msgspec.structs.replace(page, size=size))
            return
        self._follow(target, document)
        self._keep(target, self._page_of(target, reply, document))

    def _page_of(self, target: Target, reply: Reply, document: Document) -> Page:
        page = self._page(target, reply)
        is_open = document.may_index
        return msgspec.structs.replace(
            page,
            # What may not be indexed has no validators: it is read anew until its author says otherwise.
            etag=page.etag if is_open else "",
            modified=page.modified if is_open else "",
            digest=document.digest if is_open else b"",
            is_unchanged=document.is_unchanged and is_open and 200 <= page.status < 300,
            content_type=document.content_type,
            title=document.title,
            text=document.text,
            language=document.language,
            size=document.size,
            links=document.links,
            raw=page.raw if document.may_archive and is_open else None,
        )

    def _keep(self, target: Target, page: Page) -> None:
        """A page goes home; a sitemap is only done with."""
        if target.kind == "page":
            self._packer.add_page(page)
            return
        is_good = 200 <= page.status < 400 and not page.error
        self._packer.add_done(page.fingerprint, error="" if is_good else page.error or f"http_{page.status}")

    def _answer(self, target: Target, response: Response, known: Validator | None) -> Answer:
        return Answer(
            url=target.url,
            status=response.status,
            content_type=response.header("content-type"),
            content_encoding=response.header("content-encoding"),
            x_robots=response.header("x-robots-tag"),
            content_language=response.header("content-language"),
            body=response.body,
            kind=target.kind,
            known_digest=known.digest if known else b"",
            manner=self._manner,
        )

    def _page(
        self,
        target: Target,
        reply: Reply,
        *,
        digest: bytes = b"",
        is_unchanged: bool = False,
        error: str = "",
        links: Links | None = None,
    ) -> Page:
        response = reply.response
        return Page(
            url=target.url,
            fingerprint=fingerprint(target.url),
            depth=target.depth,
            fetched=self._kit.clock.now(),
            status=response.status,
            error=error,
            is_unchanged=is_unchanged,
            content_type=response.header("content-type").partition(";")[0].strip().lower(),
            digest=digest,
            size=len(response.body),
            modified=response.header("last-modified"),
            etag=response.header("etag"),
            referrer=target.referrer,
            links=links or Links(),
            raw=self._raw(reply),
        )

    def _raw(self, reply: Reply) -> Raw | None:
        if not self._visit.crawler.keeps_raw:
            return None
        response, request = reply.response, reply.request
        return Raw(head_of(request), response.head, response.body, request.address, response.is_http2)

    # -- links -------------------------------------------------------------------------------------------

    def add(self, target: Target, *, is_wanted: bool = False) -> None:
        """A link of this site joins the frontier; one of another site is reported."""
        self._add(target, fingerprint(target.url), is_wanted=is_wanted)

    def _add(self, target: Target, mark: int, *, is_wanted: bool = False) -> None:
        if site_of(target.url) != self._visit.site:
            self._report(target, mark)
        elif (is_wanted or target.kind == "sitemap" or self._scope.admits(target.url)) and self._frontier.add(
            target, mark
        ):
            self._packer.add_found(target)
        else:
            self._passed.add(mark)

    def _follow(self, target: Target, document: Document) -> None:
        if target.hops < MAX_NESTED_SITEMAPS:
            for url in document.sitemaps:
                self.add(Target(url, target.depth + 1, target.url, "sitemap", target.hops + 1))
        for url in document.urls:
            self.add(Target(url, target.depth + 1, target.url))
        self._follow_links(target, document)

    def _follow_links(self, target: Target, document: Document) -> None:
        # Most links of a page were met before: they cost a look into two sets, and no object is made.
        marks = array("q", document.marks)
        unmet = self._frontier.unseen(marks).difference(self._passed)
        if unmet:
            urls = document.links.urls.split("\n")
            for mark, url in zip(marks, urls, strict=True):
                if mark in unmet:
                    self._add(Target(url, target.depth + 1, target.url), mark)

    def _report(self, target: Target, mark: int) -> None:
        # A redirect of a start page (depth 0) is always told: home may follow it to the site's new name.
        is_start = target.depth == 0
        is_new = is_start or mark not in self._passed
        self._passed.add(mark)
        is_near = is_start or site_of(target.url) in self._seed_sites
        if target.kind == "sitemap" or (self._visit.crawler.scope.stay == "site" and not is_near):
            return
        if is_new and self._scope.admits(target.url):
            self._packer.add_outlink(target)

    def _redirect(self, target: Target, reply: Reply) -> None:
        written = reply.response.location()
        location = self._canonical(written, target.url) if written else None
        if location is None or target.hops + 1 > MAX_REDIRECTS:
            self._keep(target, self._page(target, reply, error="redirect"))
            return
        self._keep(target, self._page(target, reply, links=Links.of(Link(location, rel="redirect"))))
        onward = Target(location, target.depth, target.url, target.kind, target.hops + 1)
        self.add(onward, is_wanted=target.depth == 0)

    # -- what goes wrong ---------------------------------------------------------------------------------

    def _fail(self, target: Target, kind: str) -> None:
        if kind not in _PASSING:
            self._give_up(target, kind)
            return
        self._failures += 1
        if self._failures >= MAX_FAILURES_IN_A_ROW:
            self._frontier.put_back(target)
            self._pause_site(FAILING_PAUSE_SECONDS)
            self._end(Ended.FAILING)
        elif target.attempts + 1 < MAX_TRIES:
            self._try_again(target)
        else:
            self._give_up(target, kind)

    def _give_up(self, target: Target, kind: str) -> None:
        self._keep(
            target,
            Page(
                url=target.url,
                fingerprint=fingerprint(target.url),
                depth=target.depth,
                fetched=self._kit.clock.now(),
                error=kind,
                referrer=target.referrer,
            ),
        )

    def _try_again(self, target: Target, *, after_seconds: float | None = None) -> None:
        wait = BACKOFF_SECONDS * 2**target.attempts if after_seconds is None else after_seconds
        not_before = self._kit.clock.now() + wait
        self._frontier.put_back(
            msgspec.structs.replace(target, attempts=target.attempts + 1, not_before=not_before)
        )

    def _be_told_to_wait(self, target: Target, response: Response) -> None:
        """429 and 503 hold the whole site; the page itself is tried again, not for ever."""
        asked = retry_after_seconds(response.header("retry-after"), self._kit.clock.now())
        seconds = min(BUSY_SECONDS * 2**target.attempts if asked is None else asked, MAX_PAUSE_SECONDS)
        if target.attempts + 1 < MAX_BUSY_TRIES:
            self._try_again(target, after_seconds=seconds)
        else:
            self._give_up(target, f"http_{response.status}")
        self._pause_site(seconds)
        if seconds > LONGEST_WAIT_SECONDS:
            self._end(Ended.BLOCKED)

    def _pause_site(self, seconds: float) -> None:
        self._access.hold_site(self._visit.site, seconds)
        self._send_soon()  # a crash must not forget that the site asked for a pause


@lru_cache(maxsize=16)
def _site_set(sites: tuple[str, ...]) -> frozenset[str]:
    return frozenset(sites)  # one for all visits of a crawl: there may be thousands of both


def _conditions(known: Validator | None) -> tuple[tuple[str, str], ...]:
    if known is None:
        return ()
    fields = (("If-None-Match", known.etag), ("If-Modified-Since", known.modified))
    return tuple((name, value) for name, value in fields if value)
