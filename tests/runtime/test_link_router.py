"""Visits to some parts of a site: what lies elsewhere is told to home, and left to another visit."""

import pytest
from tests.runtime.fakes import SITE, FakeWeb, carry_out, linking, reply, rules, visit_of

from sterna.model import Ended, Target
from sterna.web.urls import part_of, parts_of


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/", "/"),
        ("/a", "/"),
        ("/a.html?x=/b/c", "/"),
        ("/a/", "/a/"),
        ("/a/b/c", "/a/"),
        ("/a/?q=1", "/a/"),
        ("//x", "//"),
    ],
)
def test_part_of_a_url(path: str, part: str) -> None:
    assert part_of(f"{SITE}{path}") == part
    assert next(parts_of(f"{SITE}{path}")) == part


def test_parts_of_a_url_are_its_folders_and_what_lies_directly_in_the_last() -> None:
    assert [*parts_of(f"{SITE}/docs/api/a.html?b=/c/")] == ["/docs/", "/docs/api/", "/docs/api/."]
    assert [*parts_of(f"{SITE}/docs/")] == ["/docs/", "/docs/."]
    assert [*parts_of(f"{SITE}/docs")] == ["/"]


def test_pages_elsewhere_are_told_and_not_fetched() -> None:
    web = FakeWeb(
        {
            "/a/": linking("/a/1", "/b/", "/top"),
            "/a/1": linking("/b/2", "/a/"),
        }
    )
    outcome = carry_out(visit_of(Target(f"{SITE}/a/", 1), within=("/a/",)), web)
    assert web.paths() == ["/a/", "/a/1"]
    assert sorted(outcome.found) == ["/a/1", "/b/", "/b/2", "/top"]
    assert outcome.last.ended is Ended.FINISHED


def test_top_of_a_site_is_a_part() -> None:
    web = FakeWeb({"/": linking("/x", "/a/"), "/x": linking()})
    outcome = carry_out(visit_of(within=("/",)), web)
    assert web.paths() == ["/", "/x"]
    assert sorted(outcome.found) == ["/a/", "/x"]


def test_redirect_that_leads_elsewhere_is_left_to_another_visit() -> None:
    web = FakeWeb({"/": reply(301, location="/en/")})
    outcome = carry_out(visit_of(within=("/",)), web)
    assert web.paths() == ["/"]
    assert outcome.found == ["/en/"]


def test_sitemap_is_read_wherever_it_lies_and_only_its_pages_within_are_fetched() -> None:
    page = f"<urlset><url><loc>{SITE}/a/2</loc></url><url><loc>{SITE}/b/2</loc></url></urlset>"
    web = FakeWeb(
        {
            "/robots.txt": rules(f"Sitemap: {SITE}/maps/all.xml\n"),
            "/maps/all.xml": reply(body=page),
            "/a/": linking(),
            "/a/2": linking(),
        }
    )
    outcome = carry_out(visit_of(Target(f"{SITE}/a/", 1), within=("/a/",)), web)
    assert sorted(web.paths()) == ["/a/", "/a/2", "/maps/all.xml"]
    assert "/b/2" in outcome.found


def test_closed_paths_are_not_fetched_whatever_their_spelling() -> None:
    web = FakeWeb(
        {
            "/": linking("/open", "/closed/1", "/CLOSED/2", "/a/../closed/3", "/%63losed/4"),
            "/open": reply(200),
        }
    )
    outcome = carry_out(visit_of("/", "/closed/start", closed=("/closed/",)), web)
    assert set(web.paths()) - {"/robots.txt"} == {"/", "/open"}
    assert outcome.errors["closed"] == len(outcome.pages) - 2 >= 4
