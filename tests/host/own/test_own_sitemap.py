"""The sitemap of the own site by the rules of sitemaps.org; of real sites, and as a host shows it."""

import asyncio
import gzip
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as Xml

import pytest
from msgspec.structs import replace
from tests.host.own.own_pages import DAY, NOW, SITE, date, page, survey
from tests.servers.nginx import real_site, serve

from sterna.errors import StorageError
from sterna.host.calls import Reply, Shown, op_of
from sterna.host.config import HostConfig
from sterna.host.own import shelf as shelf_module
from sterna.host.own.index import Index
from sterna.host.own.shelf import FOLDER, Shelf
from sterna.host.own.survey import Outcome, Surveyor
from sterna.host.policy.policy import LoadRules, Policy, read_policy
from sterna.host.visiting.workshop import Workshop
from sterna.web import sitemap_file
from sterna.web.clock import SystemClock
from sterna.web.sitemap import read_sitemap
from sterna.web.sitemap_file import Listed, write_sitemap
from sterna.web.urls import Canonical

NAMESPACE = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
URI = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-F]{2})*)")
BEGAN = time.time()
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def entries(path: Path, root: str = "urlset", element: str = "url") -> dict[str, str]:
    """Location to date of a file, which is held against the schema on the way."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert len(raw) <= 50 * 1024 * 1024
    tree = Xml.fromstring(raw)
    assert tree.tag == f"{NAMESPACE}{root}"
    assert len(tree) <= 50_000
    found: dict[str, str] = {}
    for each in tree:
        names = [child.tag.removeprefix(NAMESPACE) for child in each]
        assert each.tag == f"{NAMESPACE}{element}"
        assert names in (["loc"], ["loc", "lastmod"])
        location, *dates = [child.text or "" for child in each]
        assert 12 <= len(location) < 2048
        assert URI.fullmatch(location), location
        assert all(TIME.fullmatch(text) for text in dates)
        assert location not in found
        found[location] = dates[0] if dates else ""
    return found


def test_sitemap_has_every_page_with_its_date(tmp_path: Path) -> None:
    pages = [Listed(f"{SITE}/", 1_700_000_000.5), Listed(f"{SITE}/b?x=1&y='2'", None)]
    assert write_sitemap(pages, tmp_path / "sitemap.xml", base=SITE) == [tmp_path / "sitemap.xml"]
    assert entries(tmp_path / "sitemap.xml") == {
        f"{SITE}/": "2023-11-14T22:13:20Z",
        f"{SITE}/b?x=1&y='2'": "",
    }
    raw = (tmp_path / "sitemap.xml").read_text()
    assert "x=1&amp;y=&#x27;2&#x27;" in raw
    assert [path.name for path in tmp_path.iterdir()] == ["sitemap.xml"]


def test_signs_that_no_uri_may_hold_are_written_as_they_may(tmp_path: Path) -> None:
    hostile = ["/a|b", "/a^b`c", "/a[1]", "/?q={x}", '/"<>', "/100%", "/ä\udcff", "/a\x00b"]
    pages = [Listed(f"{SITE}{path}", None) for path in hostile]
    write_sitemap(pages, tmp_path / "sitemap.xml", base=SITE)
    assert len(entries(tmp_path / "sitemap.xml")) == len(hostile)
    assert f"{SITE}/a%7Cb" in entries(tmp_path / "sitemap.xml")
    write_sitemap([Listed("http://[::1]:8080/[x]", None)], tmp_path / "six.xml", base=SITE)
    assert list(entries(tmp_path / "six.xml")) == ["http://[::1]:8080/%5Bx%5D"]


def test_too_long_url_is_left_out(tmp_path: Path) -> None:
    pages = [Listed(f"{SITE}/{'x' * 2040}", None), Listed(f"{SITE}/a", None)]
    write_sitemap(pages, tmp_path / "sitemap.xml", base=SITE)
    assert list(entries(tmp_path / "sitemap.xml")) == [f"{SITE}/a"]


def test_site_without_pages_has_an_empty_sitemap(tmp_path: Path) -> None:
    write_sitemap([], tmp_path / "sitemap.xml", base=SITE)
    assert entries(tmp_path / "sitemap.xml") == {}


def test_file_holds_as_many_urls_as_it_may(tmp_path: Path) -> None:
    paths = write_sitemap((Listed(f"{SITE}/{n}", NOW) for n in range(50_001)), tmp_path / "s.xml", base=SITE)
    assert [path.read_text().count("<loc>") for path in paths] == [2, 50_000, 1]


@pytest.mark.parametrize("name", ["sitemap.xml", "sitemap.xml.gz"])
def test_more_urls_than_a_file_may_hold_make_an_index(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitemap_file, "MAX_URLS", 50)
    count = 101
    pages = (Listed(f"{SITE}/{n}", 1e9 + n if n < 100 else None) for n in range(count))
    paths = write_sitemap(pages, tmp_path / name, base=f"{SITE}/maps/")
    suffix = name.removeprefix("sitemap")
    assert [path.name for path in paths] == [name, *(f"sitemap-{n}{suffix}" for n in (1, 2, 3))]
    index = entries(paths[0], "sitemapindex", "sitemap")
    assert index == {
        f"{SITE}/maps/sitemap-1{suffix}": "2001-09-09T01:47:29Z",
        f"{SITE}/maps/sitemap-2{suffix}": "2001-09-09T01:48:19Z",
        f"{SITE}/maps/sitemap-3{suffix}": "",
    }
    parts = [entries(path) for path in paths[1:]]
    assert [len(part) for part in parts] == [50, 50, 1]
    assert set().union(*parts) == {f"{SITE}/{n}" for n in range(count)}


def test_larger_files_than_may_be_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sitemap_file, "MAX_BYTES", 2_000)
    paths = write_sitemap((Listed(f"{SITE}/{n:050}", NOW) for n in range(100)), tmp_path / "s.xml", base=SITE)
    assert len(paths) > 2
    assert all(path.stat().st_size <= 2_000 for path in paths[1:])
    assert sum(len(entries(path)) for path in paths[1:]) == 100


def test_sitemap_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"failed to write .*nowhere"):
        write_sitemap([], tmp_path / "nowhere" / "sitemap.xml", base=SITE)


# -- as a host shows it ------------------------------------------------------------------------------------


def config_of(state: Path, **fields: tuple[str, ...]) -> HostConfig:
    return HostConfig(site=SITE, state=state, keys=state / "keys", policy=Policy(**fields))  # type: ignore[arg-type]


async def shown(shelf: Shelf, name: str, known: str = "") -> Reply:
    return await asyncio.wait_for(shelf.reply(name, known=known), 30)


async def body_of(reply: Reply) -> bytes:
    if isinstance(reply.body, bytes):
        return reply.body
    return b"".join([chunk async for chunk in reply.body])


@pytest.mark.parametrize("prefix", ["", "/crawlers/sterna"])
@pytest.mark.parametrize(
    "name", ["sitemap.xml", "sitemap-1.xml", "sitemap-999.xml", "changes.atom", "changes.jsonl"]
)
def test_shown_files_are_found_whatever_a_proxy_strips(prefix: str, name: str) -> None:
    for method in ("GET", "HEAD"):
        assert op_of(method, f"{prefix}/{name}", endpoint=f"{SITE}/crawlers/sterna") == Shown(name)
    refused = op_of("POST", f"{prefix}/{name}", endpoint=f"{SITE}/crawlers/sterna")
    assert isinstance(refused, Reply)
    assert refused.status == 405


@pytest.mark.parametrize(
    "name", ["sitemap-0.xml", "sitemap-01.xml", "sitemap.xml/", "changes.atom%00", "../own.sqlite"]
)
def test_no_other_file_is_shown(name: str) -> None:
    found = op_of("GET", f"/sterna/{name}", endpoint=f"{SITE}/sterna")
    assert isinstance(found, Reply)
    assert found.status == 404


async def test_host_shows_its_sitemap_when_a_survey_is_over(tmp_path: Path) -> None:
    shelf = Shelf(config_of(tmp_path))
    assert (await shown(shelf, "sitemap.xml")).status == 404
    survey(tmp_path, page("/a", modified=date(NOW - DAY)))
    reply = await shown(shelf, "sitemap.xml")
    assert (reply.status, reply.media_type) == (200, "application/xml")
    assert b"<loc>http://site.test/a</loc>" in await body_of(reply)
    assert (await shown(shelf, "sitemap-1.xml")).status == 404
    tag = dict(reply.headers)["ETag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        assert (await shown(shelf, "sitemap.xml", known)).status == 304
    survey(tmp_path, page("/a"), page("/b"), now=NOW + DAY)
    reply = await shown(shelf, "sitemap.xml", tag)
    assert (reply.status, b"/b</loc>" in await body_of(reply)) == (200, True)
    assert len(list((tmp_path / FOLDER).iterdir())) == 1  # what was made before is gone


async def test_path_that_is_closed_now_is_shown_no_longer(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", modified=date(NOW - DAY)), page("/intern/b", modified=date(NOW - DAY)))
    policy = tmp_path / "policy.toml"
    policy.write_text("")
    shelf = Shelf(replace(config_of(tmp_path), policy_file=policy, policy=read_policy(policy)))
    for name in ("sitemap.xml", "changes.atom", "changes.jsonl"):
        assert b"/intern/b" in await body_of(await shown(shelf, name))
    policy.write_text('closed = ["/intern"]\n')
    shelf._policy._looked_at = -1e9  # a second later
    for name in ("sitemap.xml", "changes.atom", "changes.jsonl"):
        body = await body_of(await shown(shelf, name))
        assert b"/a" in body
        assert b"/intern/b" not in body


async def test_large_file_is_streamed_with_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf_module, "CHUNK_BYTES", 64)
    survey(tmp_path, *(page(f"/{n}") for n in range(20)))
    reply = await shown(Shelf(config_of(tmp_path)), "sitemap.xml")
    body = await body_of(reply)
    assert dict(reply.headers)["Content-Length"] == str(len(body))
    assert body.endswith(b"</urlset>\n")


async def test_index_that_is_broken_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "own.sqlite").write_bytes(b"no database at all" * 100)
    reply = await shown(Shelf(config_of(tmp_path)), "sitemap.xml")
    assert (reply.status, reply.media_type) == (500, "application/problem+json")


async def test_many_who_ask_at_once_get_the_same(tmp_path: Path) -> None:
    survey(tmp_path, *(page(f"/{n}") for n in range(50)))
    one, other = Shelf(config_of(tmp_path)), Shelf(config_of(tmp_path))  # as two processes of a CGI host
    replies = await asyncio.gather(*(shown(shelf, "sitemap.xml") for shelf in (one, other) * 10))
    assert len({await body_of(reply) for reply in replies}) == 1


# -- real sites --------------------------------------------------------------------------------------------


@contextmanager
def manual(folder: Path, source: str) -> Iterator[tuple[HostConfig, Path]]:
    """The manual of Apache, of which a test may change the files; served by nginx, or read from the disk."""
    root = folder / "site"
    shutil.copytree(real_site("apache2-doc"), root, ignore=_only_english, symlinks=False)
    for number, path in enumerate(sorted(root.rglob("*.html"))):
        os.utime(path, (BEGAN - 100 * DAY + number,) * 2)
    served: AbstractContextManager[object] = (
        serve(root, folder=folder / "nginx") if source == "nginx" else nullcontext()
    )
    with served as server:
        site = server.url if server else SITE  # type: ignore[attr-defined]
        given = {} if server else {"root": root, "check": "never"}
        yield (
            HostConfig(
                site=site,
                state=folder / "state",
                keys=folder / "keys",
                policy=Policy(load=LoadRules(machine=0.0)),
                **given,  # type: ignore[arg-type]
            ),
            root,
        )


def _only_english(folder: str, names: list[str]) -> list[str]:
    is_top = Path(folder).name == "manual"
    return [name for name in names if is_top and name not in ("index.html", "en", "images", "style")]


def surveying(config: HostConfig) -> Callable[[], Outcome]:
    async def main() -> Outcome:
        clock = SystemClock()
        async with aclosing(Workshop(config, clock)) as workshop:
            return await Surveyor(config, workshop, clock).survey(
                stop=asyncio.Event(), starts=("/en/index.html",)
            )

    return lambda: asyncio.run(main())


@pytest.mark.servers
@pytest.mark.parametrize("source", ["nginx", "root"])
def test_real_site_and_what_becomes_of_it(tmp_path: Path, source: str) -> None:
    with manual(tmp_path, source) as (config, root):
        survey_now = surveying(config)
        out = tmp_path / "sitemap.xml"
        first = survey_now()
        assert (first.is_over, first.survey.created) == (True, 0)
        before = written(config, out)
        assert len(before) > 200
        for url, lastmod in before.items():
            assert lastmod == iso(file_of(root, url).stat().st_mtime), url
        assert set(read_sitemap(out.read_bytes(), config.site, Canonical(), max_bytes=10**8).urls) == set(
            before
        )

        caching, howto, mod = (
            root / "en" / name for name in ("caching.html", "howto/auth.html", "mod/core.html")
        )
        caching.write_text(caching.read_text().replace("Caching", "Hoarding"))
        os.utime(caching, (BEGAN - DAY,) * 2)  # copied with an old date: it changed when it was seen
        os.utime(mod)  # touched
        howto.unlink()
        (root / "en" / "new.html").write_text("<title>New</title><p>a new page")
        index = root / "en" / "index.html"
        index.write_text(index.read_text().replace("</body>", '<a href="new.html">new</a></body>'))
        second = survey_now()
        assert (second.survey.created, second.survey.updated, second.survey.deleted) == (1, 2, 0)
        assert second.survey.requests < first.survey.requests + 5
        after = written(config, out)
        prefix = f"{config.site}/en"
        assert after.keys() ^ before.keys() == {f"{prefix}/new.html", f"{prefix}/howto/auth.html"}
        changed = {url for url in after if after[url] != before.get(url)}
        assert changed == {f"{prefix}/{name}" for name in ("caching.html", "new.html", "index.html")}
        assert survey_now().survey.deleted == 1
        assert kinds(config) >= {("deleted", f"{prefix}/howto/auth.html"), ("created", f"{prefix}/new.html")}


def written(config: HostConfig, out: Path) -> dict[str, str]:
    index = Index(config.state)
    try:
        write_sitemap(index.pages(), out, base=config.site)
    finally:
        index.close()
    return entries(out)


def kinds(config: HostConfig) -> set[tuple[str, str]]:
    index = Index(config.state)
    try:
        return {(change.kind, change.url) for change in index.changes()}
    finally:
        index.close()


def file_of(root: Path, url: str) -> Path:
    path = root / urlsplit(url).path.lstrip("/")
    return path / "index.html" if url.endswith("/") else path


def iso(seconds: float) -> str:
    return sitemap_file.xml_time(int(seconds))
