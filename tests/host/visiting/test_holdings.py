"""A home asks a host what its crawler holds, within the policy and bounded; the owner sees the same."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests import making
from tests.host.knocking import SITE, GatedSite, Home, open_home, problem_in, send
from tests.host.visiting.test_restart import killed, work

from sterna.api.holdings import left_out, open_holdings
from sterna.crawler.facts import decode
from sterna.errors import StorageError
from sterna.host.owner.audit import AUDIT
from sterna.host.policy.policy import HomeRules, HostLimits, Policy
from sterna.host.state import VISITS
from sterna.host.visiting.holdings import held_in, visits_in
from sterna.host.visiting.logbook import LOG
from sterna.model import Crawler, Program, Source
from sterna.wire.holdings import Holdings
from sterna.wire.holdings import open_holdings as opened
from sterna.wire.orders import Look, Query, Send

COUNTING = Crawler(
    name="counts",
    program=Program(
        rules=(
            Source(
                "counts.clp",
                """
                (deftemplate seen (slot url))
                (defrule count (page (url ?url)) => (assert (seen (url ?url))) (emit found ?url))
                """,
            ),
        ),
    ),
)


async def ask(home: Home, visit: str = "v1") -> Holdings:
    reply, session = await home.order(Query(visit))
    assert isinstance(reply.body, bytes)
    assert reply.status == 200, reply.body
    return opened(session.keys, reply.body)


def as_sent(order: Send) -> object:
    return making.visit(*order.starts, id=order.visit, site=SITE, crawler=order.crawler, epoch=order.epoch)


async def test_home_gets_what_its_crawler_holds_while_it_is_at_work(tmp_path: Path) -> None:
    site = GatedSite(12)
    async with open_home(tmp_path, site=site) as home:
        stream = await work(home, site, pages=4, crawler=COUNTING)
        held = await ask(home)
        await home.acknowledge(stream.session, "v1", 1)
        later = await ask(home)

    assert held.report.state == "running"
    assert (held.report.acknowledged, later.report.acknowledged) == (0, 1)
    assert len(held.parcels) == held.report.parcels == len(later.parcels) + 1
    assert {decode(fact).template for fact in held.facts} == {"seen"}
    assert len(held.facts) == held.facts_total == held.usage.pages >= 5
    assert sum(each.urls for each in held.waiting) == 13 - held.done
    visit = making.visit(id="v1", site=SITE, crawler=COUNTING, epoch=7)
    with open_holdings(visit, held) as engine:
        (pages,) = engine.run("SELECT count(*) FROM page WHERE status = 200").rows
        (links,) = engine.run("SELECT count(*) FROM link").rows
        (facts,) = engine.run("SELECT count(*) FILTER (_kind = 'own'), count(DISTINCT url) FROM seen").rows
        (sent,) = engine.run("SELECT count(*) FROM fact WHERE kind = 'row'").rows
        (row,) = engine.run("SELECT visit, site, pages, ended FROM visit").rows
        (waiting,) = engine.run("SELECT sum(urls) FROM frontier").rows
    assert pages == (held.usage.pages,)
    assert links == (12,)
    assert facts == (held.facts_total, held.facts_total)
    assert sent == (held.usage.pages,)
    assert row == ("v1", SITE, held.usage.pages, "running")
    assert waiting == (13 - held.done,)


async def test_query_is_in_the_audit_log(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        await home.visit(send())
        held = await ask(home)
    lines = [msgspec.json.decode(line) for line in (tmp_path / "state" / AUDIT).read_bytes().splitlines()]
    (line,) = [line for line in lines if line["event"] == "crawler-queried"]
    assert (line["visit"], line["home"], line["parcels"]) == ("v1", "ada", len(held.parcels))


@pytest.mark.parametrize(
    "policy", [Policy(may_query=False), Policy(homes={"ada": HomeRules(may_query=False)})]
)
async def test_owner_forbids_queries_to_all_or_one(tmp_path: Path, policy: Policy) -> None:
    async with open_home(tmp_path, policy=policy) as home:
        await home.visit(send())
        reply, _ = await home.order(Query("v1"))
        assert problem_in(reply).name == "refused"
        assert "does not let your home query" in problem_in(reply).detail
        assert (await home.report(Look("v1"))).state == "finished"


async def test_home_cannot_query_the_crawler_of_another(tmp_path: Path) -> None:
    async with open_home(tmp_path, policy=Policy(open="everybody")) as home:
        await home.visit(send())
        other = Home(home.service, home.host)
        reply, _ = await other.order(Query("v1"))
        assert problem_in(reply).name == "gone"


async def test_host_that_keeps_nothing_says_so(tmp_path: Path) -> None:
    async with open_home(tmp_path, is_live_only=True) as home:
        session = await home.greet()
        assert session.platform["queries"] == "no"
        reply, _ = await home.order(Query("v1"), session)
        assert problem_in(reply).name == "gone"


async def test_reply_is_bounded_and_home_learns_what_is_left_out(tmp_path: Path) -> None:
    limits = HostLimits(readers=1, query_bytes=300)
    async with open_home(tmp_path, limits=limits) as home:
        await home.visit(send(crawler=COUNTING))
        held = await ask(home)
    assert 0 < len(held.facts) < held.facts_total == 13
    assert sum(map(len, held.facts)) <= 300
    assert held.parcels == ()
    assert left_out(held).endswith("parcels are left out: they exceed what the host sends at once")
    assert f"{13 - len(held.facts)} facts" in left_out(held)


async def test_query_survives_a_restart_of_the_host(tmp_path: Path) -> None:
    site = GatedSite(12)
    async with open_home(tmp_path / "a", site=site) as home:
        await work(home, site, pages=3, crawler=COUNTING)
        before = await ask(home)
        async with killed(tmp_path / "a", home, site=site) as later:
            after = await ask(later)
    assert after.facts[: len(before.facts)] == before.facts
    assert after.parcels[: len(before.parcels)] == before.parcels


async def test_crawler_that_waits_can_be_queried(tmp_path: Path) -> None:
    site = GatedSite(12)
    async with open_home(tmp_path, site=site, limits=HostLimits(readers=1, crawlers_at_once=1)) as home:
        await home.order(send())
        await home.order(send(visit="v2"))
        held = await ask(home, "v2")
    assert (held.report.state, held.report.parcels, held.parcels) == ("queued", 0, ())
    assert [(each.depth, each.urls) for each in held.waiting] == [(0, 1)]


async def test_many_queries_at_once_are_all_answered(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        await home.visit(send())
        held = await asyncio.gather(*(ask(home) for _ in range(8)))
    assert len({each.usage.pages for each in held}) == 1


# -- the owner ---------------------------------------------------------------------------------------------


async def test_owner_reads_the_same_from_the_files_and_changes_none(tmp_path: Path) -> None:
    site = GatedSite(12)
    async with open_home(tmp_path, site=site) as home:
        await work(home, site, pages=4, crawler=COUNTING)
        told = await ask(home)
        (folder,) = visits_in(tmp_path / "state" / VISITS)
        with (folder / LOG).open("ab") as log:
            log.write(b"\0\0")  # an entry that is being written
        size = (folder / LOG).stat().st_size
        visit, held = held_in(folder, most_bytes=1 << 24)
        assert (folder / LOG).stat().st_size == size
    assert visit.crawler == COUNTING
    assert held.facts == told.facts
    assert held.parcels == told.parcels


async def test_damaged_visit_is_named(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        await home.visit(send())
        (folder,) = visits_in(tmp_path / "state" / VISITS)
        log = bytearray((folder / LOG).read_bytes())
        log[30] ^= 1
        (folder / LOG).write_bytes(bytes(log) + b"\0" * 40)
        reply, _ = await home.order(Query("v1"))
        assert problem_in(reply).name == "internal"
        with pytest.raises(StorageError, match="is damaged"):
            held_in(folder, most_bytes=1)
