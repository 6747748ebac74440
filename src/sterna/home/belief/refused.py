"""The check of what a host did not bring because the crawler's rules refuse it: they are asked again.

A refusal costs no request. A URL that is admitted is fetched, and at an honest host there is none.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from sterna.home.belief.rerun import NO_LIMITS, NOWHERE, READ_SECONDS
from sterna.model import Deliver, Known, Page, Parcel, State, Target, Usage, Visit
from sterna.trust.excuses import MANY, UNFOUNDED_SHARE, together
from sterna.trust.judgement import Finding, Judgement, state_of
from sterna.trust.refusals import Refusals
from sterna.trust.sampling import MOST_EXCUSES
from sterna.web.urls import fingerprint

REFUSED_SHARE = 0.2  # of a parcel, from which refusals of rules that remember count
MOST_REQUESTS = 4 * MOST_EXCUSES

CarryOut = Callable[[Visit, Deliver], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Asked:
    """What rules answered here; changed by take() alone."""

    pages: dict[int, Page] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    usage: Usage = field(default_factory=Usage)

    async def take(self, parcel: Parcel) -> None:
        self.pages.update((page.fingerprint, page) for page in parcel.pages)
        self.refused.update(parcel.checkpoint.done)
        usage = parcel.usage
        self.usage = self.usage.plus(Usage(requests=usage.requests, bytes_received=usage.bytes_received))

    def came(self, target: Target) -> bool:
        """True if the rules admit the URL, and it can be fetched."""
        page = self.pages.get(fingerprint(target.url))
        return page is not None and state_of(page) in ("there", "moved")


async def ask_again(
    refusals: Refusals, visit: Visit, carry_out: CarryOut, halt: asyncio.Event
) -> tuple[list[Finding], Usage]:
    """Findings for URLs that the rules admit here in any state that they may have been in, and the cost.

    Many of them are one missing page; of rules that remember, only if they refuse hardly any.
    """
    admitted, refused, usage = refusals.targets, 0, Usage()
    for state in refusals.states:
        if not admitted:
            break
        asked = Asked()
        await carry_out(asking(visit, admitted, state), asked.take)
        if halt.is_set():
            return [], usage.plus(asked.usage)
        usage = usage.plus(asked.usage)
        refused += sum(fingerprint(each.url) in asked.refused for each in admitted)
        admitted = tuple(filter(asked.came, admitted))
    detail = "not brought: refused by rules, which admit it here"
    findings = [Finding(each.url, Judgement.UNFOUNDED, detail) for each in admitted]
    tried, has_memory = len(findings) + refused, len(refusals.states) > 1
    # A state that refuses now and then may be neither the one before nor the one after.
    is_sure = refusals.share >= REFUSED_SHARE and len(findings) >= UNFOUNDED_SHARE * tried
    is_lie = len(findings) >= MANY and (is_sure or not has_memory)
    return together(findings, tried) if is_lie else findings, usage


def asking(visit: Visit, targets: Sequence[Target], state: State) -> Visit:
    """The visit that asks the rules about these URLs, and fetches only some that they admit."""
    crawler = visit.crawler
    return replace(
        visit,
        id=f"check-{secrets.token_hex(8)}",
        crawler=replace(
            crawler,
            scope=replace(crawler.scope, use_sitemaps=False),
            program=replace(crawler.program, least_change=0.0),
            keeps_raw=False,
        ),
        starts=tuple(replace(each, attempts=0, not_before=0.0) for each in targets),
        known=Known(),
        state=state,
        budget=replace(
            visit.budget,
            **{**NO_LIMITS, "pages": MOST_EXCUSES, "seconds": READ_SECONDS, "requests": MOST_REQUESTS},
        ),
        within=NOWHERE,
    )
