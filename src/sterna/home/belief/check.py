"""The check of a host's pages: a sample is fetched from here, by the same crawler, and compared.

The runtime here reads the sample in visits of their own, so that politeness, robots.txt and reading are the
same as for any visit; their parcels are judged instead of stored.
"""

import asyncio
import secrets
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from msgspec.structs import replace

from sterna.crawler.predicate import Judge, row_of
from sterna.errors import ReadError
from sterna.home.away.luggage import luggage
from sterna.home.belief.refused import ask_again
from sterna.home.belief.rerun import Rerun, rerun_of
from sterna.model import (
    Budget,
    Crawler,
    Deliver,
    Ended,
    Etiquette,
    Keep,
    Known,
    Page,
    Parcel,
    Program,
    Raw,
    Record,
    Robots,
    Target,
    Usage,
    Visit,
)
from sterna.trust import excuses
from sterna.trust.judgement import (
    BAD,
    GOOD,
    Finding,
    Judgement,
    Manner,
    cloaked,
    judge,
    needs_second_look,
    weighed,
)
from sterna.trust.sampling import ReportedPage, Witness
from sterna.trust.sketch import COMPARED, Sketch, is_light, sketch_of
from sterna.version import __version__
from sterna.web.clock import Clock
from sterna.web.language import guess_language
from sterna.web.urls import fingerprint
from sterna.wire.discovery import Offer

MOST_SECOND_LOOKS = 16  # at pages that differ: more would not change the result
MOST_OMISSIONS = 5
_NOT_THERE = (404, 410)
_EMPTY = Page(url="", fingerprint=0, depth=0, fetched=0.0)
READ_SECONDS = 600.0  # for the visit that reads a sample
STOP_SECONDS = 5.0  # for which a check continues after the run was stopped
# Used only if the user asks for strict checks, to see what browsers are shown.
BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


class Here(Protocol):
    """The runtime here."""

    async def carry_out(self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event) -> None: ...

    async def digest(self, raw: Raw) -> bytes:
        """The digest of a stranger's response, decoded in a cell; ReadError if it cannot be decoded."""


class Report(Record, frozen=True, kw_only=True):
    """The findings of a check, and its cost."""

    findings: tuple[Finding, ...] = ()
    usage: Usage = Usage()
    late: int = 0  # pages that were not fetched in time

    @property
    def good(self) -> int:
        return sum(each.verdict in GOOD for each in self.findings)

    @property
    def bad(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.verdict in BAD)

    @property
    def seen(self) -> int:
        """The number of pages that could be read from here."""
        return sum(each.verdict is not Judgement.UNSEEN for each in self.findings)


@dataclass(slots=True)
class _Read:
    """The result of one of the check's own visits; changed by take() alone."""

    keep: Keep
    pages: dict[int, Page] = field(default_factory=dict)
    found: list[Target] = field(default_factory=list)
    robots: Robots | None = None
    ended: Ended | None = None
    requests: int = 0
    bytes_received: int = 0

    async def take(self, parcel: Parcel) -> None:
        self.pages.update((page.fingerprint, _light(page, self.keep)) for page in parcel.pages)
        self.found += parcel.checkpoint.found
        self.robots = parcel.robots or self.robots
        self.ended = parcel.ended
        self.requests += parcel.usage.requests
        self.bytes_received += parcel.usage.bytes_received


