"""Sitemaps: each form that sites use, broken ones, and hostile ones."""

import gzip
import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import ReadError
from sterna.web.sitemap import Sitemap, read_sitemap
from sterna.web.urls import Canonical

URL = "http://www.example.org/sitemap.xml"
SITE = "http://www.example.org"
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'

canonical = Canonical()


def read(body: bytes | str, *, max_bytes: int = 1_000_000, max_urls: int = 50_000) -> Sitemap:
    body = body.encode() if isinstance(body, str) else body
    return read_sitemap(body, URL, canonical, max_bytes=max_bytes, max_urls=max_urls)


def urlset(*locations: str) -> str:
    entries = "".join(f"<url><loc>{location}</loc></url>" for location in locations)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset {NAMESPACE}>{entries}</urlset>'


def refusal(body: bytes | str, *, max_bytes: int = 1_000_000) -> str:
    with pytest.raises(ReadError) as caught:
        read(body, max_bytes=max_bytes)
    return caught.value.kind


def test_a_urlset_names_pages() -> None:
    body = urlset(
        f"{SITE}/a?x=1&amp;y=2", f"\n {SITE}/b?utm_source=z \n", f"<![CDATA[{SITE}/c?x=1&y=2]]>", f"{SITE}/b"
    )
    assert read(body) == Sitemap((f"{SITE}/a?x=1&y=2", f"{SITE}/b", f"{SITE}/c?x=1&y=2"), ())


def test_an_index_names_sitemaps() -> None:
    entry = f"<sitemap><loc>{SITE}/1.xml.gz</loc><lastmod>2030-01-01</lastmod></sitemap>"
    body = f"<sitemapindex {NAMESPACE}>{entry}</sitemapindex>"
    assert read(body) == Sitemap((), (f"{SITE}/1.xml.gz",))


@pytest.mark.parametrize(
    "body",
    [
        "<urlset><url><loc>/a</loc></url></urlset>",
        f'<s:urlset xmlns:s="http://x"><s:url><s:loc>{SITE}/a</s:loc></s:url></s:urlset>',
        f"  \n<?xml version='1.0'?><urlset><url><loc>{SITE}/a</loc></url></urlset>",
        f"\ufeff<urlset><url><loc>{SITE}/a</loc></url></urlset>",
        f"<URLSET><URL><LOC>{SITE}/a</LOC></URL></URLSET>",
    ],
)
def test_namespaces_absolute_urls_and_a_clean_start_are_optional(body: str) -> None:
    assert read(body).urls == (f"{SITE}/a",)


@pytest.mark.parametrize("codec", ["utf-16", "windows-1251", "shift_jis"])
def test_other_encodings_are_read(codec: str) -> None:
    body = f'<?xml version="1.0" encoding="{codec}"?><urlset><!--Я--><url><loc>{SITE}/Я</loc></url></urlset>'
    assert read(body.encode(codec)).urls == (f"{SITE}/%D0%AF",)


def test_images_and_translations_are_not_pages() -> None:
    body = f"""<urlset xmlns:image="i" xmlns:xhtml="x"><url><loc>{SITE}/a</loc>
        <image:image><image:loc>{SITE}/a.png</image:loc></image:image>
        <xhtml:link rel="alternate" hreflang="de" href="{SITE}/de"/></url></urlset>"""
    assert read(body).urls == (f"{SITE}/a",)


def test_plain_lines_are_a_sitemap() -> None:
    assert read(f"{SITE}/a\r\n\r\n  {SITE}/b \n# a comment\nmailto:x\n").urls == (f"{SITE}/a", f"{SITE}/b")


def test_feeds_are_sitemaps() -> None:
    rss = f"<rss><channel><link>{SITE}/</link><item><link>{SITE}/a</link></item></channel></rss>"
    atom = f"<feed><entry><link href='{SITE}/a'/><link rel='edit' href='{SITE}/edit'/></entry></feed>"
    assert read(rss).urls == read(atom).urls == (f"{SITE}/a",)


def test_gzip_is_known_by_its_magic_and_bounded() -> None:
    assert read(gzip.compress(urlset("/a").encode())).urls == (f"{SITE}/a",)
    assert refusal(gzip.compress(bytes(2_000_000))) == "bomb"


ALL = (f"{SITE}/a", f"{SITE}/b", f"{SITE}/c")


@pytest.mark.parametrize(
    ("body", "urls", "lost"),
    [
        (urlset("/a", "/b?x=1&copy=2&y", "/c"), (ALL[0], f"{SITE}/b?x=1&copy=2&y", ALL[2]), 0),
        ("<!-- by hand -->" + urlset("/a", "/b", "/c"), ALL, 0),
        (urlset("/a", "/b\x0b", "\x00/c"), ALL, 0),
        (urlset("/a", "/&eacute;", "/c&#x1;"), (ALL[0], f"{SITE}/%C3%A9", ALL[2]), 0),
        (urlset("/a", "/&tern;b", "/c"), (ALL[0], ALL[2]), 1),
        (urlset("/a", "http://", "/b", "mailto:a@b.org", "/c"), ALL, 2),
        (urlset("/a", "/b", "/c").replace("</url>", "", 1), ALL, 0),
        (urlset("/a", "/b", "/c").replace("<url>", "<url></lastmod>", 1), ALL, 0),
        (urlset("/a", "/b", "/c").replace("/c</loc></url></urlset>", "/c</loc>"), ALL, 0),
        (urlset("/a", "/b", "/c").replace("/b", "<![CDATA[/b]]>&"), (ALL[0], f"{SITE}/b&", ALL[2]), 0),
    ],
)
def test_a_malformed_sitemap_is_recovered_and_what_is_lost_is_counted(
    body: str, urls: tuple[str, ...], lost: int
) -> None:
    assert read(body) == Sitemap(urls, (), lost)


