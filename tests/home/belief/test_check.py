"""The check of a visit: samples are read from here by the real runtime, in virtual time."""

import asyncio
import gzip
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace
from tests.home.belief.lying_sites import (
    OFFER,
    Changing,
    Checking,
    Cloaking,
    body,
    each_page,
    falsified,
    pages,
    web_of,
)
from tests.runtime.fakes import SITE, FakeWeb, linking, polite, reply, rules, run, visit_of

from sterna.home.belief.check import BROWSER, MOST_SECOND_LOOKS, Report
from sterna.model import (
    Budget,
    Crawler,
    Keep,
    Known,
    Link,
    Links,
    Page,
    Parcel,
    Predicate,
    Program,
    Scope,
    Selector,
    Target,
    Validator,
)
from sterna.trust.judgement import Judgement
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint


def verdicts(report: Report) -> Counter[str]:
    return Counter(each.verdict for each in report.findings)


def paths(report: Report, verdict: Judgement) -> set[str]:
    return {each.url.removeprefix(SITE) for each in report.findings if each.verdict is verdict}


def crawler(**fields: object) -> Crawler:
    return Crawler(scope=Scope(), program=Program(**fields))  # type: ignore[arg-type]


def large(words: str = "") -> dict[str, str]:
    """A site of three pages that are kept as sketches."""
    return {
        path: text.replace("</p>", f"{' tern' * 100_000} {words if path == '/1' else ''}</p>")
        for path, text in pages(2).items()
    }


# -- honest hosts ----------------------------------------------------------------------------------------


def test_honest_host_of_a_still_site_is_found_true() -> None:
    report = run(Checking(web_of(pages())).run())
    assert verdicts(report) == {Judgement.SAME: 41}
    assert report.good == report.seen == 41


@pytest.mark.parametrize(
    "program",
    [
        {"keep": Keep(fields=("title",)), "needs": ("title",)},
        {"keep": Keep(fields=("links",)), "needs": ("links",)},
        {"keep": Keep(fields=("text", "html"), share=0.3), "needs": ("text", "html", "links")},
        {"keep": Keep(fields=("title", "keywords", "headings", "description", "language", "headers"))},
        {"keep": Keep(fields=("title",), selectors=(Selector("first", "p"),)), "needs": ("title", "links")},
        {"select": Predicate("contains", "text", ("p3x7",)), "keep": Keep(fields=("title", "text", "links"))},
        {"select": Predicate("<", "depth", (1,))},
    ],
)
def test_honest_host_is_found_true_whatever_the_crawler_keeps(program: dict[str, object]) -> None:
    needs = ("title", "text", "language", "links", "keywords", "headings", "description")
    visit = visit_of(crawler=crawler(**({"needs": needs} | program)))
    report = run(Checking(web_of(pages()), visit=visit).run())
    assert verdicts(report) == {Judgement.SAME: 41}


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_honest_host_of_enormous_pages_is_found_true(share: float) -> None:
    program = {
        "keep": Keep(fields=("text", "html", "links"), share=share),
        "needs": ("text", "html", "links"),
    }
    report = run(Checking(web_of(large()), visit=visit_of(crawler=crawler(**program))).run())
    assert verdicts(report) == {Judgement.SAME: 3}


def test_honest_host_of_pages_that_change_at_each_request_is_found_true() -> None:
    report = run(Checking(Changing(pages(), new=2)).run())
    assert not report.bad
    assert verdicts(report)[Judgement.ALIKE] == MOST_SECOND_LOOKS  # so many were read twice


def test_site_that_changed_altogether_meanwhile_is_not_its_hosts_fault() -> None:
    before = web_of(pages(), modified="")
    after = web_of({path: body(f"new{n}") for n, path in enumerate(pages())}, modified="")
    report = run(Checking(after, at_host=before, later=3600.0).run())
    assert not report.bad
    assert report.good == 0


def test_page_that_was_edited_meanwhile_is_not_its_hosts_fault() -> None:
    edited = pages() | {"/7": body("edited")}
    now = FakeWeb(
        {
            path: reply(body=text, last_modified="Mon, 12 Jan 1970 13:46:42 GMT")
            for path, text in edited.items()
        }
    )
    report = run(Checking(now, at_host=web_of(pages())).run())
    assert verdicts(report) == {Judgement.SAME: 40, Judgement.CHANGED: 1}


