"""What a host is done with because rules refuse it: real engines are asked again, here."""

from dataclasses import replace

import pytest
from tests.home.belief.lying_sites import ASKING, Checking, each_page, hiding, pages, ruled_visit, web_of
from tests.runtime.fakes import SITE, FakeWeb, reply

from sterna.home.belief.check import Report
from sterna.home.belief.refused import MOST_REQUESTS
from sterna.model import Page, Parcel
from sterna.runtime.engine.client import Engines
from sterna.trust.judgement import Judgement
from sterna.trust.sampling import MOST_EXCUSES

COUNT = 60
PRUDENT = "(defrule no (request (url ?url) (depth ?depth&:(> ?depth 1))) => (refuse ?url))"
# The first twenty pages, whichever they are; then all are refused.
COUNTING = """
(defglobal ?*pages* = 0)
(defrule count (page) => (bind ?*pages* (+ 1 ?*pages*)) (if (= ?*pages* 20) then (assert (enough))))
(defrule no (request (url ?url)) (enough) => (refuse ?url))
"""
# Those that are asked for after some page, until the next one.
MOODY = """
(defrule forget (declare (salience 10)) (page) ?mood <- (mood) => (retract ?mood))
(defrule note (page (title ?title)) (test (like ?title "%7x")) => (assert (mood)))
(defrule no (request (url ?url)) (mood) => (refuse ?url))
"""
HIDDEN = {f"{SITE}/{n}" for n in range(COUNT) if n % 3}
PAGES = pages(COUNT)


async def checked(checking: Checking, count: int = 13) -> Report:
    async with Engines(is_jailed=False) as engines:
        return await replace(checking, engines=engines, later=0.0).run(count)


@pytest.mark.parametrize("rules", [ASKING, PRUDENT, COUNTING, MOODY])
async def test_honest_host_was_refused_what_is_refused_here(rules: str) -> None:
    report = await checked(Checking(web_of(PAGES), visit=ruled_visit(rules)), count=60)
    assert not report.bad
    assert not any("refused" in each.detail for each in report.findings)


@pytest.mark.parametrize("seed", range(3))
async def test_host_that_says_rules_refuse_what_they_admit_lies(seed: int) -> None:
    tamper = hiding("done", HIDDEN)
    report = await checked(Checking(web_of(PAGES), tamper=tamper, visit=ruled_visit(ASKING), seed=seed))
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]
    assert "refused by rules, which admit it here; so it is with" in report.bad[0].detail
    assert report.usage.requests <= 2 * 13 + 2 * MOST_EXCUSES


async def test_rules_that_remember_are_asked_in_the_state_around_the_parcel() -> None:
    rules = COUNTING.replace("20", "1000")  # so that they refuse nothing
    tamper = hiding("done", HIDDEN)
    report = await checked(Checking(web_of(PAGES), tamper=tamper, visit=ruled_visit(rules)))
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]


async def test_few_urls_that_are_admitted_here_are_no_lie() -> None:
    tamper = hiding("done", {f"{SITE}/{n}" for n in range(4)})
    report = await checked(Checking(web_of(PAGES), tamper=tamper, visit=ruled_visit(ASKING)))
    assert not report.bad
    assert sum(each.verdict is Judgement.UNFOUNDED for each in report.findings) == 4


async def test_host_that_brings_no_page_at_all_is_asked_about_what_it_refused() -> None:
    def hide(parcels: list[Parcel]) -> list[Parcel]:
        return hiding("done", {page.url for parcel in parcels for page in parcel.pages})(parcels)

    report = await checked(Checking(web_of(PAGES), tamper=hide, visit=ruled_visit(ASKING)))
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]


async def test_pages_that_cannot_be_fetched_from_here_prove_nothing_and_cost_little() -> None:
    site = FakeWeb({"/": reply(body=PAGES["/"])})
    visit = ruled_visit(ASKING)
    checking = Checking(site, at_host=web_of(PAGES), tamper=hiding("done", HIDDEN), visit=visit)
    report = await checked(checking, count=1)
    assert not any("refused" in each.detail for each in report.findings)
    assert report.usage.requests <= MOST_REQUESTS + 10


async def test_pages_of_a_crawler_with_rules_that_a_host_never_mentions_are_omitted() -> None:
    gone = {f"{SITE}/{n}" for n in range(0, COUNT, 3)}

    def drop(page: Page) -> Page | None:
        return None if page.url in gone else page

    visit = ruled_visit("(defrule keep (page) => (keep))")
    report = await checked(Checking(web_of(PAGES), tamper=each_page(drop), visit=visit))
    assert {each.verdict for each in report.bad} == {Judgement.OMITTED}
    assert {each.url for each in report.bad} <= gone


async def test_links_that_rules_do_not_follow_are_not_omitted() -> None:
    rules = '(defrule some (page) => (follow-none)) (defrule one (page (url ?u)) => (follow "/1"))'
    report = await checked(Checking(web_of(PAGES), visit=ruled_visit(rules)), count=60)
    assert not report.bad
