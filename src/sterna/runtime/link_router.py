"""Which links of a visit are followed here, which are reported to home, and which are ignored."""

import asyncio
from array import array
from collections.abc import Mapping
from functools import lru_cache

from sterna.crawler.media import media_rels
from sterna.crawler.predicate import Judge
from sterna.crawler.scope import ScopeRules
from sterna.model import Target, Visit
from sterna.runtime.engine.messages import Verdict
from sterna.runtime.frontier import Frontier
from sterna.runtime.packer import Packer
from sterna.web.document import Document
from sterna.web.urls import Canonical, fingerprint, lies_within, site_of

MAX_NESTED_SITEMAPS = 5
STARTS_AT_ONCE = 500
_NO_WISHES: Mapping[str, int] = {}


class Following:
    """Decides on links; fills the visit's frontier, and its packer with what home must know."""

    def __init__(self, visit: Visit, *, frontier: Frontier, packer: Packer) -> None:
        self._visit = visit
        self._frontier = frontier
        self._packer = packer
        self._program = visit.crawler.program
        self._scope = ScopeRules(visit.crawler.scope)
        self._prune = Judge(self._program.prune) if self._program.prune else None
        self._media = media_rels(self._program.select)  # the kinds of media that are followed like pages
        self._seed_sites = _site_set(visit.crawler.scope.seed_sites)
        self._within = frozenset(visit.within)
        self.canonical = Canonical(visit.crawler.scope.drop_params)
        # Fingerprints of links that do not belong in the frontier: other sites, out of scope, known before;
        # and 0, which marks a link that must not be followed.
        self._passed: set[int] = {0}
        self.left_out = 0  # links of this site that the scope does not admit; counted by add()

    @property
    def held_count(self) -> int:
        return len(self._frontier.seen) + len(self._passed)

    async def begin(self) -> None:
        """Puts the start URLs into the frontier, except those that the scope no longer admits."""
        for at, target in enumerate(self._visit.starts):
            if at % STARTS_AT_ONCE == STARTS_AT_ONCE - 1:
                await asyncio.sleep(0)  # there may be half a million, and other tasks wait
            mark = fingerprint(target.url)
            is_free = target.depth == 0 or target.kind == "sitemap"
            if is_free or (self._scope.admits(target.url) and not self._is_pruned(target)):
                self._frontier.add(target, mark)
            else:
                self._packer.drop(mark)

    def follow(self, target: Target, document: Document, verdict: Verdict | None = None) -> None:
        """Follows the links of a page, as the verdict of its rules says if there is one."""
        if target.hops < MAX_NESTED_SITEMAPS:
            for url in document.sitemaps:
                self.add(Target(url, target.depth + 1, target.url, "sitemap", target.hops + 1))
        for url in document.urls:
            self.add(Target(url, target.depth + 1, target.url))
        if verdict.follows_links if verdict else not self._program.drives_loading:
            self._follow_links(target, document, wishes=dict(verdict.priorities) if verdict else _NO_WISHES)
            if self._media and document.may_follow:
                self._follow_media(target, document)

    def obey(self, target: Target, verdict: Verdict) -> None:
        """Follows the URLs that rules name, and raises the priorities that they raise."""
        for wishes, is_followed in ((verdict.follow, True), (verdict.priorities, False)):
            for href, priority in wishes:
                url = self.canonical(href, target.url)
                if url is None:
                    continue
                if raised := self._frontier.raise_to(priority, url):
                    self._packer.add_found(raised)  # home keeps the higher priority
                if is_followed:
                    self.add(Target(url, target.depth + 1, target.url, priority=priority))

    def _follow_links(self, target: Target, document: Document, *, wishes: Mapping[str, int]) -> None:
        # Most links of a page are known: they cost a lookup in two sets, and no object.
        marks = array("q", document.marks)
        unmet = set(marks).difference(self._frontier.seen).difference(self._passed)
        if unmet:
            urls = document.links.urls.split("\n")
            for mark, url in zip(marks, urls, strict=False):  # links to media come last, and have no marks
                if mark in unmet:
                    priority = wishes.get(url, 0)
                    self.add(Target(url, target.depth + 1, target.url, priority=priority), mark)

    def _follow_media(self, target: Target, document: Document) -> None:
        for link in document.links:
            if link.rel in self._media:
                self.add(Target(link.url, target.depth + 1, target.url))

    def add(self, target: Target, mark: int | None = None, *, is_wanted: bool = False) -> None:
        """Adds a link of this site to the frontier; reports one of another site."""
        mark = fingerprint(target.url) if mark is None else mark
        is_free = is_wanted or target.kind == "sitemap"
        if not is_free and self._is_pruned(target):
            return  # another path to it may be shorter
        if site_of(target.url) != self._visit.site:
            self._report(target, mark)
            return
        is_admitted = is_free or self._scope.admits(target.url)
        if is_admitted and self._frontier.add(target, mark, is_wanted=self._is_within(target)):
            self._packer.add_found(target)
        else:
            self.left_out += not is_admitted and mark not in self._passed
            self._passed.add(mark)

    def _is_within(self, target: Target) -> bool:
        """False if the page belongs to another visit: it is only reported."""
        return not self._within or target.kind == "sitemap" or lies_within(target.url, self._within)

    def _is_pruned(self, target: Target) -> bool:
        return self._prune is not None and not self._prune.admits(target)

    def _report(self, target: Target, mark: int) -> None:
        # A redirect of a start page (depth 0) is always reported: home may follow it to the site's new name.
        is_start = target.depth == 0
        # An interrupted visit may have reported it before.
        is_new = is_start or not (mark in self._passed or self._frontier.is_known(mark))
        self._passed.add(mark)
        is_near = is_start or site_of(target.url) in self._seed_sites
        if target.kind == "sitemap" or (self._visit.crawler.scope.stay == "site" and not is_near):
            return
        if is_new and self._scope.admits(target.url):
            self._packer.add_outlink(target)


@lru_cache(maxsize=16)
def _site_set(sites: tuple[str, ...]) -> frozenset[str]:
    return frozenset(sites)  # one for all visits of a crawl: there may be thousands of both
