"""The index of the own site: what is in it, when a page changed, what is gone; surveys that are cut off."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.host.knocking import until
from tests.host.own_pages import (
    BUSY_OR_NOT,
    DAY,
    NOW,
    SITE,
    Site,
    all_changes,
    changes,
    date,
    gone,
    listed,
    owner_of,
    page,
    survey,
)

from sterna.errors import StorageError, UsageError
from sterna.host.config import LoadRules, Policy
from sterna.host.doors import Doors
from sterna.host.load import LoadMeter, MachineTimes
from sterna.host.own.dating import date_of
from sterna.host.own.index import NAME, Index, Survey
from sterna.host.own.keeper import due_at
from sterna.host.own.plan import WHOLE_SECONDS
from sterna.host.own.register import Standing, standing_of
from sterna.model import Link, Links, Page

TEXT = "the arctic tern migrates farther than any other animal on earth does " * 3
OTHER = "a heron stands still in shallow water and waits for whatever fish comes by " * 3


# -- dates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modified", "known"),
    [
        (date(NOW - DAY), NOW - DAY),
        (date(NOW), None),  # a program wrote the time of the request
        (date(NOW - 30), None),
        (date(NOW + DAY), None),
        (date(0), None),  # as images of read-only file systems have it
        ("", None),
        ("yesterday", None),
        ("Mon, 99 Foo 2026 77:00:00 GMT", None),
        ("Sat, 31 Dec 99999 00:00:00 GMT", None),
    ],
)
def test_date_of_a_server_is_believed_if_it_can_be_true(modified: str, known: float | None) -> None:
    assert date_of(modified, NOW) == known


def test_first_survey_takes_the_servers_dates_and_creates_nothing(tmp_path: Path) -> None:
    found = survey(tmp_path, page("/dated", modified=date(NOW - DAY)), page("/undated"))
    assert listed(tmp_path) == {"/dated": NOW - DAY, "/undated": None}
    assert changes(tmp_path) == [("updated", "/dated", NOW - DAY)]
    assert (found.created, found.updated, found.deleted) == (0, 0, 0)


def test_change_is_dated_by_the_server_only_if_it_lies_between_two_surveys(tmp_path: Path) -> None:
    paths = ("/between", "/old", "/now", "/undated")
    survey(tmp_path, *(page(path, TEXT, modified=date(NOW - DAY)) for path in paths))
    later = NOW + 10 * DAY
    dates = (date(NOW + DAY), date(NOW - 9 * DAY), date(later), "")
    found = survey(
        tmp_path,
        *(page(path, OTHER, modified=modified) for path, modified in zip(paths, dates, strict=True)),
        now=later,
    )
    assert listed(tmp_path) == {"/between": NOW + DAY, "/old": later, "/now": later, "/undated": later}
    assert found.updated == 4


def test_page_that_was_touched_and_is_the_same_did_not_change(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", TEXT, modified=date(NOW - DAY), etag='"1"'))
    found = survey(tmp_path, page("/a", TEXT, modified=date(NOW + DAY), etag='"2"'), now=NOW + 2 * DAY)
    assert listed(tmp_path) == {"/a": NOW - DAY}
    assert (found.created, found.updated, len(changes(tmp_path))) == (0, 0, 1)


def test_clock_in_a_page_without_a_date_is_no_change_but_small_changes_add_up(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(200)]
    survey(tmp_path, page("/a", " ".join(["12:00:01", *words])))
    found = survey(tmp_path, page("/a", " ".join(["12:00:09", *words])), now=NOW + DAY)
    assert (found.updated, listed(tmp_path)) == (0, {"/a": None})
    updated = 0
    for day in range(2, 12):  # every day some words are others
        text = " ".join([*words[day * 15 :], *(f"new{number}" for number in range(day * 15))])
        updated += survey(tmp_path, page("/a", text), now=NOW + day * DAY).updated
    assert 1 <= updated < 10


def test_smallest_change_counts_where_the_server_dates_it(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(500))
    survey(tmp_path, page("/a", f"{words} ten", modified=date(NOW - DAY)))
    survey(tmp_path, page("/a", f"{words} two", modified=date(NOW + DAY)), now=NOW + 2 * DAY)
    assert listed(tmp_path) == {"/a": NOW + DAY}
    # The same date under other bytes says nothing: it is as if there were none.
    survey(tmp_path, page("/a", f"{words} six", modified=date(NOW + DAY)), now=NOW + 3 * DAY)
    assert listed(tmp_path) == {"/a": NOW + DAY}


def test_smallest_change_counts_in_a_file_that_was_saved_just_now(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(500))
    later = NOW + DAY
    survey(
        tmp_path,
        page("/file", f"{words} ten", modified=date(NOW - DAY)),
        page("/made", f"{words} ten", modified=date(NOW)),
    )
    survey(
        tmp_path,
        page("/file", f"{words} two", modified=date(later - 1)),
        page("/made", f"{words} two", modified=date(later)),
        now=later,
    )
    assert listed(tmp_path) == {"/file": later, "/made": None}


def test_new_title_is_a_change(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", TEXT, title="Terns"))
    survey(tmp_path, page("/a", f"{TEXT}x", title="Herons"), now=NOW + DAY)
    assert changes(tmp_path) == [("updated", "/a", NOW + DAY)]


def test_page_of_a_later_survey_was_created(tmp_path: Path) -> None:
    survey(tmp_path, page("/"))
    found = survey(
        tmp_path,
        page("/"),
        page("/new", modified=date(NOW + DAY)),
        page("/copied", modified=date(NOW - DAY)),
        page("/undated"),
        now=NOW + 2 * DAY,
    )
    at = NOW + 2 * DAY
    assert sorted(changes(tmp_path)) == [
        ("created", "/copied", at),
        ("created", "/new", NOW + DAY),
        ("created", "/undated", at),
    ]
    assert listed(tmp_path) == {"/": None, "/new": NOW + DAY, "/copied": NOW - DAY, "/undated": at}
    assert found.created == 3


def test_nothing_is_created_as_long_as_no_survey_saw_all(tmp_path: Path) -> None:
    survey(tmp_path, page("/"), is_whole=False)
    survey(tmp_path, page("/"), page("/more"), now=NOW + DAY)
    assert changes(tmp_path) == []
    survey(tmp_path, page("/"), page("/more"), page("/new"), now=NOW + 2 * DAY)
    assert changes(tmp_path) == [("created", "/new", NOW + 2 * DAY)]


# -- what is gone ------------------------------------------------------------------------------------------


def test_missing_page_leaves_the_list_at_once_and_is_deleted_when_it_is_missed_again(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", title="A"), page("/b"))
    found = survey(tmp_path, gone("/a"), page("/b"), now=NOW + DAY)
    assert (list(listed(tmp_path)), changes(tmp_path), found.deleted) == (["/b"], [], 0)
    found = survey(tmp_path, gone("/a"), page("/b"), now=NOW + 2 * DAY)
    assert changes(tmp_path) == [("deleted", "/a", NOW + DAY)]  # when it was first missed
    assert (found.deleted, all_changes(tmp_path)[0].title) == (1, "A")


def test_page_that_says_it_is_gone_is_deleted_at_once(tmp_path: Path) -> None:
    survey(tmp_path, page("/a"))
    survey(tmp_path, gone("/a", 410), now=NOW + DAY)
    assert changes(tmp_path) == [("deleted", "/a", NOW + DAY)]


@pytest.mark.parametrize("text", [TEXT, OTHER])
def test_page_that_comes_back_was_never_deleted(tmp_path: Path, text: str) -> None:
    survey(tmp_path, page("/a", TEXT))
    survey(tmp_path, gone("/a"), now=NOW + DAY)
    survey(tmp_path, page("/a", text), now=NOW + 2 * DAY)
    assert list(listed(tmp_path)) == ["/a"]
    assert [kind for kind, _, _ in changes(tmp_path)] == ([] if text == TEXT else ["updated"])


@pytest.mark.parametrize(
    ("answer", "standing"),
    [
        (page("/a"), Standing.SHOWN),
        (page("/a", status=304), Standing.SHOWN),
        (page("/a", content_type="application/pdf"), Standing.SHOWN),
        (page("/a", content_type="image/png"), Standing.MISSING),
        (page("/a", digest=b""), Standing.CLOSED),  # noindex, as the runtime tells it
        (page("/a", status=304, headers=(("x-robots-tag", "noindex"),)), Standing.CLOSED),
        (page("/a", status=304, headers=(("x-robots-tag", "googlebot: noindex"),)), Standing.SHOWN),
        (page("/a", status=0, error="robots"), Standing.CLOSED),
        (page("/a", status=0, error="refused"), Standing.CLOSED),
        (page("/a", status=0, error="timeout"), Standing.UNKNOWN),
        (page("/a", error="parser"), Standing.UNKNOWN),
        (gone("/a", 410), Standing.GONE),
        (gone("/a", 301), Standing.MISSING),
        (gone("/a", 403), Standing.MISSING),
        (gone("/a", 429), Standing.UNKNOWN),
        (gone("/a", 500), Standing.UNKNOWN),
    ],
)
def test_answers_say_where_a_page_stands(answer: Page, standing: Standing) -> None:
    assert standing_of(answer) is standing


@pytest.mark.parametrize("status", [500, 503, 429])
def test_failing_server_changes_nothing(tmp_path: Path, status: int) -> None:
    survey(tmp_path, page("/a", modified=date(NOW - DAY)))
    for day in (1, 2, 3):
        survey(tmp_path, gone("/a", status), now=NOW + day * DAY)
    assert listed(tmp_path) == {"/a": NOW - DAY}


def test_page_that_is_hidden_leaves_with_all_that_was_told_of_it(tmp_path: Path) -> None:
    survey(tmp_path, page("/secret", modified=date(NOW - DAY)), page("/deleted"))
    survey(tmp_path, page("/secret", digest=b""), gone("/deleted", 410), now=NOW + DAY)
    assert (listed(tmp_path), [path for _, path, _ in changes(tmp_path)]) == ({}, ["/deleted"])
    with sqlite3.connect(tmp_path / NAME) as db:
        assert db.execute("SELECT count(*) FROM words").fetchone() == (0,)


def test_copy_is_left_out_while_the_page_that_it_names_is_there(tmp_path: Path) -> None:
    links = Links.of(Link(f"{SITE}/a", rel="canonical"))
    copy = page("/a?print", links=links)
    survey(tmp_path, page("/a"))
    survey(tmp_path, page("/a"), copy, now=NOW + DAY)
    assert (list(listed(tmp_path)), changes(tmp_path)) == (["/a"], [])
    survey(tmp_path, gone("/a"), copy, now=NOW + 2 * DAY)
    assert list(listed(tmp_path)) == ["/a?print"]


def test_page_of_a_folder_is_listed_once(tmp_path: Path) -> None:
    survey(
        tmp_path,
        page("/a/", TEXT),
        page("/a/index.html", TEXT),
        page("/b/", TEXT),
        page("/b/index.html", OTHER),
    )
    assert list(listed(tmp_path)) == ["/a/", "/b/", "/b/index.html"]


def test_pages_that_name_each_other_are_both_there(tmp_path: Path) -> None:
    one = page("/1", links=Links.of(Link(f"{SITE}/2", rel="canonical")))
    two = page("/2", links=Links.of(Link(f"{SITE}/1", rel="canonical")))
    elsewhere = page("/3", links=Links.of(Link("http://other.test/3", rel="canonical")))
    survey(tmp_path, one, two, elsewhere)
    assert list(listed(tmp_path)) == ["/1", "/2", "/3"]


# -- surveys with the runtime ------------------------------------------------------------------------------


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
        assert (first.is_over, first.why, first.survey.is_whole) == (True, "30 pages are the most", False)
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
    monkeypatch.setattr("sterna.host.own.plan.STARTS_AT_ONCE", 5)
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
        assert owner.said[0].startswith("the survey rests: other work takes ")
        busy = False
        outcome = await running
    assert (outcome.is_over, owner.said[-1]) == (True, "the survey goes on")
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
    assert outcome.why.startswith("robots.txt cannot be had: ")
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
        with pytest.raises(UsageError, match=r"name a page of http://site\.test"):
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


def test_clock_that_is_set_back_deletes_and_keeps_the_same(tmp_path: Path) -> None:
    survey(tmp_path, page("/a"), page("/b"))
    survey(tmp_path, gone("/a"), page("/b"), now=NOW + 9 * DAY)
    survey(tmp_path, gone("/a"), page("/b"), now=NOW - 9 * DAY)
    assert changes(tmp_path) == [("deleted", "/a", NOW + 9 * DAY)]
    assert list(listed(tmp_path)) == ["/b"]


# -- the file ----------------------------------------------------------------------------------------------


async def test_full_disk_ends_a_survey_in_clear_words_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of_pages(40)
    prepare = Index._prepare

    def prepare_small(index: Index, site: str) -> None:
        prepare(index, site)
        index.connection.execute("PRAGMA max_page_count = 1")  # no more than it has

    async with owner_of(site, tmp_path) as owner:
        with monkeypatch.context() as patch:
            patch.setattr(Index, "_prepare", prepare_small)
            with pytest.raises(StorageError, match=r"the disk of .* is full: free some space"):
                await owner.survey()
        outcome = await owner.survey()
    assert (outcome.survey.number, outcome.is_over, len(listed(tmp_path))) == (1, True, 41)


def test_index_that_cannot_be_used_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make it with 'sterna host index"):
        Index(tmp_path)
    survey(tmp_path, page("/"))
    with pytest.raises(UsageError, match=r"is the index of http://site\.test"):
        Index(tmp_path, site="http://other.test")
    with sqlite3.connect(tmp_path / NAME) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="has format 99"):
        Index(tmp_path)
    for name in (NAME, f"{NAME}-wal", f"{NAME}-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageError, match="delete it and run 'sterna host index' again"):
        Index(tmp_path)