@pytest.mark.parametrize(
    "piece", ["<!DOCTYPE[", "<!", "<a'", "<!--", "<![CDATA[", "<urlset>", "</urlset>", "&", "<url><loc>x"]
)
def test_recovering_takes_time_in_proportion_to_the_length(piece: str) -> None:
    for body in (piece * 50_000, "<urlset>" * 20_000 + piece * 20_000):
        began = time.perf_counter()
        with suppress(ReadError):
            read("<urlset>" + body)
        assert time.perf_counter() - began < 3


@pytest.mark.parametrize("rest", ["<{}", "<{}'", "<loc {}>", "<loc {}", "<loc x{}='", "<!DOCTYPE {}", "&{}"])
def test_long_names_take_time_in_proportion_to_their_length(rest: str) -> None:
    began = time.perf_counter()
    with suppress(ReadError):
        read("<urlset>" + rest.format("a" * 400_000))
    assert time.perf_counter() - began < 2


def test_a_sitemap_that_is_cut_gives_what_stands_before_the_cut() -> None:
    whole = urlset("/a", "/b", "/c?x=1&amp;y=2")
    assert read(whole[: whole.index("/c")]).urls == ALL[:2]


def test_a_sitemap_longer_than_the_bound_is_read_up_to_it() -> None:
    body = urlset(*(f"/{number}" for number in range(1_000)))
    assert 100 < len(read(body, max_bytes=10_000).urls) < 1_000


def test_no_more_urls_are_read_than_asked_for() -> None:
    assert len(read(urlset(*(f"/{number}" for number in range(100))), max_urls=10).urls) == 10
    assert len(read("".join(f"{SITE}/{number}\n" for number in range(100)), max_urls=10).urls) == 10


def test_a_sitemap_may_be_empty() -> None:
    assert read(urlset()) == Sitemap((), ())
    assert read(urlset("", " ")) == Sitemap((), ())


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not found",
        "<!DOCTYPE html><html><head><title>Not found</title></head></html>",
        "<html><url><loc>http://www.example.org/a</loc></url></html>",
        "<urlset><url>",
        "<",
    ],
)
def test_what_is_no_sitemap_is_refused(body: str) -> None:
    assert refusal(body) == "sitemap"


def test_a_bad_byte_spoils_only_its_own_url() -> None:
    body = (
        urlset("/a", "/b@", "/c")
        .encode()
        .replace(b"@", b"\xff")
        .replace(b' encoding="UTF-8"', b' encoding="utf8"')
    )
    urls = read(body).urls
    assert (urls[0], urls[-1], len(urls)) == (f"{SITE}/a", f"{SITE}/c", 3)


def test_entities_are_never_expanded() -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    body = f'<!DOCTYPE x [<!ENTITY l0 "ha">{laughs}]><urlset><url><loc>{SITE}/&l11;</loc></url></urlset>'
    tracemalloc.start()
    assert refusal(body) == "sitemap"
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE x [<!ENTITY % e SYSTEM "file:///etc/hostname"> %e;]>',
    ],
)
def test_files_are_never_read(doctype: str) -> None:
    assert refusal(f"{doctype}<urlset><url><loc>{SITE}/&e;</loc></url></urlset>") == "sitemap"


def test_a_document_type_without_entities_does_no_harm() -> None:
    doctype = '<!DOCTYPE urlset SYSTEM "http://127.0.0.1:9/never-fetched.dtd">'
    assert read(f"{doctype}<urlset><url><loc>/a</loc></url></urlset>").urls == (f"{SITE}/a",)


@pytest.mark.parametrize(
    "body",
    [
        "<urlset>" + "<url>" * 300_000,
        "<urlset><url><loc>" + "x" * 3_000_000,
        "<urlset><!--" + "x" * 3_000_000,
        "<urlset " + " ".join(f"a{number}='1'" for number in range(150_000)) + ">",
    ],
)
def test_hostile_sitemaps_are_refused_in_good_time(body: str) -> None:
    start = time.process_time()
    assert refusal(body, max_bytes=20_000_000) == "sitemap"
    assert time.process_time() - start < 3  # 0.5 s at most; with the square of the file it takes minutes


MARKUP = st.sampled_from([
    "<urlset>", "</urlset>", "<url>", "</url>", "<loc>", "</loc>", "http://x/", "&amp;", "&", "<![CDATA[",
    "]]>", "<!DOCTYPE", "<?xml", "?>", "<sitemapindex>", "<rss>", "<item>", "<link>", "<!ENTITY", "\0",
    "\x1f\x8b", "\n",
])  # fmt: skip


@given(
    st.one_of(
        st.binary(max_size=200), st.lists(MARKUP, max_size=30).map(lambda parts: "".join(parts).encode())
    )
)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        found = read(body)
    except ReadError as error:
        assert error.kind in ("sitemap", "encoding", "bomb")
    else:
        assert all(canonical(url) == url for url in found.urls + found.sitemaps)
