"""The records of a page: what its reader gets, what its rules see, and what goes home."""

import msgspec

from sterna.crawler.predicate import Judge, row_of
from sterna.model import REQUISITES, Links, Page, Raw, Target, Validator, Visit
from sterna.runtime.access import Reply
from sterna.runtime.engine.messages import PageView, Verdict
from sterna.runtime.sieve import Sift, gone_fields
from sterna.web.bodies import SMALL_BYTES
from sterna.web.clock import Clock
from sterna.web.document import MAX_DOCUMENT_BYTES, Document, Fetched, Manner
from sterna.web.http import Response, head_of
from sterna.web.urls import fingerprint

LIGHT_BYTES = 512 * 1024  # of a document's memory, for which nothing waits
_SHOWN = tuple(name for name in PageView.__struct_fields__ if name in Page.__struct_fields__)  # to rules


class Pages:
    """The pages of one visit."""

    def __init__(self, visit: Visit, clock: Clock, *, reads_css: bool = False) -> None:
        self._site = visit.site
        self._crawler = visit.crawler
        self._clock = clock
        program = visit.crawler.program
        self._judge = Judge(program.select) if program.select else None
        read = {*program.needs, "language"} - {"headers"}  # a language is read in any case
        is_all_kept = program.keep.share == 1.0 and read.issubset(program.keep.fields)
        sift = Sift(program.select, program.keep, bool(program.rules))
        # How readers sift documents; empty if they leave them as they are.
        self._sift = b"" if program.select is None and is_all_kept else msgspec.msgpack.encode(sift)
        self._keeps_links = "links" in program.keep.fields
        self._keeps_headers = "headers" in program.keep.fields
        self._manner = Manner(
            drop_params=visit.crawler.scope.drop_params,
            agent=visit.etiquette.robots_name,
            wants=program.needs,
            selectors=program.keep.selectors,
            least_change=program.least_change,
            reads_css=reads_css,
            follows_css=visit.part == REQUISITES,
        ).encoded()

    def fetched(self, target: Target, response: Response, known: Validator | None) -> Fetched:
        return Fetched(
            url=target.url,
            status=response.status,
            is_cut=response.is_cut,
            content_type=response.header("content-type"),
            content_encoding=response.header("content-encoding"),
            x_robots=response.header("x-robots-tag"),
            content_language=response.header("content-language"),
            body=response.body,
            kind=target.kind,
            known_digest=known.digest if known else b"",
            known_likeness=known.likeness if known else b"",
            manner=self._manner,
            depth=target.depth,
            referrer=target.referrer,
            sift=self._sift,
            most_bytes=LIGHT_BYTES if len(response.body) <= SMALL_BYTES else MAX_DOCUMENT_BYTES,
        )

    def slim(self, reply: Reply) -> Reply:
        """The reply without its body, unless the archive wants it."""
        if self._crawler.keeps_raw:
            return reply
        return Reply(msgspec.structs.replace(reply.response, body=b""), reply.request)

    def failed(self, target: Target, kind: str) -> Page:
        return Page(
            url=target.url,
            fingerprint=fingerprint(target.url),
            depth=target.depth,
            fetched=self._clock.now(),
            error=kind,
            referrer=target.referrer,
        )

    def answered(
        self,
        target: Target,
        reply: Reply,
        *,
        digest: bytes = b"",
        is_unchanged: bool = False,
        error: str = "",
        links: Links | None = None,
    ) -> Page:
        """The record that a response's head gives."""
        response, raw = reply.response, None
        if self._crawler.keeps_raw:
            request = reply.request
            raw = Raw(head_of(request), response.head, response.body, request.address, response.is_http2)
        return Page(
            url=target.url,
            fingerprint=fingerprint(target.url),
            depth=target.depth,
            fetched=self._clock.now(),
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
            raw=raw,
            headers=response.headers if self._keeps_headers else (),
        )

    def read(self, target: Target, reply: Reply, document: Document) -> Page:
        page = self.answered(target, reply)
        is_open = document.may_index
        # Of a part of a page nothing may be asked "if it changed".
        is_whole = is_open and document.note not in ("cut", "damaged")
        # A page that hardly changed may still have lost what it was selected for.
        is_unchanged = document.is_unchanged or (document.is_alike and document.is_selected)
        # The archive would store it as identical to the earlier response, which it is not.
        may_archive = document.may_archive and is_open and not document.is_alike
        return msgspec.structs.replace(
            page,
            # A page that must not be indexed has no validators: it is read anew until its author allows it.
            etag=page.etag if is_whole else "",
            modified=page.modified if is_whole else "",
            digest=document.digest if is_open else b"",
            is_unchanged=is_unchanged and is_open and 200 <= page.status < 300,
            content_type=document.content_type,
            title=document.title,
            text=document.text,
            language=document.language,
            size=document.size,
            links=document.links if self._keeps_links else Links(),
            raw=page.raw if may_archive else None,
            is_kept=document.is_selected,
            description=document.description,
            keywords=document.keywords,
            headings=document.headings,
            html=document.html,
            extracts=tuple(found for found in document.extracts if found[1]),
            likeness=document.likeness,
            note=document.note,
        )

    def judged(self, page: Page) -> Page:
        """A page that no reader has seen, judged by the selection."""
        if self._judge is None or page.is_unchanged:
            return page
        return msgspec.structs.replace(page, is_kept=self._judge.judge(row_of(page, self._site)) is True)

    def view(self, page: Page, document: Document | None) -> PageView:
        shown = {name: getattr(page, name) for name in _SHOWN}
        if document:
            shown["links"] = document.links
        return PageView(site=self._site, selected=page.is_kept, **shown)

    def stripped(self, page: Page, verdict: Verdict) -> Page:
        """The page as the rules decided, without the fields that are not kept."""
        is_kept = page.is_kept if verdict.is_kept is None else verdict.is_kept
        gone = gone_fields(page, self._crawler.program.keep, is_kept=is_kept)
        if not is_kept:
            gone |= {"links": Links(), "headers": ()}
        return msgspec.structs.replace(page, is_kept=is_kept, **gone)