def test_one_page_that_is_all_new_is_no_proof() -> None:
    report = run(Checking(web_of(pages() | {"/7": body("new")}, modified=""), at_host=web_of(pages())).run())
    assert verdicts(report) == {Judgement.SAME: 40, Judgement.DOUBTFUL: 1}
    assert not report.bad


def test_redirects_and_missing_pages_are_found_true() -> None:
    script = {path: reply(body=text) for path, text in pages(4).items()}
    script["/"] = linking("/0", "/1", "/2", "/3", "/moved", "/nowhere")
    script["/moved"] = reply(301, location="/0")
    report = run(Checking(FakeWeb(script)).run())
    assert verdicts(report) == {Judgement.SAME: 7}


def test_page_that_robots_txt_forbids_is_not_asked_for() -> None:
    site = FakeWeb(
        {
            "/robots.txt": rules("User-agent: *\nDisallow: /7"),
            **{path: reply(body=text) for path, text in pages(9).items()},
        }
    )
    report = run(Checking(site).run())
    assert "/7" not in site.paths()
    assert not report.bad
    assert site.times("/robots.txt") == [0.0, 5.0]  # once by the host, once by the check


def test_closed_page_is_the_owners_affair() -> None:
    def closed(page: Page) -> Page:
        return falsified(page, status=0, error="refused", digest=b"") if page.url.endswith("/7") else page

    assert not run(Checking(web_of(pages()), tamper=each_page(closed)).run()).bad


def test_pages_that_are_unchanged_are_asked_for_by_their_validators() -> None:
    texts = pages(9)
    script = {
        path: [reply(body=text, etag=f'"{path}"'), reply(304, etag=f'"{path}"')]
        for path, text in texts.items()
    }
    validators = tuple(
        Validator(fingerprint(SITE + path), f'"{path}"', "", digest_of(text.encode()))
        for path, text in texts.items()
    )
    visit = visit_of(*texts, known=Known(validators=validators))
    site = FakeWeb(script)
    report = run(Checking(site, at_host=web_of(texts), visit=visit).run())
    assert verdicts(report) == {Judgement.SAME: 10}
    conditions = [dict(sent.request.headers).get("If-None-Match") for sent in site.log]
    assert sum(each is not None for each in conditions) == 10


# -- lies ------------------------------------------------------------------------------------------------


def test_altered_page_is_found_by_its_digest() -> None:
    lies = pages() | {"/7": body("p7x", "/8", "/9", words="pills")}
    report = run(Checking(web_of(pages()), at_host=web_of(lies)).run())
    assert paths(report, Judgement.ALTERED) == {"/7"}
    assert report.good == 40


@pytest.mark.parametrize(
    "lie", [{"title": "Pills"}, {"text": "pills"}, {"links": Links.of(Link("https://b.example/"))}]
)
def test_altered_page_with_the_right_digest_is_found_by_what_it_says(lie: dict[str, object]) -> None:
    def falsify(page: Page) -> Page:
        return falsified(page, **lie) if page.url.endswith("/7") else page

    report = run(Checking(web_of(pages()), tamper=each_page(falsify)).run())
    assert paths(report, Judgement.ALTERED) == {"/7"}


def test_altered_pages_of_a_site_without_dates_are_found_where_there_are_two() -> None:
    lies = pages() | {"/7": body("pills"), "/8": body("more pills")}
    report = run(Checking(web_of(pages(), modified=""), at_host=web_of(lies)).run())
    assert paths(report, Judgement.ALTERED) == {"/7", "/8"}


def test_altered_pages_are_found_where_every_page_changes_at_each_request() -> None:
    lies = {path: body(f"pills{n}x", f"/{n}") for n, path in enumerate(pages())}
    report = run(Checking(Changing(pages()), at_host=web_of(lies)).run())
    assert len(report.bad) == MOST_SECOND_LOOKS


