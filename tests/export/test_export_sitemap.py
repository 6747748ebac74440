"""A collection as a sitemap: every page that was found, with the date of its change where that is known."""

import io
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from tests.export.exported import SITE, export, page, source_of, stored

from sterna.errors import UsageError
from sterna.export.job import ExportJob
from sterna.export.making import make
from sterna.export.selection import Selection
from sterna.web import sitemap_file
from sterna.web.sitemap import read_sitemap
from sterna.web.urls import Canonical

NAMESPACE = "{http://www.sitemaps.org/schemas/sitemap/0.9}"


def located(path: Path) -> dict[str, str | None]:
    """Location to date."""
    root = Xml.parse(path).getroot()
    return {each[0].text or "": each.findtext(f"{NAMESPACE}lastmod") for each in root}


def sitemap(source: Selection, place: Path, **wishes: str | bool) -> list[Path]:
    job = ExportJob(kind="sitemap", place=place, **wishes)  # type: ignore[arg-type]
    work = place.parent / "work"
    work.mkdir(exist_ok=True)
    made = make(replace(source, scratch=work), job, stdout=io.BytesIO())
    return list(made.places)


@pytest.mark.servers
def test_sitemap_of_a_real_site_names_its_pages(real_collection: Path, tmp_path: Path) -> None:
    out = export(real_collection, "sitemap", tmp_path / "sitemap.xml")
    pages = export(real_collection, "csv", tmp_path / "pages.csv", where="status = 200").read_text()
    found = located(out)
    assert len(found) > 50
    assert all(url in pages for url in found)
    assert all(date and date.endswith("Z") for date in found.values())
    site = next(iter(found)).rpartition("/")[0]
    read = read_sitemap(out.read_bytes(), f"{site}/sitemap.xml", Canonical(), max_bytes=10_000_000)
    assert set(read.urls) == set(found)


def test_date_is_that_of_the_page_or_of_a_change_that_was_seen(tmp_path: Path) -> None:
    first = [
        page("/stated", modified="Wed, 01 Nov 2023 00:00:00 GMT", digest=b"1"),
        page("/once", digest=b"1"),
        page("/changed", digest=b"1"),
        page("/gone", status=404),
    ]
    second = [page("/changed", digest=b"2", fetched=1_700_086_400.0)]
    with stored(tmp_path / "segments", first, second) as source:
        sitemap(source, tmp_path / "sitemap.xml")
    assert located(tmp_path / "sitemap.xml") == {
        f"{SITE}/stated": "2023-11-01T00:00:00Z",
        f"{SITE}/once": None,
        f"{SITE}/changed": "2023-11-15T22:13:20Z",
    }


def test_large_sitemap_is_split_and_its_index_names_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitemap_file, "MAX_URLS", 4)
    with source_of(*(page(f"/{number}") for number in range(10))) as source:
        places = sitemap(source, tmp_path / "sitemap.xml")
    assert places == [tmp_path / name for name in
        ("sitemap.xml", "sitemap-1.xml", "sitemap-2.xml", "sitemap-3.xml")]  # fmt: skip
    assert list(located(places[0])) == [f"{SITE}/sitemap-{number}.xml" for number in (1, 2, 3)]
    assert [len(located(place)) for place in places[1:]] == [4, 4, 2]
    with source_of(page("/")) as source, pytest.raises(UsageError, match=r"sitemap\.xml exists"):
        sitemap(source, tmp_path / "sitemap.xml")


def test_part_that_is_there_already_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitemap_file, "MAX_URLS", 1)
    (tmp_path / "sitemap-2.xml").write_text("mine")
    with source_of(page("/a"), page("/b")) as source:
        with pytest.raises(UsageError, match=r"sitemap-2\.xml exists"):
            sitemap(source, tmp_path / "sitemap.xml")
        assert (tmp_path / "sitemap-2.xml").read_text() == "mine"
        assert not (tmp_path / "sitemap-1.xml").exists()
        assert len(sitemap(source, tmp_path / "sitemap.xml", force=True)) == 3


def test_sitemap_is_of_one_site_unless_its_place_is_told(tmp_path: Path) -> None:
    pages = [page("/a"), page("/b", site="https://other.example.org")]
    with source_of(*pages) as source:
        with pytest.raises(UsageError, match="the pages are of 2 sites, and a sitemap is of one"):
            sitemap(source, tmp_path / "two.xml")
        sitemap(source, tmp_path / "two.xml", base="https://maps.example.org/x/")
    assert set(located(tmp_path / "two.xml")) == {each.url for each in pages}
    with source_of(*pages, where=f"site = '{SITE}'") as source:
        sitemap(source, tmp_path / "one.xml")
    assert set(located(tmp_path / "one.xml")) == {pages[0].url}


def test_sitemap_of_one_file_goes_into_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    job = ExportJob(kind="sitemap", place=Path("-"))
    with source_of(page("/a"), page("/b"), scratch=tmp_path) as source:
        made = make(source, job, stdout=out)
        assert (made.count, made.places) == (2, ())
        assert [each[0].text for each in Xml.fromstring(out.getvalue())] == [f"{SITE}/a", f"{SITE}/b"]
        monkeypatch.setattr(sitemap_file, "MAX_URLS", 1)
        with pytest.raises(UsageError, match="the sitemap takes 3 files: name its place with --out"):
            make(source, job, stdout=out)
