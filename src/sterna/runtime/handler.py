"""One URL of a visit: fetch, read, judge, follow its links, keep the page, or record what went wrong."""

import logging
from collections.abc import Callable

import msgspec

from sterna.errors import EngineEnded, FetchError, ReadError
from sterna.model import Ended, Link, Links, Page, Record, Target, Validator, Visit
from sterna.runtime.access import Access, Kit, Reply
from sterna.runtime.engine.messages import Verdict
from sterna.runtime.frontier import Frontier
from sterna.runtime.link_router import Following
from sterna.runtime.packer import Packer
from sterna.runtime.pages import Pages
from sterna.runtime.readers import HeavyDocument
from sterna.runtime.rulings import Rulings
from sterna.web.bodies import DOCUMENT_ROOM_BYTES, BodyClaim
from sterna.web.closed import ClosedPaths
from sterna.web.document import MAX_DOCUMENT_BYTES, Document, Fetched, weight_of_document
from sterna.web.http import Response, retry_after_seconds
from sterna.web.markup import refresh_of
from sterna.web.robots import Rules
from sterna.web.urls import fingerprint

MAX_TRIES = 3
MAX_BUSY_TRIES = 8
MAX_REDIRECTS = 20  # as many as browsers follow
MAX_FAILURES_IN_A_ROW = 10
FAILING_PAUSE_SECONDS = 600.0
BACKOFF_SECONDS = 2.0
BUSY_SECONDS = 30.0
MAX_PAUSE_SECONDS = 24 * 3600.0
LONGEST_WAIT_SECONDS = 30.0  # a longer pause ends the visit and frees its slot

# Transient failures: the URL is retried, and many in a row mean that the site is down.
_PASSING = frozenset({"connect", "timeout", "network", "empty", "truncated", "dns", "proxy"})

_log = logging.getLogger(__name__)