def test_invented_pages_are_found() -> None:
    lies = pages() | {"/": body("front", *(f"/{n}" for n in range(40)), "/pills"), "/pills": body("pills")}
    report = run(Checking(web_of(pages()), at_host=web_of(lies)).run())
    assert paths(report, Judgement.INVENTED) == {"/pills"}
    assert paths(report, Judgement.ALTERED) == {"/"}


@pytest.mark.parametrize("claim", [{"status": 404}, {"status": 0, "error": "robots"}])
def test_page_that_is_said_not_to_be_there_is_found(claim: dict[str, object]) -> None:
    def hide(page: Page) -> Page:
        if not page.url.endswith("/7"):
            return page
        return falsified(page, **claim, digest=b"", text="", title="", links=Links())

    report = run(Checking(web_of(pages()), tamper=each_page(hide)).run())
    assert paths(report, Judgement.MISSING) == {"/7"}


def test_page_that_is_dropped_is_found_by_the_links_that_lead_there() -> None:
    def drop(page: Page) -> Page | None:
        return None if page.url.endswith("/7") else page

    report = run(Checking(web_of(pages()), tamper=each_page(drop)).run())
    assert paths(report, Judgement.OMITTED) == {"/7"}
    assert len(report.bad) == 1


def test_page_that_is_dropped_with_its_links_is_found_by_what_led_there() -> None:
    def drop(page: Page) -> Page | None:
        if page.url.endswith("/7"):
            return None
        left = Links.of(*(link for link in page.links if not link.url.endswith("/7")))
        return falsified(page, links=left)

    report = run(Checking(web_of(pages()), tamper=each_page(drop)).run())
    assert paths(report, Judgement.ALTERED) == {"/", "/5", "/6"}


def test_start_of_which_a_finished_visit_says_nothing_is_found_if_it_is_there() -> None:
    def drop(page: Page) -> Page | None:
        return None if page.url.endswith(("/7", "/gone")) else page

    starts = (*pages(), "/gone")
    report = run(Checking(web_of(pages()), tamper=each_page(drop), visit=visit_of(*starts)).run())
    assert paths(report, Judgement.OMITTED) == {"/7"}
    assert paths(report, Judgement.UNSEEN) == {"/gone"}


def test_url_that_home_knew_is_not_missed() -> None:
    done = Known(fingerprint(f"{SITE}/7").to_bytes(8, "little", signed=True))
    report = run(Checking(web_of(pages()), visit=visit_of("/", known=done)).run())
    assert verdicts(report) == {Judgement.SAME: 40}


def test_visit_that_was_not_seen_from_its_beginning_is_not_asked_for_omissions() -> None:
    def second_half(parcels: list[Parcel]) -> list[Parcel]:
        last = parcels[-1]
        return [replace(last, pages=last.pages[20:], checkpoint=replace(last.checkpoint, found=()))]

    checking = Checking(web_of(pages()), tamper=second_half)
    assert not run(checking.run(is_whole=False)).bad


def test_page_that_the_crawler_wants_and_its_host_keeps_back_is_found() -> None:
    def keep_back(page: Page) -> Page:
        return falsified(page, is_kept=False, text="", title="", links=Links())

    select = Predicate("contains", "text", ("p7x3",))
    visit = visit_of(crawler=crawler(select=select))
    report = run(Checking(web_of(pages()), tamper=each_page(keep_back), visit=visit).run())
    assert paths(report, Judgement.MISSING) == {"/7"}


# -- browsers --------------------------------------------------------------------------------------------


def test_site_that_shows_browsers_something_else_is_found_by_a_strict_check() -> None:
    to_browsers = pages() | {"/7": body("casino"), "/8": body("roulette")}
    report = run(Checking(Cloaking(pages(), to_browsers)).run(is_strict=True))
    assert paths(report, Judgement.CLOAKED) == {"/7", "/8"}
    assert report.good == 39


def test_site_that_greets_browsers_in_a_few_words_does_not_cloak() -> None:
    to_browsers = {path: text.replace("</p>", " welcome back</p>") for path, text in pages().items()}
    assert not run(Checking(Cloaking(pages(), to_browsers)).run(is_strict=True)).bad