@dataclass(eq=False, repr=False)
class Check:
    """The check of one visit; run() once."""

    visit: Visit
    witness: Witness
    offer: Offer
    _: KW_ONLY
    here: Here
    clock: Clock
    is_whole: bool = True  # the witness saw all of the visit
    is_strict: bool = False  # also fetch pages as a browser would

    def __post_init__(self) -> None:
        program = self.visit.crawler.program
        self._manner = Manner(
            fields=program.keep.fields,
            least_change=program.least_change,
            is_same_version=self.offer.platform.get("sterna") == __version__,
            is_from_disk="root" in self.offer.sources,
        )
        self._select = Judge(program.select) if program.select and not program.rules else None
        self._reads: list[_Read] = []
        # Pages by fingerprint, filled by _find(): as read here, as a browser, a second time, and referrers.
        self._seen: dict[int, Page] = {}
        self._as_browser: dict[int, Page] = {}
        self._again: dict[int, Page] = {}
        self._referrers: dict[int, Page] = {}
        self._false_raws: set[int] = set()  # fingerprints of pages whose raw response is of another body
        self._rules_usage = Usage()  # of rules that were run again
        self._robots = self.visit.robots  # replaced by what the first read finds; hosts do not report it

    async def run(self, count: int, stop: asyncio.Event) -> Report:
        """Reads `count` pages from here, those that differ twice; a finding for each."""
        sample = self.witness.draw(count)
        halt = asyncio.Event()
        ending = asyncio.create_task(_set_later(stop, halt))
        try:
            findings = await self._find(sample, halt) if sample else []
            findings += await self._judge_again(count, halt)
            findings += await self._ask_again(halt)
        finally:
            ending.cancel()
        usage = Usage(
            requests=sum(read.requests for read in self._reads),
            bytes_received=sum(read.bytes_received for read in self._reads),
        ).plus(self._rules_usage)
        first = self._reads[0] if self._reads else _Read(self.visit.crawler.program.keep)
        is_cut = first.ended is Ended.BUDGET  # a site may require long delays
        late = sum(each.page.fingerprint not in first.pages for each in sample) if is_cut else 0
        return Report(findings=tuple(weighed(findings)), usage=usage, late=late)

    async def _find(self, sample: Sequence[ReportedPage], halt: asyncio.Event) -> list[Finding]:
        pages = [each.page for each in sample]
        first = await self._read(pages, halt)
        self._seen = first.pages
        if self.is_strict:
            etiquette = replace(self.visit.etiquette, user_agent=BROWSER, sender="")
            self._as_browser = (await self._read(pages, halt, etiquette=etiquette)).pages
        suspects = [page for page in pages if self._is_suspect(page)][:MOST_SECOND_LOOKS]
        missed, more = self._missed_starts(), self._more_excuses(pages)
        self._again = (await self._read([*suspects, *missed, *more], halt)).pages
        await self._read_referrers(suspects, halt)
        self._false_raws = {each.page.fingerprint for each in sample if await self._has_false_raw(each)}
        findings = [self._judged(each) for each in sample]
        findings += [excuses.tried(page, self._again.get(page.fingerprint)) for page in more]
        trouble = self._trouble(pages, more)
        findings = excuses.weighed(findings, excused=self.witness.excused, trouble=trouble)
        same = {each.url for each in findings if each.verdict is Judgement.SAME}
        # A host need not read the links of an unchanged page again.
        true = {page.url: page.depth for page in pages if page.url in same and not page.is_unchanged}
        findings += [_omitted(page, self._again.get(page.fingerprint)) for page in missed]
        has_rules = bool(
            self.visit.crawler.program.rules
        )  # which decide what is followed: see _judge_again()
        return findings if has_rules else findings + self._omissions(first.found, true)

    # -- what was not brought ----------------------------------------------------------------------------

    def _more_excuses(self, pages: Sequence[Page]) -> list[Page]:
        """More pages that the host did not bring, if one of the sample can be had: one may be an accident."""
        seen = ((page, self._seen.get(page.fingerprint)) for page in pages)
        findings = [excuses.tried(page, ours) for page, ours in seen if excuses.is_excuse(page)]
        if not any(each.verdict is Judgement.UNFOUNDED for each in findings):
            return []
        drawn = {page.fingerprint for page in pages}
        return [page for page in self.witness.excuses if page.fingerprint not in drawn]

    def _trouble(self, sample: Sequence[Page], more: Sequence[Page]) -> excuses.Trouble:
        """How the site failed from here: requests are counted, since a page may come at the second try."""
        requests = answered = 0
        for read in self._reads:
            broken = [page for page in read.pages.values() if excuses.is_broken(page)]
            answered += sum(page.status > 0 and page not in broken for page in read.pages.values())
            requests += read.requests - excuses.TRIES * len(broken) - (read.robots is not None)
        excused = self.witness.excused
        tried = [*filter(excuses.is_excuse, sample), *more]
        plain = [page for page in sample if not excuses.is_excuse(page)]
        share = excused * self._broken_share(tried) + (1.0 - excused) * self._broken_share(plain)
        return excuses.Trouble(max(requests, answered), max(requests - answered, 0), share)

    def _broken_share(self, pages: Sequence[Page]) -> float:
        seen = self._seen | self._again
        broken = [page for page in pages if excuses.is_broken(seen.get(page.fingerprint, _EMPTY))]
        return len(broken) / max(len(pages), 1)

    # -- what rules did ----------------------------------------------------------------------------------

    async def _judge_again(self, count: int, halt: asyncio.Event) -> list[Finding]:
        """Findings for what rules made of some pages, and for links that they follow from them."""
        run = self.witness.runs.run if self.witness.runs else None
        if run is None or not self._manner.is_same_version or halt.is_set():
            return []
        told = run.pages[:count]
        rerun = Rerun(replace(run, failed=run.failed[:count]))
        visit = replace(rerun_of(self.visit, rerun.run, told), robots=self._robots)
        await self.here.carry_out(visit, deliver=rerun.take, stop=halt)
        self._rules_usage = self._rules_usage.plus(rerun.usage)
        findings = rerun.findings(told, is_from_disk=self._manner.is_from_disk)
        return findings + self._omissions(rerun.found, rerun.true(told))

    async def _ask_again(self, halt: asyncio.Event) -> list[Finding]:
        """Findings for what the host was done with because rules refuse it."""
        refusals = self.witness.refusals
        if refusals is None or not self._manner.is_same_version or halt.is_set():
            return []

        async def carry_out(visit: Visit, deliver: Deliver) -> None:
            await self.here.carry_out(replace(visit, robots=self._robots), deliver=deliver, stop=halt)

        findings, usage = await ask_again(refusals.kept, self.visit, carry_out, halt)
        self._rules_usage = self._rules_usage.plus(usage)
        return findings

    # -- one page ----------------------------------------------------------------------------------------

    def _is_suspect(self, reported: Page) -> bool:
        seen = self._seen.get(reported.fingerprint)
        if seen is None or excuses.is_excuse(reported):
            return False
        if needs_second_look(reported, trimmed(seen, self.visit.crawler.program.keep), self._manner):
            return True
        return cloaked(seen, self._as_browser.get(reported.fingerprint), seen) is not None

    def _judged(self, reported: ReportedPage) -> Finding:
        page, mark, keep = reported.page, reported.page.fingerprint, self.visit.crawler.program.keep
        ours, second = self._seen.get(mark), self._again.get(mark)
        if excuses.is_excuse(page):
            return excuses.tried(page, ours)
        if ours and not page.language and _may_be_guessed(ours):
            ours = replace(ours, language="")  # hosts before 0.4 do not guess
        finding = judge(
            page,
            trimmed(ours, keep) if ours else None,
            trimmed(second, keep) if second else None,
            manner=self._manner,
            now=self.clock.now(),
            referrer=self._referrers.get(fingerprint(page.referrer)) if page.referrer else None,
        )
        if ours is None or finding.verdict not in GOOD:
            return finding
        if finding.verdict is Judgement.SAME:
            if mark in self._false_raws:
                detail = "its digest matches, but its raw response does not"
                return Finding(page.url, Judgement.ALTERED, detail)
            if not page.is_kept and ours.digest == page.digest and self._wants(page, ours):
                detail = "the crawler selects it, but the host withheld it"
                return Finding(page.url, Judgement.MISSING, detail)
        return cloaked(ours, self._as_browser.get(mark), second) or finding

    def _wants(self, reported: Page, seen: Page) -> bool:
        """Whether the crawler selects the page, with the depth and referrer that the visit reported."""
        if self._select is None or seen.is_unchanged or isinstance(seen, Sketch):
            return False
        page = replace(seen, depth=reported.depth, referrer=reported.referrer)
        readings = [page, replace(page, language="")] if _may_be_guessed(page) else [page]
        return all(self._select.judge(row_of(each, self.visit.site)) is True for each in readings)

    async def _has_false_raw(self, reported: ReportedPage) -> bool:
        """True if the response for the archive does not match the digest."""
        if reported.raw is None:
            return False
        try:
            return await self.here.digest(reported.raw) != reported.page.digest
        except ReadError:
            return False  # too large, or unreadable for a reader too: then the page reports the error

    # -- what the host did not mention -------------------------------------------------------------------

    def _missed_starts(self) -> list[Page]:
        """Some of the URLs that a finished visit was sent, and did not report."""
        if self.witness.ended is not Ended.FINISHED or not self.is_whole:
            return []
        missed = [
            Page(url=start.url, fingerprint=mark, depth=start.depth, fetched=self.clock.now())
            for start in luggage(self.visit)[0]
            if start.kind == "page" and (mark := fingerprint(start.url)) not in self.witness.mentioned
        ]
        return missed[:MOST_OMISSIONS]

    def _omissions(self, found: Iterable[Target], true: Mapping[str, int]) -> list[Finding]:
        """Findings for links of true pages, by URL and depth, that the host should have reported."""
        if not (self.is_whole and self._manner.is_same_version) or self.visit.crawler.program.prune:
            return []  # which links are followed is then not known here
        omitted = [
            link
            for link in found
            if link.referrer in true and self._is_news(link, depth=true[link.referrer] + 1)
        ]
        return [
            Finding(link.url, Judgement.OMITTED, f"{link.referrer} links to it, but it was not reported")
            for link in omitted[:MOST_OMISSIONS]
        ]

    def _is_news(self, link: Target, *, depth: int) -> bool:
        """True if a visit that saw this link had to report it."""
        mark, known = fingerprint(link.url), self.visit.known
        if mark in self.witness.mentioned or link.kind != "page" or _holds(known.fingerprints, mark):
            return False
        # URLs that home knows are reported when fetched, not when found, and they may be too deep to fetch.
        deepest = min(self.visit.budget.depth, self.visit.crawler.scope.max_depth)
        if self.witness.ended is Ended.FINISHED and depth <= deepest:
            return True
        is_known = any(mark == each.fingerprint for each in known.validators)
        return not is_known and all(link.url != start.url for start in self.visit.starts)

    # -- reading -----------------------------------------------------------------------------------------

    async def _read_referrers(self, suspects: Sequence[Page], halt: asyncio.Event) -> None:
        """Reads the referrers that the host reported for pages that do not exist."""
        seen = self._seen
        urls = {page.referrer for page in suspects if seen[page.fingerprint].status in _NOT_THERE}
        inside = sorted(url for url in urls if url.startswith(f"{self.visit.site}/"))
        pages = [Page(url=url, fingerprint=fingerprint(url), depth=0, fetched=0.0) for url in inside]
        missing = [page for page in pages if page.fingerprint not in seen]
        self._referrers = {**seen, **(await self._read(missing, halt)).pages}

    async def _read(
        self, pages: Sequence[Page], halt: asyncio.Event, *, etiquette: Etiquette | None = None
    ) -> _Read:
        read = _Read(self.visit.crawler.program.keep)
        if pages and not halt.is_set():
            self._reads.append(read)
            visit = reading(self.visit, pages, is_first=len(self._reads) == 1)
            visit = replace(visit, robots=self._robots, etiquette=etiquette or visit.etiquette)
            await self.here.carry_out(visit, deliver=read.take, stop=halt)
            self._robots = read.robots or self._robots
        return read


