"""Remote page selection and filtering: what is wanted of a page, and nothing else, leaves its visit."""

from pathlib import Path

import pytest
from tests.runtime.fakes import SITE, FakeWeb, Outcome, Script, carry_out, linking, reply, visit_of

from sterna.crawler.compiler import compile_spec
from sterna.crawler.spec import Keep, Select, Spec
from sterna.errors import FetchError
from sterna.model import Links, Page

WEB: Script = {
    "/": linking("/clinic", "/garden", "/gone", "/moved"),
    "/clinic": reply(
        body="<html lang=en><title>A clinic</title><meta name=description content='Care.'>"
        "<h1>Our clinic</h1><p>Nurses care for patients.<a href='/deep'>more</a></html>"
    ),
    "/garden": reply(body="<title>A garden</title><p>Roses.<a href='/deeper'>x</a>"),
    "/moved": reply(301, location="/clinic"),
}


def visited(select: Select | None = None, keep: Keep | None = None, web: Script | None = None) -> Outcome:
    spec = Spec(name="test", select=select or Select(), keep=keep or Keep())
    return carry_out(visit_of("/", crawler=compile_spec(spec, Path())), FakeWeb(web or WEB))


def kept(outcome: Outcome) -> dict[str, Page]:
    pages = (page for parcel in outcome.parcels for page in parcel.pages)
    return {page.url.removeprefix(SITE): page for page in pages if page.is_kept}


def test_page_that_is_not_wanted_brings_nothing_but_its_address_and_validators() -> None:
    outcome = visited(Select(keywords_any=("clinic",)))

    pages = {page.url.removeprefix(SITE): page for parcel in outcome.parcels for page in parcel.pages}
    garden = pages["/garden"]
    assert not garden.is_kept
    assert (garden.title, garden.text, garden.language) == ("", "", "")
    assert garden.digest
    assert kept(outcome).keys() == {"/clinic"}


def test_links_of_pages_that_are_not_wanted_are_followed() -> None:
    outcome = visited(Select(keywords_any=("clinic",)))

    assert "/deeper" in outcome.web.paths()
    assert "/deep" in outcome.web.paths()


def test_only_the_fields_that_are_kept_travel() -> None:
    outcome = visited(Select(keywords_any=("nurses",)), Keep(fields=("title", "headings")))

    page = kept(outcome)["/clinic"]
    assert (page.title, page.headings) == ("A clinic", ("Our clinic",))
    assert (page.text, page.description, page.language, page.links) == ("", "", "", Links())


def test_share_of_a_page_is_its_beginning() -> None:
    whole = kept(visited())["/clinic"].text

    part = kept(visited(keep=Keep(share=0.5)))["/clinic"].text

    assert whole.startswith(part)
    assert len(part) == pytest.approx(len(whole) / 2, abs=1)


def test_selectors_bring_what_they_find() -> None:
    page = kept(visited(keep=Keep(fields=("title",), selectors={"top": "h1"})))["/clinic"]

    assert page.extracts == (("top", ("Our clinic",)),)


@pytest.mark.parametrize(
    ("where", "paths"),
    [
        ("status = 404", {"/gone", "/deep", "/deeper"}),
        ("status = 301", {"/moved"}),
        ("error IS NOT NULL", {"/down"}),
        ("depth = 0", {"/"}),
        ("title IS NULL AND status = 200", {"/"}),
    ],
)
def test_condition_holds_for_pages_that_nobody_read_too(where: str, paths: set[str]) -> None:
    web: Script = WEB | {
        "/": linking("/clinic", "/garden", "/gone", "/moved", "/down"),
        "/down": FetchError("tls", "scripted"),
    }

    assert kept(visited(Select(where=where), web=web)).keys() == paths


def test_usage_tells_how_many_were_wanted() -> None:
    outcome = visited(Select(keywords_any=("clinic",)))

    assert sum(parcel.usage.pages for parcel in outcome.parcels) == 3
    assert sum(parcel.usage.kept for parcel in outcome.parcels) == 1


def test_crawl_goes_no_deeper_than_a_condition_allows() -> None:
    outcome = visited(Select(where="depth < 2"))

    assert sorted(outcome.web.paths()) == ["/", "/clinic", "/garden", "/gone", "/moved"]