def test_nobody_pretends_to_be_a_browser_unless_the_user_asks_for_it() -> None:
    site = web_of(pages(3))
    run(Checking(site).run())
    assert not any(dict(sent.request.headers)["User-Agent"] == BROWSER for sent in site.log)


# -- manners ---------------------------------------------------------------------------------------------


def test_samples_keep_the_sites_delay_and_are_counted() -> None:
    site = web_of(pages())
    visit = visit_of(etiquette=polite(delay_seconds=2.0))
    checking = Checking(site, at_host=web_of(pages()), visit=visit)
    report = run(checking.run(count=5))
    times = [sent.time for sent in site.log]
    assert len(times) == report.usage.requests == 6  # robots.txt and five pages
    assert min(later - earlier for earlier, later in pairwise(times)) >= 2.0
    assert report.usage.bytes_received > 0


def test_check_reads_no_more_than_it_was_told_to() -> None:
    site = web_of(pages())
    assert len(run(Checking(site, at_host=web_of(pages())).run(count=13)).findings) == 13
    assert len(site.paths()) == 13


def test_site_that_is_out_of_reach_tells_nothing() -> None:
    report = run(Checking(FakeWeb({"/robots.txt": reply(503)}), at_host=web_of(pages())).run(count=3))
    assert verdicts(report) == {Judgement.UNSEEN: 3}
    assert report.seen == 0


def test_other_seed_checks_other_pages() -> None:
    first, second = (
        {each.url for each in run(Checking(web_of(pages()), seed=seed).run(count=5)).findings}
        for seed in (1, 2)
    )
    assert first != second


def test_host_of_another_version_may_read_a_little_otherwise() -> None:
    def read_otherwise(page: Page) -> Page:
        return falsified(page, text=f"{page.text} more")

    checking = Checking(web_of(pages()), tamper=each_page(read_otherwise))
    other = replace(OFFER, platform={"sterna": "0.0.1"})
    assert not run(checking.run(offer=other)).bad
    assert len(run(Checking(web_of(pages()), tamper=each_page(read_otherwise)).run()).bad) == 41


def test_visit_without_pages_is_not_checked() -> None:
    def nothing(parcels: list[Parcel]) -> list[Parcel]:
        return []

    site = web_of(pages())
    checking = Checking(site, at_host=web_of(pages()), tamper=nothing)
    assert run(checking.run()).findings == ()
    assert not site.log


def test_stop_ends_a_check_soon() -> None:
    async def stopped() -> tuple[Report, float]:
        from random import Random  # noqa: PLC0415

        from tests.runtime.fakes import VirtualClock, make_kit  # noqa: PLC0415

        from sterna.home.belief.check import Check  # noqa: PLC0415
        from sterna.runtime.runtime import Runtime  # noqa: PLC0415
        from sterna.trust.sampling import Witness  # noqa: PLC0415

        visit = visit_of(etiquette=polite(delay_seconds=3.0))
        witness = Witness(Random(1))
        for parcel in await Checking(web_of(pages(9)), visit=visit_of()).told():
            witness.see(parcel)
        stop = asyncio.Event()
        stop.set()
        began = asyncio.get_running_loop().time()
        here = Runtime(make_kit(web_of(pages(9))))
        report = await Check(visit, witness, OFFER, here=here, clock=VirtualClock()).run(10, stop)
        return report, asyncio.get_running_loop().time() - began

    report, seconds = run(stopped())
    assert seconds < 12.0
    assert 0 < report.seen < 10
    assert not report.bad


def test_invented_page_is_found_hours_later_by_the_page_that_does_not_lead_there() -> None:
    def add(parcels: list[Parcel]) -> list[Parcel]:
        *first, last = parcels
        url = f"{SITE}/pills"
        more = replace(last.pages[1], url=url, fingerprint=fingerprint(url), referrer=f"{SITE}/")
        return [*first, replace(last, pages=(*last.pages, more))]

    assert paths(run(Checking(web_of(pages()), tamper=add, later=9_000.0).run()), Judgement.INVENTED) == {
        "/pills"
    }
    deleted = pages(9) | {"/": body("front", *(f"/{n}" for n in range(9)), "/pills")}
    before = web_of(deleted | {"/pills": body("pills")})
    assert not run(Checking(web_of(deleted), at_host=before, later=9_000.0).run()).bad