class _Found(Record, frozen=True):
    """The result of a URL: its page, its document, and where a redirect leads."""

    page: Page
    document: Document | None = None
    onward: Target | None = None


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
        self.following = Following(visit, frontier=frontier, packer=packer)
        self._pages = Pages(visit, kit.clock, reads_css=kit.config.reads_css)
        self._validators = {each.fingerprint: each for each in visit.known.validators}
        self.rules: Rules | None = None  # set once robots.txt is known
        self.rulings: Rulings | None = None  # set where the crawler has rules of its own
        self._failures = 0
        # URLs that redirect: how often cookies had changed when they were asked, and where they lead.
        self._turned: dict[int, tuple[int, int]] = {}
        self._closed = ClosedPaths(visit.closed) if visit.closed else None

    async def handle(self, target: Target) -> None:
        """Handles one URL: the result is a page, an error, a redirect, or a retry later."""
        try:
            with self._kit.documents.claim() as claim:
                found = await self._find(target, claim)
                if found:
                    await self._settle(target, found, claim)
        except EngineEnded as error:
            self._frontier.put_back(target)  # a later visit may judge it
            self.end_engine(error)
        except Exception as error:
            # One page must not end a crawl: after a restart the same page would crash it again.
            _log.warning("the page %r was given up: %r", target.url, error)
            _log.debug("where it happened", exc_info=error)
            self._keep(target, self._pages.failed(target, "internal"))

    def give_up(self) -> None:
        """Puts what was settled since the last parcel back into the frontier: its facts are lost."""
        for target in self._packer.take_back():
            self._frontier.put_back(target)

    def end_engine(self, error: EngineEnded) -> None:
        if error.detail:
            _log.warning("%s: the crawler's engine is over: %s", self._visit.site, error)
        self._end(Ended(error.ended))

    async def _find(self, target: Target, document: BodyClaim) -> _Found | None:
        """What the URL came to; None if it is not fetched, or tried again later."""
        if forbidden := self._forbidden(target.url):
            return _Found(self._pages.failed(target, forbidden))
        is_admitted = await self.rulings.admits(target) if self.rulings else True
        if is_admitted is None:
            self._packer.add_page(self._pages.failed(target, "rules"))
            return None
        if not is_admitted:
            self._packer.add_done(target)
            return None
        with self._kit.bodies.claim() as claim:
            return await self._fetch(target, claim, document)

    async def _fetch(self, target: Target, claim: BodyClaim, document: BodyClaim) -> _Found | None:
        known = self._validators.get(fingerprint(target.url))
        # Without a response in the archive, a revisit record would refer to nothing.
        is_referred = known is not None and (known.has_raw or not self._visit.crawler.keeps_raw)
        conditions = _conditions(known) if is_referred else ()
        try:
            reply = await self._access.get(
                target.url,
                validators=conditions,
                claim=claim,
                is_last=target.attempts + 1 >= MAX_TRIES,
            )
        except FetchError as error:
            return self._fail(target, error.kind)
        self._failures = 0
        status = reply.response.status
        is_failing = status >= 500 and target.attempts + 1 < MAX_TRIES
        if not (300 <= status < 400 or status in (429, 503) or is_failing):
            fetched, reply = self._pages.fetched(target, reply.response, known), self._pages.slim(reply)
            reading = self._read(target, reply, fetched, document)
            del fetched  # the body may be large; only the reader needs it
            return await reading
        await document.wait(len(self._pages.slim(reply).response.body))
        return self._take_special(target, reply, known if conditions else None)

    def _forbidden(self, url: str) -> str:
        """The error of a URL that its owner closed to this home, or robots.txt to everybody; else empty."""
        if self._closed and url in self._closed:
            return "closed"
        return "robots" if self.rules and not self.rules.may_fetch(url) else ""

    def _take_special(self, target: Target, reply: Reply, known: Validator | None) -> _Found | None:
        """Handles a response whose status alone decides what to do."""
        status = reply.response.status
        if status in (429, 503):
            return self._be_told_to_wait(target, reply.response)
        if status == 304 and known:
            return _Found(self._pages.answered(target, reply, digest=known.digest, is_unchanged=True))
        if status < 400:
            return self._redirect(target, reply)
        self._try_again(target)
        return None

    async def _read(self, target: Target, reply: Reply, fetched: Fetched, claim: BodyClaim) -> _Found:
        size, kept = len(fetched.body), len(reply.response.body)
        reading = self._document(fetched, claim, kept)
        del fetched
        try:
            document = await reading
        except ReadError as error:
            page = self._pages.answered(target, reply, error=error.kind)
            claim.shrink(kept)
            return _Found(msgspec.structs.replace(page, size=size))
        self._packer.reading_seconds += document.cpu_seconds
        if document.differs:
            _log.warning(
                "%s (%s): two ways to read it differ, and the slower one is taken; please report this page",
                target.url,
                document.digest.hex(),
            )
        self._packer.unmet.update(document.unmet)
        if document.lost:
            _log.warning("%s: %d entries of the sitemap could not be read", target.url, document.lost)
            self._packer.errors["sitemap_entries"] += document.lost
        page = self._pages.read(target, reply, document)
        return _Found(
            page, document, self._refreshed(target, reply.response) if document.may_follow else None
        )

    async def _document(self, fetched: Fetched, claim: BodyClaim, kept_bytes: int) -> Document:
        """The document of a response of which so many bytes are kept; a large one waits for room.

        How large it is only a reader can tell, so what is large for its body is read a second time.
        """
        weight = MAX_DOCUMENT_BYTES
        if fetched.most_bytes < weight:
            try:
                return await self._kit.readers.read(fetched)
            except HeavyDocument as error:
                weight = error.weight
            fetched = msgspec.structs.replace(fetched, most_bytes=weight)
        wanted_bytes = min(weight + kept_bytes, DOCUMENT_ROOM_BYTES)
        if wanted_bytes > self._kit.documents.left_bytes:
            self._send_soon()  # pages that wait for the next parcel take some of the room
        await claim.wait(wanted_bytes)
        reading = self._kit.readers.read(fetched)
        del fetched  # its body may be large
        document = await reading
        claim.shrink(weight_of_document(document) + kept_bytes)  # no more than was wanted
        return document

    async def _settle(self, target: Target, found: _Found, claim: BodyClaim) -> None:
        """Judges the page, follows what it leads to and sends it home; nothing waits after the judgement.

        So a parcel holds either both a page and what the rules made of it, or neither.
        """
        page, document = found.page, found.document
        if document is None:
            page = self._pages.judged(page)
        verdict = None
        if self.rulings and (target.kind == "sitemap" or page.is_unchanged):  # judged when it was new
            await self.rulings.pass_over(target.url)
        elif self.rulings:
            verdict = await self.rulings.judge(self._pages.view(page, document))
            if verdict is None:
                self._packer.add_page(self._pages.failed(target, "rules"))
                return
        if document:
            self.following.follow(target, document, verdict)
        if found.onward:
            self.following.add(found.onward, is_wanted=target.depth == 0)
        if verdict:
            self._obey(target, verdict)
            page = self._pages.stripped(page, verdict)
        self._keep(target, page, rows=verdict.rows if verdict else (), claim=claim)

    def begin(self, first: Verdict) -> None:
        """Does what the rules said before any page: URLs that they load have the depth of a start page."""
        self._packer.add_rows(first.rows)
        self._obey(Target(f"{self._visit.site}/", depth=-1), first)

    def _obey(self, target: Target, verdict: Verdict) -> None:
        self.following.obey(target, verdict)
        for line in verdict.log:
            _log.info("%s: %s", self._visit.crawler.name, line)
        if verdict.ended:
            self._end(Ended(verdict.ended))

    def _keep(
        self,
        target: Target,
        page: Page,
        *,
        rows: tuple[bytes, ...] = (),
        claim: BodyClaim | None = None,
    ) -> None:
        """A page goes home; a sitemap is only done with."""
        if target.kind == "page":
            held = claim.pass_on() if claim else None
            self._packer.add_page(page, target, rows=rows, claim=held)
            if held and self._kit.documents.waiting:
                self._send_soon()  # others wait for its room, which it has until it is at home
            return
        is_good = 200 <= page.status < 400 and not page.error
        self._packer.add_done(target, error="" if is_good else page.error or f"http_{page.status}")

    def _redirect(self, target: Target, reply: Reply) -> _Found | None:
        written = reply.response.location()
        location = self.following.canonical(written, target.url) if written else None
        if location is None or target.hops + 1 > MAX_REDIRECTS:
            return _Found(self._pages.answered(target, reply, error="redirect"))
        mark, to = fingerprint(target.url), fingerprint(location)
        self._turned[mark] = (reply.cookie_changes, to)
        onward = Target(location, target.depth, target.url, target.kind, target.hops + 1)
        if to in self._turned and self._access.jar.changes > self._turned[to][0]:
            # It redirected too, but has not seen the cookies that came since: many sites begin like this.
            del self._turned[to]
            self._frontier.put_back(onward)
            return None if to == mark else _Found(self._pages.answered(target, reply))
        if self._is_loop(mark):
            return _Found(self._pages.answered(target, reply, error="redirect_loop"))
        page = self._pages.answered(target, reply, links=Links.of(Link(location, rel="redirect")))
        return _Found(page, onward=onward)

    def _refreshed(self, target: Target, response: Response) -> Target | None:
        """Where a Refresh header leads, which browsers follow like a redirect."""
        href = refresh_of(response.header("refresh"))
        location = self.following.canonical(href, target.url) if href else None
        if location is None or not 200 <= response.status < 300 or target.hops + 1 > MAX_REDIRECTS:
            return None
        return Target(location, target.depth, target.url, target.kind, target.hops + 1)

    def _is_loop(self, mark: int) -> bool:
        """True if the redirects from this URL lead back to it."""
        at = mark
        for _ in range(MAX_REDIRECTS):
            if at not in self._turned:
                return False
            at = self._turned[at][1]
            if at == mark:
                return True
        return False

    # -- what goes wrong ---------------------------------------------------------------------------------

    def _fail(self, target: Target, kind: str) -> _Found | None:
        if kind not in _PASSING:
            return _Found(self._pages.failed(target, kind))
        self._failures += kind != "truncated"  # who sends a part of an answer is there
        if self._failures >= MAX_FAILURES_IN_A_ROW:
            self._frontier.put_back(target)
            self._pause_site(FAILING_PAUSE_SECONDS, f"failed {self._failures} times in a row ({kind})")
            self._end(Ended.FAILING)
        elif target.attempts + 1 < MAX_TRIES:
            self._try_again(target)
        else:
            return _Found(self._pages.failed(target, kind))
        return None

    def _try_again(self, target: Target, *, after_seconds: float | None = None) -> None:
        wait = BACKOFF_SECONDS * 2**target.attempts if after_seconds is None else after_seconds
        not_before = self._kit.clock.now() + wait
        self._frontier.put_back(
            msgspec.structs.replace(target, attempts=target.attempts + 1, not_before=not_before)
        )

    def _be_told_to_wait(self, target: Target, response: Response) -> _Found | None:
        """429 and 503 pause the whole site; the page is retried a limited number of times."""
        asked = retry_after_seconds(response.header("retry-after"), self._kit.clock.now())
        seconds = min(BUSY_SECONDS * 2**target.attempts if asked is None else asked, MAX_PAUSE_SECONDS)
        found = None
        if target.attempts + 1 < MAX_BUSY_TRIES:
            self._try_again(target, after_seconds=seconds)
        else:
            found = _Found(self._pages.failed(target, f"http_{response.status}"))
        self._pause_site(seconds, f"asked for a pause (HTTP {response.status})")
        if seconds > LONGEST_WAIT_SECONDS:
            self._end(Ended.BLOCKED)
        return found

    def _pause_site(self, seconds: float, why: str) -> None:
        self._access.hold_site(self._visit.site, seconds, why=why)
        self._send_soon()  # a crash must not lose the pause that the site asked for


def _conditions(known: Validator | None) -> tuple[tuple[str, str], ...]:
    if known is None:
        return ()
    fields = (("If-None-Match", known.etag), ("If-Modified-Since", known.modified))
    # A line break in a value would end the head and begin another request.
    return tuple((name, value) for name, value in fields if value and value.isprintable())
