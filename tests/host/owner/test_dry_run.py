"""A dry run tells what a home would get, no less and no more."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.host.knocking import SITE, config_of, open_home, send, write_site

from sterna.errors import UsageError
from sterna.host.owner.dry_run import DryRun, dry_run
from sterna.host.policy.policy import Caps, Policy
from sterna.host.policy.terms import terms_of
from sterna.host.site.source import ShieldedFetcher
from sterna.model import Budget, Crawler, Ended, Keep, Program, Scope, Source, Target
from sterna.web.clock import SystemClock
from sterna.web.http import Request, Response
from sterna.wire.orders import Send

Lines = list[dict[str, Any]]


async def run(
    folder: Path, order: Send, *, stop: asyncio.Event | None = None, **fields: Any
) -> tuple[DryRun, Lines]:
    """The sum and the lines."""
    config = config_of(folder, **fields)
    lines: Lines = []
    result = await dry_run(
        order,
        config=config,
        terms=terms_of(config.policy, "ada"),
        clock=SystemClock(),
        write=lines.append,
        stop=stop or asyncio.Event(),
    )
    return result, lines


def of_kind(lines: Lines, kind: str) -> Lines:
    return [line for line in lines if line["kind"] == kind]


async def test_lines_are_what_a_home_gets_from_the_host_itself(tmp_path: Path) -> None:
    order = send(budget=Budget(pages=100))
    async with open_home(tmp_path) as home:
        stream = await home.visit(order)
    result, lines = await run(tmp_path, order)
    pages = {line["url"].removeprefix(SITE): line for line in of_kind(lines, "page")}
    assert pages.keys() == stream.pages.keys()
    for path, page in stream.pages.items():
        told = pages[path]
        assert (told["status"], told["title"], told["text"]) == (page.status, page.title, page.text), path
        assert told["digest"] == page.digest.hex()
        assert [link["url"] for link in told.get("links", ())] == [link.url for link in page.links]
    assert (result.pages, result.ended) == (stream.ending.usage.pages, Ended.FINISHED)
    assert result.lines["page"] == len(stream.pages)
    # The stream has its signed end besides, and the times of two visits are not the same.
    assert 0 <= stream.size - result.sent_bytes < 2_000
    assert result.plain_bytes > result.sent_bytes
    assert of_kind(lines, "ended") == [{"kind": "ended", "why": "finished"}]


async def test_what_does_not_leave_is_not_told(tmp_path: Path) -> None:
    write_site(tmp_path / "site")
    crawler = Crawler(program=Program(keep=Keep(fields=("title",))))
    _, lines = await run(tmp_path, send(crawler=crawler))
    pages = of_kind(lines, "page")
    assert len(pages) == 13
    assert all("text" not in page and "links" not in page for page in pages)
    assert {page["title"] for page in pages} >= {"Front", "Page 3"}


async def test_facts_and_lines_of_rules_are_told(tmp_path: Path) -> None:
    write_site(tmp_path / "site", 3)
    rules = "(defrule a (page (url ?u)) => (keep) (emit find ?u) (log-line saw ?u))"
    crawler = Crawler(program=Program(rules=(Source("a.clp", rules),)))
    result, lines = await run(tmp_path, send(crawler=crawler))
    facts = [line["fact"] for line in of_kind(lines, "fact")]
    assert {fact["values"][0] for fact in facts} == {f"{SITE}/", *(f"{SITE}/{n}.html" for n in range(3))}
    assert any(line["text"].endswith(f"{SITE}/") for line in of_kind(lines, "line"))
    assert (result.lines["fact"], result.lines["line"]) == (4, 4)


async def test_policy_holds(tmp_path: Path) -> None:
    write_site(tmp_path / "site")
    _, lines = await run(tmp_path, send(), policy=Policy(closed=("/3.html",)))
    told = {line["url"]: line for line in of_kind(lines, "page")}
    assert "text" not in told.get(f"{SITE}/3.html", {})
    assert "Page 3" not in {line.get("title") for line in told.values()}
    assert "Page 4" in {line.get("title") for line in told.values()}


async def test_terms_bound_the_visit(tmp_path: Path) -> None:
    write_site(tmp_path / "site", 50)
    policy = Policy(budget=Caps(pages=5))
    result, _ = await run(tmp_path, send(budget=Budget(pages=100)), policy=policy)
    assert result.ended is Ended.BUDGET
    assert result.pages == 5


async def test_crawler_that_the_host_would_refuse_is_refused_here(tmp_path: Path) -> None:
    write_site(tmp_path / "site")
    with pytest.raises(UsageError, match="the host would refuse this crawler: not a canonical URL of"):
        await run(tmp_path, send(starts=(Target("http://other.test/"),)))
    with pytest.raises(UsageError, match="the host would refuse this crawler"):
        await run(tmp_path, send(crawler=Crawler(scope=Scope(include=("(",)))))


async def test_stopped_dry_run_tells_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_site(tmp_path / "site", 400)
    stop, fetch, asked = asyncio.Event(), ShieldedFetcher.fetch, 0

    async def fetch_some(fetcher: ShieldedFetcher, request: Request) -> Response:
        nonlocal asked
        asked += 1
        if asked > 5:
            stop.set()
        return await fetch(fetcher, request)

    monkeypatch.setattr(ShieldedFetcher, "fetch", fetch_some)
    result, lines = await run(tmp_path, send(), stop=stop, policy=Policy(delay_seconds=0.05, connections=1))
    assert result.ended is Ended.STOPPED
    assert of_kind(lines, "page")


async def test_nothing_is_kept_at_the_host(tmp_path: Path) -> None:
    write_site(tmp_path / "site")
    await run(tmp_path, send())
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "keys").exists()