def test_site_that_wants_long_pauses_is_checked_by_fewer_pages() -> None:
    site = FakeWeb(
        {
            "/robots.txt": rules("User-agent: *\nCrawl-delay: 60"),
            **{path: reply(body=text) for path, text in pages().items()},
        }
    )
    visit = visit_of(etiquette=polite(delay_seconds=1.0, max_delay_seconds=60.0))
    report = run(Checking(site, at_host=web_of(pages()), visit=visit).run())
    assert 5 <= report.seen <= 11
    assert report.late == len(report.findings) - report.seen


def known_site(texts: dict[str, str], *, budget_depth: int) -> Checking:
    """A refresh of pages that are all known, and of which the last is not come by: it lies too deep."""
    validators = tuple(
        Validator(fingerprint(SITE + path), "", "", digest_of(text.encode())) for path, text in texts.items()
    )
    starts = tuple(Target(SITE + path, depth=min(n, 2)) for n, path in enumerate(texts))
    visit = visit_of(*starts, known=Known(validators=validators), budget=Budget(depth=budget_depth))
    last = list(texts)[-1]

    def leave_out(page: Page) -> Page | None:
        return None if page.url.endswith(last) else replace(page, is_unchanged=False, status=200)

    return Checking(web_of(texts), tamper=each_page(leave_out), visit=visit)


def test_known_page_that_lay_too_deep_is_not_missed() -> None:
    texts = {"/": body("front", "/a"), "/a": body("a"), "/b": body("b", "/c"), "/c": body("c")}
    checking = known_site(texts, budget_depth=2)
    checking.visit = replace(checking.visit, starts=checking.visit.starts[:-1])  # it was not given by name
    assert not run(checking.run()).bad


def test_known_page_that_a_finished_visit_passed_and_does_not_mention_is_missed() -> None:
    texts = {"/": body("front", "/a"), "/a": body("a"), "/b": body("b", "/c"), "/c": body("c")}
    checking = known_site(texts, budget_depth=9)
    checking.visit = replace(checking.visit, starts=checking.visit.starts[:-1])
    assert paths(run(checking.run()), Judgement.OMITTED) == {"/c"}


# -- large pages and raw responses -----------------------------------------------------------------------


def test_text_of_an_enormous_page_that_was_altered_is_found() -> None:
    def altered(page: Page) -> Page:
        return falsified(page, text=page.text + " pills") if page.url == f"{SITE}/1" else page

    report = run(Checking(web_of(large()), tamper=each_page(altered)).run())
    assert paths(report, Judgement.ALTERED) == {"/1"}


def test_enormous_page_that_was_edited_meanwhile_is_not_its_hosts_fault() -> None:
    report = run(Checking(web_of(large("edited"), modified=""), at_host=web_of(large(), modified="")).run())
    assert verdicts(report) == {Judgement.SAME: 2, Judgement.CHANGED: 1}


@pytest.mark.parametrize(
    ("head", "encode", "is_found"),
    [
        (b"", bytes, False),
        (b"", lambda body: body + b" pills", True),
        (b"Content-Encoding: gzip\r\n", gzip.compress, False),
        (b"content-encoding: gzip\r\n", lambda body: gzip.compress(body + b" pills"), True),
        (b"content-encoding: gzip\r\n", bytes, False),  # unreadable for a reader too
    ],
)
def test_raw_response_must_be_what_the_digest_is_of(
    head: bytes, encode: Callable[[bytes], bytes], is_found: bool
) -> None:
    def recoded(page: Page) -> Page:
        if page.raw is None:
            return page
        body = encode(page.raw.body)
        return falsified(page, raw=replace(page.raw, response_head=b"HTTP/1.1 200 OK\r\n" + head, body=body))

    visit = visit_of(crawler=replace(crawler(), keeps_raw=True))
    report = run(Checking(web_of(pages(3)), visit=visit, tamper=each_page(recoded)).run())
    assert verdicts(report) == {Judgement.ALTERED if is_found else Judgement.SAME: 4}
    assert all("raw response" in each.detail for each in report.bad)
