"""What Sterna reads of the odd answers: a visit for each, as a crawl makes it."""

import asyncio
import time

from tests import making
from tests.odd.answers import CASES

from sterna.model import Etiquette, Page, Parcel, Target
from sterna.runtime.access import RuntimeConfig
from sterna.runtime.runtime import Runtime, open_runtime
from sterna.web.politeness import NO_LIMITS


class _HastyClock:
    """Jumps over every wait."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def now(self) -> float:
        return time.time() + self._skipped

    async def sleep(self, seconds: float) -> None:
        self._skipped += seconds
        await asyncio.sleep(0)


def pages_of_all(url: str) -> dict[str, list[Page]]:
    """The pages of each case that the server at this URL has."""
    return asyncio.run(_visit_all(url))


def read_all(url: str) -> set[str]:
    """The names of the cases of which a page shows what it should."""
    return names_of(pages_of_all(url))


def names_of(found: dict[str, list[Page]]) -> set[str]:
    return {
        name
        for name, pages in found.items()
        if any(not page.error and CASES[name].shows in f"{page.title}\n{page.text}" for page in pages)
    }


async def _visit_all(url: str) -> dict[str, list[Page]]:
    config = RuntimeConfig(
        connections=16, readers=2, limits=NO_LIMITS, timeout_seconds=10.0, shares_holds=False
    )
    async with open_runtime(config, _HastyClock()) as runtime:
        found = await asyncio.gather(*(_visit(runtime, url, name) for name in CASES))
    return dict(zip(CASES, found, strict=True))


async def _visit(runtime: Runtime, url: str, name: str) -> list[Page]:
    pages: list[Page] = []

    async def deliver(parcel: Parcel) -> None:
        pages.extend(parcel.pages)

    visit = making.visit(
        Target(f"{url}/{name}"),
        site=url,
        id=name,
        etiquette=Etiquette(delay_seconds=0.0, response_factor=0.0, obey_robots=False),
        may_be_private=True,
    )
    await runtime.carry_out(visit, deliver=deliver, stop=asyncio.Event())
    return pages
