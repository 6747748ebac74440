"""Hosts that leave pages out and have a reason: every reason is a claim, and claims are sampled."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace
from tests.home.belief.lying_sites import (
    ASKING,
    HIDING,
    Checking,
    body,
    each_page,
    hiding,
    pages,
    ruled_visit,
    web_of,
)
from tests.runtime.fakes import SITE, FakeWeb, Step, linking, reply, run, visit_of

from sterna.errors import FetchError, WireError
from sterna.home.belief.check import Report
from sterna.model import Ended, Link, Links, Page, Parcel, Target
from sterna.runtime.engine.client import Engines
from sterna.trust.judgement import Judgement
from sterna.trust.sampling import MOST_BLOCKED, MOST_EXCUSES, MOST_LATE

COUNT = 200


def verdicts(report: Report) -> Counter[str]:
    return Counter(each.verdict for each in report.findings)


def most(count: int) -> set[str]:
    return {f"{SITE}/{n}" for n in Random(1).sample(range(COUNT - 1), count)}


@pytest.mark.parametrize("way", HIDING)
def test_host_that_hides_most_of_its_pages_is_found_out_whatever_its_reason(way: str) -> None:
    checking = Checking(web_of(pages(COUNT - 1)), tamper=hiding(way, most(159)))
    try:
        report = run(checking.run(13))
    except WireError as error:
        assert way in ("done", "is_kept")
        assert "without a page" in str(error) or "keeps every page" in str(error)
    else:
        assert [each.verdict for each in report.bad] == [Judgement.MISSING]  # together they count once
        assert "more of" in report.bad[0].detail


@pytest.mark.parametrize("way", ["timeout", "too_large", "http_500"])
def test_few_pages_that_failed_at_a_host_are_no_lie(way: str) -> None:
    report = run(Checking(web_of(pages()), tamper=hiding(way, {f"{SITE}/{n}" for n in range(4)})).run())
    assert not report.bad
    assert verdicts(report) == {Judgement.SAME: 37, Judgement.UNFOUNDED: 4}


def test_pages_that_fail_from_here_too_speak_for_their_host() -> None:
    failing: dict[str, Step | Sequence[Step]] = {f"/{n}": reply(500) for n in range(0, 40, 5)}
    script = {path: reply(body=text) for path, text in pages().items()} | failing
    report = run(Checking(FakeWeb(script)).run())
    assert verdicts(report) == {Judgement.SAME: 33, Judgement.FOUNDED: 8}


def test_site_that_is_not_steady_from_here_either_may_fail_its_host() -> None:
    """Some pages fail at first: the host gave others up, and the check had to try again."""
    script: dict[str, Step | Sequence[Step]] = {path: reply(body=text) for path, text in pages().items()}
    for n in range(0, 40, 4):
        script[f"/{n}"] = (FetchError("timeout"), reply(body=pages()[f"/{n}"]))
    tamper = hiding("timeout", {f"{SITE}/{n}" for n in range(1, 24, 4)})
    report = run(Checking(FakeWeb(script), at_host=web_of(pages()), tamper=tamper).run())
    assert not report.bad
    assert verdicts(report) == {Judgement.SAME: 35, Judgement.UNFOUNDED: 6}


def test_site_that_is_not_quite_steady_does_not_explain_that_half_of_it_is_missing() -> None:
    script: dict[str, Step | Sequence[Step]] = {path: reply(body=text) for path, text in pages().items()}
    for n in range(0, 40, 8):
        script[f"/{n}"] = (FetchError("timeout"), reply(body=pages()[f"/{n}"]))
    tamper = hiding("timeout", {f"{SITE}/{n}" for n in range(1, 40, 2)})
    report = run(Checking(FakeWeb(script), at_host=web_of(pages()), tamper=tamper).run())
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]


@pytest.mark.parametrize("is_at_host", [True, False], ids=["at both ends", "only to outsiders"])
@pytest.mark.parametrize("seed", range(3))
def test_few_pages_that_really_fail_mask_no_others(is_at_host: bool, seed: int) -> None:
    """A host controls its site: 6 % of it answer 500, and 40 % are hidden."""
    good = {path: reply(body=text) for path, text in pages(COUNT - 1).items()}
    failing = good | {f"/{n}": reply(500) for n in range(0, 195, 16)}
    hidden = {f"{SITE}/{n}" for n in range(COUNT - 1) if n % 5 in (1, 2) and n % 16}
    at_host, tamper = FakeWeb({**(failing if is_at_host else good)}), hiding("timeout", hidden)
    report = run(Checking(FakeWeb({**failing}), at_host=at_host, tamper=tamper, seed=seed).run(30))
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]


def test_few_pages_that_failed_only_at_the_host_are_no_lie_where_more_fail_at_both_ends() -> None:
    good = {path: reply(body=text) for path, text in pages().items()}
    at_host = FakeWeb(good | {f"/{n}": reply(500) for n in range(0, 40, 3)})
    now = FakeWeb(good | {f"/{n}": reply(500) for n in range(0, 24, 3)})
    report = run(Checking(now, at_host=at_host).run())
    assert verdicts(report) == {Judgement.SAME: 27, Judgement.FOUNDED: 8, Judgement.UNFOUNDED: 6}


@pytest.mark.parametrize("kind", ["gone", "large"])
def test_reasons_that_are_no_trouble_of_the_site_mask_no_others(kind: str) -> None:
    """A host may lead to pages that are not there, and publish large ones, as many as it likes."""
    script: dict[str, Step | Sequence[Step]] = {path: reply(body=text) for path, text in pages(80).items()}
    for n in range(40):
        large = reply(body=body(f"p{n}", words="word " * 300_000))
        script[f"/{n}"] = reply(404) if kind == "gone" else large
    said = hiding("timeout" if kind == "gone" else "too_large", {f"{SITE}/{n}" for n in range(40)})
    hidden = hiding("timeout", {f"{SITE}/{n}" for n in range(40, 80) if n % 4})
    report = run(Checking(FakeWeb(script), tamper=lambda parcels: hidden(said(parcels))).run())
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]


async def test_sixth_way_to_hide_pages_is_that_rules_refuse_them() -> None:
    async with Engines(is_jailed=False) as engines:
        checking = Checking(
            web_of(pages(COUNT - 1)),
            tamper=hiding("done", most(159)),
            visit=ruled_visit(ASKING),
            later=0.0,
            engines=engines,
        )
        report = await checking.run(13)
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]


def test_large_page_may_be_too_large_for_its_host() -> None:
    large = {path: body(path.strip("/") or "front", words="word " * 300_000) for path in ("/0", "/1")}
    site = {"/": linking("/0", "/1")} | {path: reply(body=text) for path, text in large.items()}
    report = run(Checking(FakeWeb(site), tamper=hiding("too_large", {SITE + path for path in large})).run())
    assert verdicts(report) == {Judgement.SAME: 1, Judgement.FOUNDED: 2}


def test_few_urls_are_put_off_without_being_tried() -> None:
    urls = {f"{SITE}/{n}" for n in range(MOST_LATE)}
    report = run(Checking(web_of(pages()), tamper=hiding("again", urls)).run())
    assert verdicts(report) == {Judgement.SAME: 41 - MOST_LATE}


def test_visit_with_many_connections_may_put_off_one_for_each_when_its_site_asks_for_a_pause() -> None:
    def blocked(parcels: list[Parcel]) -> list[Parcel]:
        *first, last = hiding("again", {f"{SITE}/{n}" for n in range(MOST_BLOCKED)})(parcels)
        return [*first, replace(last, ended=Ended.BLOCKED)]

    report = run(Checking(web_of(pages(100)), tamper=blocked).run())
    assert verdicts(report) == {Judgement.SAME: 101 - MOST_BLOCKED}


def test_urls_that_are_put_off_again_and_again_are_tried() -> None:
    urls = {f"{SITE}/{n}" for n in range(6)}
    starts = (Target(f"{SITE}/"), *(Target(url, 1, attempts=2) for url in sorted(urls)))
    visit = replace(visit_of(), starts=starts)
    report = run(Checking(web_of(pages()), tamper=hiding("again", urls), visit=visit).run())
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]


def test_pages_that_a_host_takes_for_sitemaps_are_tried() -> None:
    urls = {f"{SITE}/{n}" for n in range(8)}

    def as_sitemaps(parcels: list[Parcel]) -> list[Parcel]:
        parcels = hiding("done", urls)(parcels)
        kinds = {True: "sitemap", False: "page"}
        return [
            replace(
                parcel,
                checkpoint=replace(
                    parcel.checkpoint,
                    found=tuple(
                        replace(each, kind=kinds[each.url in urls]) for each in parcel.checkpoint.found
                    ),
                ),
            )
            for parcel in parcels
        ]

    report = run(Checking(web_of(pages()), tamper=as_sitemaps).run())
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]


def test_more_excuses_are_tried_only_if_one_is_unfounded() -> None:
    hidden = most(50)
    report = run(Checking(web_of(pages(COUNT - 1)), tamper=hiding("timeout", hidden)).run(8))
    tried = [each for each in report.findings if "timeout" in each.detail]
    assert MOST_EXCUSES <= len(tried) < 8 + MOST_EXCUSES
    honest = run(Checking(web_of(pages(COUNT - 1))).run(8))
    assert len(honest.findings) == 8


def test_start_page_that_moved_to_another_site_is_always_checked() -> None:
    def move(page: Page) -> Page:
        if page.url != f"{SITE}/":
            return page
        return replace(page, status=301, links=Links.of(Link("https://evil.example/")), digest=b"")

    for seed in range(3):
        report = run(Checking(web_of(pages()), tamper=each_page(move), seed=seed).run(1))
        assert f"{SITE}/" in {each.url for each in report.findings}