def _omitted(start: Page, seen: Page | None) -> Finding:
    if seen is not None and 200 <= seen.status < 300 and not seen.error:
        return Finding(start.url, Judgement.OMITTED, "the host was sent it, but did not report it")
    return Finding(start.url, Judgement.UNSEEN, "it cannot be fetched from here either")


def _holds(fingerprints: bytes, mark: int) -> bool:
    marks = memoryview(fingerprints).cast("q")
    at = bisect_left(marks, mark)
    return at < len(marks) and marks[at] == mark


async def _set_later(stop: asyncio.Event, halt: asyncio.Event) -> None:
    await stop.wait()
    await asyncio.sleep(STOP_SECONDS)
    halt.set()


def reading(visit: Visit, pages: Sequence[Page], *, is_first: bool) -> Visit:
    """A visit that reads these pages and follows no links; the first is conditional for unchanged pages."""
    unchanged = {page.fingerprint for page in pages if page.is_unchanged} if is_first else set[int]()
    return replace(
        visit,
        id=f"check-{secrets.token_hex(8)}",
        crawler=_reader(visit.crawler),
        starts=tuple(Target(page.url) for page in pages),
        known=Known(
            validators=tuple(each for each in visit.known.validators if each.fingerprint in unchanged)
        ),
        budget=Budget(pages=2 * len(pages), seconds=READ_SECONDS, depth=0),  # redirects are followed
        within=(),
    )


