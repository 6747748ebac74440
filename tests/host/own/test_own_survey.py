"""Surveys of the own site: what they read again, what stays hidden, and what cuts them off."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.host.knocking import until
from tests.host.own.own_pages import (
    BUSY_OR_NOT,
    DAY,
    NOW,
    OTHER,
    TEXT,
    Site,
    changes,
    date,
    listed,
    owner_of,
)

from sterna.errors import StorageError, UsageError
from sterna.host.files import Database
from sterna.host.own.index import NAME, Survey
from sterna.host.own.keeper import due_at
from sterna.host.own.survey import WHOLE_SECONDS
from sterna.host.owner.control import Doors
from sterna.host.policy.load import LoadMeter, MachineTimes
from sterna.host.policy.policy import LoadRules, Policy


def site_of_pages(count: int = 5) -> Site:
    site = Site()
    site.put("/", "".join(f'<a href="/{n}">{n}</a>' for n in range(count)))
    for n in range(count):
        site.put(
            f"/{n}",
            f"<title>Page {n}</title><p>{TEXT} number {n}",
            etag=f'"{n}"',
            last_modified=date(NOW - DAY),
        )
    return site


async def test_second_survey_reads_only_what_changed(tmp_path: Path) -> None:
    site = site_of_pages()
    async with owner_of(site, tmp_path) as owner:
        first = await owner.survey()
        assert (first.is_over, first.survey.pages, first.why, first.left) == (True, 6, "", 0)
        assert sorted(listed(tmp_path)) == ["/", "/0", "/1", "/2", "/3", "/4"]
        site.put("/1", f"<title>Page 1</title>{OTHER}", etag='"new"', last_modified=date(NOW + DAY))
        site.put("/", site.bodies["/"] + '<a href="/new">new</a>')
        site.put("/new", "<title>New</title>fresh")
        del site.bodies["/2"]
        site.headers["/3"] = {"etag": '"touched"', "last-modified": date(NOW + DAY)}
        second = await owner.survey(after=2 * DAY)
        assert set(site.conditional) == {f"/{n}" for n in range(5)}
        assert (second.survey.created, second.survey.updated, second.survey.deleted) == (1, 2, 0)
        third = await owner.survey(after=DAY)
        assert (third.survey.created, third.survey.updated, third.survey.deleted) == (0, 0, 1)
    lists = listed(tmp_path)
    assert (lists["/1"], lists["/3"], lists["/new"]) == (NOW + DAY, NOW - DAY, NOW + 2 * DAY)
    assert "/2" not in lists


async def test_what_its_owner_does_not_show_is_nowhere(tmp_path: Path) -> None:
    site = Site()
    site.put("/robots.txt", "User-agent: *\nDisallow: /private\n\nUser-agent: Sterna\nAllow: /\n")
    paths = (
        "/private",
        "/closed/a",
        "/CLOSED/b",
        "/noindex",
        "/header",
        "/nofollow",
        "/open",
        "/server-status",
    )
    site.put("/", "".join(f'<a href="{path}">x</a>' for path in paths))
    for path in paths:
        site.put(path, f"<title>{path}</title>{TEXT}")
    site.put("/noindex", '<meta name="robots" content="noindex">x')
    site.put("/header", "x", x_robots_tag="noindex")
    site.put("/nofollow", '<meta name="robots" content="nofollow"><a href="/behind">x</a>')
    site.put("/open", '<a rel="nofollow" href="/behind">x</a>')
    site.put("/behind", "x")
    policy = replace(BUSY_OR_NOT, closed=("/closed",))
    async with owner_of(site, tmp_path, policy) as owner:
        await owner.survey()
        assert sorted(listed(tmp_path)) == ["/", "/nofollow", "/open"]
        assert not {"/private", "/closed/a", "/CLOSED/b", "/behind", "/server-status"} & set(site.asked)
        site.put("/robots.txt", "User-agent: *\nDisallow: /open\n")
        site.headers["/nofollow"] = {"x-robots-tag": "none"}
        await owner.survey(after=2 * DAY)
    assert sorted(listed(tmp_path)) == ["/", "/private"]
    assert [path for _, path, _ in changes(tmp_path)] == ["/private"]


async def test_deleted_page_that_would_be_hidden_now_is_told_no_more(tmp_path: Path) -> None:
    site = site_of_pages(3)
    policy_file = tmp_path / "policy.toml"
    policy_file.write_text("[load]\nmachine = 0\n")
    async with owner_of(site, tmp_path, policy_file=policy_file) as owner:
        await owner.survey()
        site.statuses = {f"/{n}": 410 for n in range(3)}
        await owner.survey(after=DAY)
        assert sorted(path for kind, path, _ in changes(tmp_path) if kind == "deleted") == ["/0", "/1", "/2"]
        site.put("/robots.txt", "User-agent: *\nDisallow: /1\n")
        policy_file.write_text('closed = ["/2"]\n[load]\nmachine = 0\n')
    async with owner_of(site, tmp_path, policy_file=policy_file) as owner:  # which looks at once
        await owner.survey(after=4 * DAY)
    assert [path for kind, path, _ in changes(tmp_path) if kind == "deleted"] == ["/0"]
    assert {path for _, path, _ in changes(tmp_path)} == {"/0"}


async def test_server_that_answers_unchanged_is_read_whole_now_and_then(tmp_path: Path) -> None:
    site = site_of_pages(1)
    async with owner_of(site, tmp_path) as owner:
        await owner.survey()
        site.headers["/0"]["etag"] = '"0"'
        site.bodies["/0"] = '<meta name="robots" content="noindex">'  # under the same ETag
        await owner.survey(after=DAY)
        assert "/0" in listed(tmp_path)
        await owner.survey(after=WHOLE_SECONDS)
        assert "/0" not in listed(tmp_path)


async def test_anew_reads_every_page(tmp_path: Path) -> None:
    site = site_of_pages(2)
    async with owner_of(site, tmp_path) as owner:
        await owner.survey()
        await owner.survey(after=DAY, is_anew=True)
    assert site.conditional == []


async def test_survey_that_was_stopped_goes_on_and_reads_nothing_twice(tmp_path: Path) -> None:
    site = site_of_pages(30)
    async with owner_of(site, tmp_path) as owner:
        first = await owner.survey(max_pages=30)
        assert first.why == "the limit of 30 pages is reached"
        assert (first.is_over, first.survey.is_whole) == (True, False)
    (tmp_path / NAME).unlink()
    site.asked.clear()
    async with owner_of(site, tmp_path) as owner:
        site.pause.clear()
        running = asyncio.create_task(owner.survey())
        await until(lambda: len(site.asked) >= 2)
        owner.stop.set()
        await asyncio.sleep(0.05)
        site.pause.set()
        cut = await running
        assert (cut.is_over, cut.why) == (False, "stopped")
        owner.stop.clear()
        whole = await owner.survey(after=60.0)
    assert (whole.is_over, whole.survey.number, whole.survey.is_whole) == (True, 1, True)
    pages = [path for path in site.asked if path != "/robots.txt"]
    assert sorted(pages) == sorted(set(pages))
    assert len(listed(tmp_path)) == 31


async def test_large_site_takes_several_visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.host.own.survey.VISIT_PAGES", 7)
    monkeypatch.setattr("sterna.host.own.survey.STARTS_AT_ONCE", 5)
    site = site_of_pages(40)
    async with owner_of(site, tmp_path) as owner:
        assert (await owner.survey()).survey.is_whole
        site.asked.clear()
        again = await owner.survey(after=DAY)
    assert (again.is_over, again.survey.pages, len(listed(tmp_path))) == (True, 41, 41)
    pages = [path for path in site.asked if path != "/robots.txt"]
    assert (len(pages), len(set(pages))) == (41, 41)
    assert site.asked.count("/robots.txt") >= 6


async def test_survey_rests_while_the_machine_is_busy(tmp_path: Path) -> None:
    busy, ticks = True, 0.0

    def machine() -> MachineTimes:
        nonlocal ticks
        ticks += 100.0
        return MachineTimes(total=ticks, busy=ticks if busy else ticks / 1e6, own=0.0)

    site = site_of_pages(3)
    seconds = 0.0

    def now() -> float:
        nonlocal seconds
        seconds += 100.0  # so that nothing of an earlier measurement is left
        return seconds

    policy = Policy(load=LoadRules(machine=0.5))
    async with owner_of(site, tmp_path, policy, meter=LoadMeter(machine=machine, now=now)) as owner:
        site.pause.clear()
        running = asyncio.create_task(owner.survey())
        await until(lambda: bool(owner.said))
        site.pause.set()
        asked = len(site.asked)
        await asyncio.sleep(0.3)
        assert len(site.asked) <= asked + 1  # what was under way came to its end
        assert owner.said[0].startswith("the survey is paused: other work takes ")
        busy = False
        outcome = await running
    assert (outcome.is_over, owner.said[-1]) == (True, "the survey continues")
    assert len(listed(tmp_path)) == 4


async def test_closed_doors_end_a_survey(tmp_path: Path) -> None:
    site = site_of_pages(3)
    Doors(tmp_path).close("maintenance")
    async with owner_of(site, tmp_path) as owner:
        outcome = await owner.survey()
        assert (outcome.is_over, outcome.why) == (False, "the doors are closed (maintenance)")
        Doors(tmp_path).open()
        assert (await owner.survey()).is_over


async def test_site_without_robots_txt_to_be_had_is_left_as_it_was(tmp_path: Path) -> None:
    site = site_of_pages(2)
    async with owner_of(site, tmp_path) as owner:
        await owner.survey()
        site.statuses = dict.fromkeys(site.bodies, 500)
        outcome = await owner.survey(after=2 * DAY)
    assert not outcome.is_over
    assert outcome.why.startswith("cannot read robots.txt: ")
    assert len(listed(tmp_path)) == 3


async def test_two_surveys_at_once_are_refused(tmp_path: Path) -> None:
    site = site_of_pages(1)
    async with owner_of(site, tmp_path) as owner, owner_of(site, tmp_path) as other:
        site.pause.clear()
        running = asyncio.create_task(owner.survey())
        await until(lambda: len(site.asked) >= 2)
        with pytest.raises(UsageError, match="another survey is under way"):
            await other.survey()
        site.pause.set()
        await running


async def test_start_must_be_of_the_site(tmp_path: Path) -> None:
    async with owner_of(Site(), tmp_path) as owner:
        with pytest.raises(UsageError, match=r"is not a page of http://site\.test"):
            await owner.survey(starts=("http://other.test/",))
        owner.site.put("/deep/page", "x")
        await owner.survey(starts=("/deep/page",))
    assert list(listed(tmp_path)) == ["/deep/page"]


@pytest.mark.parametrize(
    ("last", "due"),
    [
        (None, NOW),
        (Survey(1, NOW - DAY, NOW - DAY, True, 0, 0, 0, 0, 0), NOW + DAY),
        (Survey(1, NOW - 5 * DAY, NOW - DAY, True, 0, 0, 0, 0, 0), NOW - 3 * DAY),
        (Survey(2, NOW - DAY, None, False, 0, 0, 0, 0, 0), NOW),  # cut off
        (Survey(2, NOW + DAY, NOW + DAY, True, 0, 0, 0, 0, 0), NOW),  # the clock was set back
    ],
)
def test_survey_is_due_when_its_hours_are_over(last: Survey | None, due: float) -> None:
    assert due_at(last, hours=48, now=NOW) == due


async def test_full_disk_ends_a_survey_in_clear_words_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of_pages(40)
    prepare = Database._prepare

    def prepare_small(database: Database) -> None:
        prepare(database)
        database._connection.execute("PRAGMA max_page_count = 1")  # no more than it has

    async with owner_of(site, tmp_path) as owner:
        with monkeypatch.context() as patch:
            patch.setattr(Database, "_prepare", prepare_small)
            with pytest.raises(StorageError, match=r"the disk of .* is full: free some space"):
                await owner.survey()
        outcome = await owner.survey()
    assert (outcome.survey.number, outcome.is_over, len(listed(tmp_path))) == (1, True, 41)


@pytest.mark.parametrize("status", [404, 410])
async def test_page_that_was_deleted_and_is_restored_is_found_behind_an_unchanged_page(
    tmp_path: Path, status: int
) -> None:
    site = site_of_pages(2)
    site.put("/", site.bodies["/"], etag='"front"', last_modified=date(NOW - DAY))
    async with owner_of(site, tmp_path) as owner:
        await owner.survey()
        site.statuses["/1"] = status
        for _ in range(3):
            await owner.survey(after=DAY)
        assert "/1" not in listed(tmp_path)
        assert [kind for kind, path, _ in changes(tmp_path) if path == "/1"][-1] == "deleted"
        del site.statuses["/1"]
        restored = await owner.survey(after=DAY)
        assert "/1" in listed(tmp_path)
    assert (restored.survey.created, restored.survey.deleted) == (1, 0)


async def test_new_page_behind_an_old_link_of_an_unchanged_page_is_found(tmp_path: Path) -> None:
    site = site_of_pages(2)
    links = site.bodies["/"] + '<a href="/later">later</a><a href="/broken">broken</a><a href="/photo">x</a>'
    site.put("/", links, etag='"front"', last_modified=date(NOW - DAY))
    site.put("/broken", f"<title>Broken</title>{TEXT}")
    site.put("/photo", "pixels", content_type="image/png")
    site.statuses["/broken"] = 403
    async with owner_of(site, tmp_path) as owner:
        await owner.survey()
        del site.statuses["/broken"]
        site.put("/later", f"<title>Later</title>{TEXT}")
        site.asked.clear()
        found = await owner.survey(after=DAY)
        assert {"/later", "/broken"} <= set(listed(tmp_path))
        assert (found.survey.created, "/photo" in site.asked) == (2, False)
        site.asked.clear()
        del site.bodies["/later"]
        await owner.survey(after=40 * DAY)  # after so long, only a link that is read brings it back
        await owner.survey(after=DAY)
        assert "/later" in site.asked


async def test_links_that_lead_nowhere_are_asked_for_a_month_at_most(tmp_path: Path) -> None:
    site = site_of_pages(1)
    site.put("/", '<a href="/nowhere">x</a>', last_modified=date(NOW - DAY), etag='"1"')
    async with owner_of(site, tmp_path) as owner:
        await owner.survey()
        site.put("/", "no links", last_modified=date(NOW), etag='"2"')
        await owner.survey(after=DAY)
        assert site.asked.count("/nowhere") == 2
        await owner.survey(after=40 * DAY)
        assert site.asked.count("/nowhere") == 2
