"""Real sites by a real nginx: exactly the pages that an independent reader finds on the disk."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

import pytest
from tests.crawl.running import crawl_here, rows, stored_urls
from tests.servers.nginx import NginxServer, real_site, serve
from warcio.archiveiterator import ArchiveIterator

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

_SOURCES = {"a": "href", "area": "href", "link": "href", "frame": "src", "iframe": "src"}
_NOT_PAGES = {
    "stylesheet",
    "icon",
    "shortcut",
    "preload",
    "prefetch",
    "dns-prefetch",
    "preconnect",
    "manifest",
}


# The tags that matter, outside comments and scripts: the parser takes most of its time for the others.
_TAGS = re.compile(
    r"<!--.*?-->|<(script|style)\b.*?</\1>|(<(?:base|a|area|link|frame|iframe)\s[^>]*>)", re.S | re.I
)


class Links(HTMLParser):
    """The links of a page, by the standard library's parser."""

    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "base" and not self.base:
            self.base = values.get("href", "")
        rel = set(values.get("rel", "").lower().split())
        href = values.get(_SOURCES.get(tag, ""), "")
        if href and not (tag == "link" and rel & _NOT_PAGES) and "nofollow" not in rel:
            # A browser reads a backslash as a slash; one real link of the SQLite site has one.
            self.found.add(href.strip().replace("\\", "/"))


def file_of(root: Path, url: str) -> Path | None:
    """The file that nginx answers with, if any."""
    path = root / unquote(urlsplit(url).path).lstrip("/")
    if url.endswith("/"):
        path /= "index.html"
    return path if path.is_file() else None


def reachable(root: Path, start: str) -> set[str]:
    """Every URL of the site under which there is a file, found from the start page."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(start))
    seen, todo, good = {start}, [start], set()
    while todo:
        url = todo.pop()
        path = file_of(root, url)
        if path is None:
            continue
        good.add(url)
        if path.suffix not in (".html", ".htm"):
            continue
        parser = Links()
        text = path.read_text("utf-8", errors="replace")
        parser.feed("".join(match[2] or "" for match in _TAGS.finditer(text)))
        for href in parser.found:
            joined = urldefrag(urljoin(urljoin(url, parser.base), href)).url
            link = quote(unquote(joined), safe=":/?=&;,+@!$'()*~%-._")
            if link.startswith(f"{origin}/") and link not in seen:
                seen.add(link)
                todo.append(link)
    return good


@pytest.fixture(scope="module")
def sqlite_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxServer]:
    with serve(real_site("sqlite3-doc"), folder=tmp_path_factory.mktemp("nginx")) as server:
        yield server


def test_sqlite_documentation_is_crawled_whole(sqlite_site: NginxServer, tmp_path: Path) -> None:
    start = f"{sqlite_site.url}/index.html"
    summary = crawl_here(tmp_path / "c", start, warc=True)
    expected = reachable(real_site("sqlite3-doc"), start)
    urls = stored_urls(tmp_path / "c")
    assert len(expected) > 500
    assert (set(urls) - expected, expected - set(urls)) == (set(), set())
    assert len(urls) == len(set(urls)) == summary.pages
    sql = f"SELECT title, length(text) FROM t WHERE url = '{sqlite_site.url}/lang_select.html'"
    ((title, size),) = rows(tmp_path / "c", sql)
    assert title == "SELECT"
    assert size > 10_000


def test_warc_of_a_real_site_is_read_back_whole(sqlite_site: NginxServer, tmp_path: Path) -> None:
    crawl_here(tmp_path / "c", f"{sqlite_site.url}/index.html", warc=True, max_pages=200)
    root = real_site("sqlite3-doc")
    checked = 0
    for path in (tmp_path / "c" / "warc").glob("*.warc.gz"):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                url = record.rec_headers["WARC-Target-URI"]
                if record.rec_type == "response" and record.http_headers.get_statuscode() == "200":
                    file = file_of(root, url)
                    assert file is not None
                    assert record.content_stream().read() == file.read_bytes()
                    checked += 1
    assert checked == 200


def test_handbook_in_many_languages_keeps_its_letters(tmp_path: Path) -> None:
    root = real_site("debian-handbook")
    with serve(root, folder=tmp_path / "nginx") as server:
        seeds = [f"{server.url}/{language}/index.html" for language in ("de-DE", "ja-JP", "ar-MA")]
        crawl_here(tmp_path / "c", *seeds, max_depth=1)
    for language, word in (("de-DE", "für"), ("ja-JP", "の"), ("ar-MA", "من")):
        sql = f"SELECT count(*) FROM t WHERE url LIKE '%/{language}/%' AND text LIKE '%{word}%'"
        assert rows(tmp_path / "c", sql)[0][0] > 5
    # One page of the book shows what a wrong encoding looks like.
    odd = rows(tmp_path / "c", "SELECT url FROM t WHERE text LIKE '%\ufffd%'")
    assert {url.rpartition("/")[2] for (url,) in odd} == {"basic-configuration.html"}


def test_http2_and_tls_with_a_known_authority_only(tmp_path: Path) -> None:
    with serve(real_site("sqlite3-doc"), folder=tmp_path / "nginx", http2_tls=True) as server:
        start = f"{server.tls_url}/index.html"
        unknown = crawl_here(tmp_path / "a", start, max_pages=20)
        known = crawl_here(tmp_path / "b", start, max_pages=20, ca_file=str(server.ca_path))
        log = server.log_path.read_text()
    assert (unknown.pages, unknown.ended) == (0, "waiting")
    assert known.pages == 20
    assert "HTTP/2.0" in log