def trimmed(page: Page, keep: Keep) -> Page:
    """The page as read here, without the fields that a crawler would not have sent home."""
    if isinstance(page, Sketch):
        return page  # made of a trimmed page
    is_redirect = 300 <= page.status < 400  # its link is its target, which is always sent home
    gone = {
        name: getattr(_EMPTY, name)
        for name in COMPARED
        if name not in keep.fields and not (is_redirect and name == "links")
    }
    page = replace(page, **gone)
    if keep.share >= 1.0:
        return page
    text, html = (text[: round(len(text) * keep.share)] for text in (page.text, page.html))
    return replace(page, text=text, html=html)


def _light(page: Page, keep: Keep) -> Page:
    return page if is_light(page) else sketch_of(trimmed(page, keep))


def _reader(crawler: Crawler) -> Crawler:
    """A crawler that reads pages in the same way, without selection or rules."""
    program = crawler.program
    fields = tuple(dict.fromkeys((*program.keep.fields, *program.needs, "links")))
    return replace(
        crawler,
        scope=replace(crawler.scope, use_sitemaps=False),
        program=Program(keep=Keep(fields=fields, selectors=program.keep.selectors), needs=program.needs),
        facts=(),
        keeps_raw=False,
    )


def _may_be_guessed(page: Page) -> bool:
    """Whether the page's language may be a guess of ours, which another version need not make."""
    return bool(page.language) and guess_language(page.text) == page.language
