"""Pages: what is read of them, and that nothing in them stops the reader."""

import time
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.model import MEDIA_RELS, Link, Links
from sterna.web.html import Html, May, read_html, read_may
from sterna.web.markup import MAX_LINKS, language_of
from sterna.web.urls import Canonical, fingerprint

URL = "http://www.example.org/docs/page.html"
SITE = "http://www.example.org"

canonical = Canonical()


def read(text: str, *, x_robots: str = "") -> Html:
    return read_html(text, URL, canonical, x_robots=x_robots)


def links_of(text: str) -> list[tuple[str, str, str]]:
    return [(link.url.removeprefix(SITE), link.text, link.rel) for link in read(text).links]


def test_a_page_is_read_as_a_whole() -> None:
    page = read("""<!DOCTYPE html><html lang=en-GB><head><title> A  small
        page </title><link rel=canonical href="/docs/?utm_source=x"></head>
        <body><h1>Hello</h1><p>See <a href="next.html">the <b>next</b> page</a>.</p></body></html>""")
    assert page == Html(
        title="A small page",
        text="Hello See the next page.",
        language="en-gb",
        links=Links.of(
            Link("http://www.example.org/docs/", "", "canonical"),
            Link("http://www.example.org/docs/next.html", "the next page", ""),
        ),
        marks=array("q", [fingerprint(f"{SITE}/docs/"), fingerprint(f"{SITE}/docs/next.html")]).tobytes(),
        may_index=True,
        may_follow=True,
        may_archive=True,
    )


def test_an_empty_page_says_nothing() -> None:
    page = read("")
    assert (page.title, page.text, page.language, page.links) == ("", "", "", Links())


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>one</p><p>two</p>", "one two"),
        ("<td>outside<table><tr><td>a</td><td>b</td></tr></table>", "outside a b"),
        ("<ul><li>a<li>b</ul>c", "a b c"),
        ("a<br>b<hr>c", "a b c"),
        ("<div>a</div>b<span>c</span>", "a bc"),
        ("<b>a</b>b<i>c</i>, d<wbr>e", "abc, de"),
        ("<a><h3>title</h3></a>by me", "title by me"),
        ("one<!-- -->two", "onetwo"),
        ("<my-card>a</my-card><my-card>b</my-card>", "a b"),
        ("a<script>x</script>b<style>y</style>c", "a b c"),
        ("<body><noscript>x</noscript><svg><text>x</text></svg><template>x</template>a", "a"),
        ("<iframe src=x>old</iframe>a", "a"),
        ("a&nbsp;&amp;\n\t b&lt;c&#x41;", "a & b<cA"),
        ("<select><option>a<option>b</select>", "a b"),
    ],
)
def test_the_text_is_what_is_seen_with_blocks_apart(markup: str, text: str) -> None:
    assert read(markup).text == text


@pytest.mark.parametrize(
    ("markup", "title"),
    [
        ("<title>a</title><title>b</title>", "a"),
        ("<body><svg><title>icon</title></svg><title>page</title>", "page"),
        ("<title>&lt;b&gt; <b>x</b></title>", "<b> <b>x</b>"),
        ("<title></title>text", ""),
        ("<title>" + "x" * 600 + "</title>", "x" * 500),
    ],
)
def test_the_title_is_the_first_of_the_page_itself(markup: str, title: str) -> None:
    assert read(markup).title == title


@pytest.mark.parametrize(
    ("markup", "language"),
    [
        ("<html lang=de>", "de"),
        ("<html lang=PT_br>", "pt-br"),
        ("<html xml:lang=fr-CA>", "fr-ca"),
        ("<meta http-equiv=Content-Language content='nl, en'>", "nl"),
        ("<html lang=it><meta http-equiv=Content-Language content=nl>", "it"),
        ("<html lang=''>", ""),
    ],
)
def test_the_language_is_the_declared_one(markup: str, language: str) -> None:
    assert read(markup).language == language


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("zh-Hans-CN", "zh-cn"),
        ("sr-Latn", "sr"),
        ("es-419", "es-419"),
        ("de-1996", "de"),
        ("english", ""),
        ("x-default", ""),
        ("", ""),
    ],
)
def test_language_tags_are_cut_to_language_and_region(tag: str, language: str) -> None:
    assert language_of(tag) == language


@pytest.mark.parametrize(
    ("markup", "links"),
    [
        ("<a href=a rel='NoFollow  UGC'>x</a>", [("/docs/a", "x", "nofollow ugc")]),
        ("<map><area href=a alt=' the  area '></map>", [("/docs/a", "the area", "area")]),
        ("<iframe src=a></iframe>", [("/docs/a", "", "iframe")]),
        (
            "<frameset><frame src=a><frame src=b></frameset>",
            [("/docs/a", "", "frame"), ("/docs/b", "", "frame")],
        ),
        ("<link rel='next' href=a>", [("/docs/a", "", "next")]),
        ("<link rel='Alternate' type='application/rss+xml' href=a>", [("/docs/a", "", "alternate")]),
        ("<meta http-equiv=refresh content='5; URL=a'>", [("/docs/a", "", "refresh")]),
        ("<meta http-equiv=Refresh content='0,url=\"a b\" '>", [("/docs/a%20b", "", "refresh")]),
        ("<meta http-equiv=refresh content='0; a'>", [("/docs/a", "", "refresh")]),
        ("<body><noscript><a href=a>x</a></noscript>", [("/docs/a", "", "")]),
        ("<svg><a xlink:href=a><text>x</text></a></svg>", [("/docs/a", "", "")]),
        ("<a href=' a\n '>x</a>", [("/docs/a", "x", "")]),
        ("<a href=a><img alt=i></a>", [("/docs/a", "", "")]),
    ],
)
def test_links_are_found_where_pages_are_named(markup: str, links: list[tuple[str, str, str]]) -> None:
    assert links_of(markup) == links


@pytest.mark.parametrize(
    "markup",
    [
        "<link rel=preload href=a><link rel=stylesheet><link rel=icon href=''>",
        "<link rel=dns-prefetch href=//a><link rel=preconnect href=//a><link rel=manifest href=a>",
        "<link rel=manifest href=a><link href=a>",
        "<link rel=alternate type='application/json+oembed' href=a>",
        "<meta http-equiv=refresh content=5>",
        "<a name=a>x</a><a href='#top'>x</a><a href=''>x</a>",
        "<a href='javascript:x()'>x</a><a href='mailto:a@b'>x</a>",
        "<a href='" + "x" * 100_000 + "'>x</a>",
        "<template><a href=a>x</a></template>",
        "<!-- <a href=a>x</a> --><textarea><a href=a>x</a></textarea>",
    ],
)
def test_what_names_no_other_page_is_no_link(markup: str) -> None:
    assert links_of(markup) == []


@pytest.mark.parametrize(
    ("markup", "links"),
    [
        ("<img src=a>", {"a": "img"}),
        ("<picture><source srcset='a 2x'><img src=b></picture>", {"a": "img", "b": "img"}),
        ("<video src=a poster=b><source src=c><track src=d></video>",
         {"a": "media", "b": "img", "c": "media", "d": "media"}),
        ("<audio src=a></audio>", {"a": "media"}),
        ("<script src=a></script><script>x</script>", {"a": "script"}),
        ("<link rel=stylesheet href=a><link rel='alternate stylesheet' href=b>",
         {"a": "stylesheet", "b": "stylesheet"}),
        ("<link rel='shortcut icon' href=a><link rel=apple-touch-icon href=b>", {"a": "icon", "b": "icon"}),
        ("<link rel=preload as=font href=a><link rel=modulepreload href=b>", {"a": "font", "b": "script"}),
        ("<link rel=preload href=a><link rel=preconnect href=b>", {}),
        ("<img src='data:image/png;base64,AA=='><img src=''>", {}),
        ("<noscript><img src=a></noscript>", {"a": "img"}),
    ],
)  # fmt: skip
def test_links_to_media_are_recorded_with_their_kind(markup: str, links: dict[str, str]) -> None:
    assert links_of(markup) == [(f"/docs/{path}", "", rel) for path, rel in links.items()]


@pytest.mark.parametrize(
    ("srcset", "paths"),
    [
        ("a.jpg, b.jpg 2x", ["a.jpg", "b.jpg"]),
        (" , a.jpg 100w ,\n b.jpg 200w,", ["a.jpg", "b.jpg"]),
        ("a,b.jpg 1x", ["a,b.jpg"]),
        ("data:image/png;base64,AA== 1x, b.jpg 2x", ["b.jpg"]),
        ("a.jpg (x,y) 2x, b.jpg", ["a.jpg", "b.jpg"]),
    ],
)
def test_all_candidates_of_images_are_links(srcset: str, paths: list[str]) -> None:
    expected = [f"/docs/{path}" for path in paths]
    for markup in (f"<img srcset='{srcset}'>", f"<picture><source srcset='{srcset}'></picture>"):
        found = links_of(markup)
        assert [path for path, _, _ in found] == expected
        assert {rel for _, _, rel in found} <= {"img", "srcset"}


def test_candidates_that_usual_screens_do_not_show_are_told_apart() -> None:
    widths = ", ".join(f"{width}.jpg {width}w" for width in (150, 300, 600, 1024, 1536, 2048))
    rels = {path: rel for path, _, rel in links_of(f"<img srcset='{widths}' sizes='600px'>")}
    assert {path for path, rel in rels.items() if rel == "img"} == {"/docs/600.jpg", "/docs/1024.jpg"}
    assert len(rels) == 6


def test_a_link_to_an_image_is_a_link_to_a_page_too() -> None:
    found = links_of("<a href=a.jpg>x</a><img src=a.jpg><a href=b.jpg rel=img>y</a>")
    assert found == [("/docs/a.jpg", "x", ""), ("/docs/b.jpg", "y", ""), ("/docs/a.jpg", "", "img")]


def test_the_first_base_with_href_holds_for_all_links() -> None:
    markup = "<a href=a>x</a><base target=_top><base href=/b/><base href=/c/><link rel=canonical href=d>"
    assert [path for path, _, _ in links_of(markup)] == ["/b/a", "/b/d"]


def test_a_base_that_is_no_web_page_is_ignored() -> None:
    assert links_of("<base href='data:,x'><a href=a>x</a>") == [("/docs/a", "x", "")]


@pytest.mark.parametrize(
    ("markup", "link"),
    [
        ("<a href=a></a><a href=a>x</a><a href=a>y</a>", ("/docs/a", "x", "")),
        ("<a href=a#1>x</a><a href=./a?utm_source=y>y</a>", ("/docs/a", "x", "")),
        ("<a href=a rel=nofollow>x</a><a href=a>y</a>", ("/docs/a", "x", "")),
        ("<a href=a>x</a><a href=a rel=nofollow>y</a>", ("/docs/a", "x", "")),
        ("<a href=a rel=nofollow>x</a><a href=/docs/a rel=next>y</a>", ("/docs/a", "x", "next")),
        ("<a href=a rel=nofollow>x</a><a href=/docs/a rel=nofollow>y</a>", ("/docs/a", "x", "nofollow")),
    ],
)
def test_a_target_is_listed_once_with_the_best_of_its_links(markup: str, link: tuple[str, str, str]) -> None:
    assert links_of(markup) == [link]


def test_link_texts_are_collapsed_and_cut() -> None:
    assert links_of("<a href=a> x\n<p>y</p>z </a>") == [("/docs/a", "x y z", "")]
    assert links_of("<a href=a>" + "x" * 500 + "</a>") == [("/docs/a", "x" * 200, "")]


def test_a_page_has_no_more_links_than_the_bound() -> None:
    markup = "".join(f"<a href=/{number}>x</a>" for number in range(MAX_LINKS + 100))
    links = read(markup).links
    assert len(links) == MAX_LINKS
    assert list(links)[-1].url == f"{SITE}/{MAX_LINKS - 1}"


@pytest.mark.parametrize(
    ("markup", "may"),
    [
        ("", May(index=True, follow=True, archive=True)),
        ("<meta name=robots content='noindex'>", May(index=False, follow=True, archive=True)),
        ("<meta name=ROBOTS content='NOFOLLOW,NoArchive'>", May(index=True, follow=False, archive=False)),
        ("<meta name=robots content=none>", May(index=False, follow=False, archive=True)),
        ("<meta name=Sterna content='noindex nofollow'>", May(index=False, follow=False, archive=True)),
        ("<meta name=googlebot content=none>", May(index=True, follow=True, archive=True)),
        ("<meta name=robots content=all><meta name=sterna content=noindex>", May(False, True, True)),
        ("<meta name=description content=noindex>", May(index=True, follow=True, archive=True)),
    ],
)
def test_robots_metas_are_obeyed(markup: str, may: May) -> None:
    page = read(markup)
    assert May(page.may_index, page.may_follow, page.may_archive) == may


@pytest.mark.parametrize(
    ("x_robots", "may"),
    [
        ("noindex", May(index=False, follow=True, archive=True)),
        ("Noindex, NOFOLLOW", May(index=False, follow=False, archive=True)),
        ("otherbot: noindex, nofollow", May(index=True, follow=True, archive=True)),
        ("otherbot: noindex, Sterna: noarchive", May(index=True, follow=True, archive=False)),
        ("noarchive, otherbot: none", May(index=True, follow=True, archive=False)),
        ("unavailable_after: 25 Jun 2030 15:00:00 PST, noindex", May(index=False, follow=True, archive=True)),
        (
            "unavailable_after: Tuesday, 25-Jun-30 15:00:00 GMT, none",
            May(index=False, follow=False, archive=True),
        ),
        ("max-snippet: 20, nofollow", May(index=True, follow=False, archive=True)),
        ("*: none", May(index=False, follow=False, archive=True)),
    ],
)
def test_the_header_is_obeyed_where_it_means_us(x_robots: str, may: May) -> None:
    page = read("", x_robots=x_robots)
    assert May(page.may_index, page.may_follow, page.may_archive) == read_may(x_robots) == may


def test_the_stricter_of_header_and_meta_holds() -> None:
    page = read("<meta name=robots content='index, nofollow'>", x_robots="noindex")
    assert (page.may_index, page.may_follow) == (False, False)


def test_links_of_a_page_that_forbids_following_are_still_listed() -> None:
    assert len(read("<meta name=robots content=nofollow><a href=a>x</a>").links) == 1


def test_what_stores_refuse_does_not_leave() -> None:
    page = read("<html lang='\0'><title>\0t\ud800</title><a href='a\0b' rel='\0'>\0l\udfff&#0;&#xd800;</a>\0")
    strings = [page.title, page.text, page.language]
    strings += [string for link in page.links for string in (link.url, link.text, link.rel)]
    assert "t" in page.title
    assert all("\0" not in string and string.encode() for string in strings if string)


NESTED_LINKS = "".join(f"<a href={n}><object>" for n in range(3_000))
HOSTILE = {
    "nested blocks": "<div>" * 100_000 + "the end",
    "nested and closed blocks": "<div>" * 50_000 + "the end" + "</div>" * 50_000,
    "nested lists": "<ul><li>" * 50_000 + "the end",
    "nested inline elements": "<span>" * 100_000 + "the end",
    "nested links": "<a href=a><object>" * 20_000 + "the end",
    "links around a long text": NESTED_LINKS + "x " * 1_600_000 + "the end",
    "links around much text": NESTED_LINKS + "x<!---->" * 120_000 + "the end",
    "open formatting elements": "<p>"
    + "".join(f"<font n{n}>" for n in range(4_000))
    + "<p>x" * 4_000
    + "the end",
    "misnested formatting": "".join(f"<b n{n}><p>" for n in range(3_000)) + "</b>" * 3_000 + "the end",
    "stray end tags": "<div>" * 20_000 + "</p></span>" * 20_000 + "the end",
    "attributes without end": "<p " + " ".join(f"a{n}=1" for n in range(200_000)) + ">the end",
    "a huge attribute": "<p title='" + "x" * 5_000_000 + "'>the end",
    "a huge tag name": "<a" * 200_000 + ">the end",
    "unclosed quotes": "<a b='" * 80_000,
    "an unclosed comment": "<!--" + "-" * 2_000_000,
    "commas": "<img srcset='" + "," * 1_000_000 + "'>the end",
    "open parentheses": "<img srcset='" + "a (," * 300_000 + "'>the end",
    "a long refresh": "<meta http-equiv=refresh content='" + "5" * 1_000_000 + " ;" * 100_000 + "'>the end",
    "many links": "<a href=x>x</a>" * 40_000 + "the end",
    "less-than signs": "<" * 400_000,
    "nested drawings": "<svg><g>" * 20_000,
    "nested templates": "<template>" * 50_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_are_read_in_good_time(name: str) -> None:
    text = HOSTILE[name]
    start = time.process_time()
    page = read(text)
    assert time.process_time() - start < 2  # 0.3 s at most; with the square of the page it takes minutes
    if text.endswith("the end"):
        assert page.text.endswith("the end")


def test_links_of_a_tamed_page_are_kept() -> None:
    page = read("<title>t</title>" + "<div>" * 100_000 + "<a href=a>x <b>y</b></a>" + "<div>" * 100)
    assert page.title == "t"
    assert page.links == Links.of(Link(SITE + "/docs/a", "x y", ""))


def test_comparisons_in_scripts_do_not_count_as_tags() -> None:
    page = read("<script>" + "i<b;" * 5_000 + "</script>" + "<p>x<b>y</b></p>" * 3_000)
    assert page.text.startswith("xy xy")


def test_the_shapes_of_a_drawing_do_not_count_as_nested() -> None:
    page = read("<svg>" + "<path d='M0'/>" * 20_000 + "</svg>" + "<p>x<b>y</b></p>")
    assert page.text == "xy"


TAGS = st.sampled_from([
    "<a href=x>", "</a>", "<b>", "</b>", "<p>", "</p>", "<div>", "</div>", "<table>", "<td>", "</table>",
    "<svg>", "</svg>", "<title>", "</title>", "<noscript>", "</noscript>", "<script>", "</script>", "x",
    "<base href=/b>", "<img srcset='a, b 2x'>", "<img src=x>",
    "<meta name=robots content=none>", "<!--", "-->", "&amp;",
    "&#0;", "<frameset>", "<template>", "</template>", "<select>", "<option>", "<link rel=next href=n>",
    "\0", "\ud800", "<?", " ",
])  # fmt: skip


@given(st.one_of(st.text(max_size=200), st.lists(TAGS, max_size=40).map("".join)))
def test_any_text_is_read(text: str) -> None:
    page = read(text)
    assert page.text == " ".join(page.text.split())
    assert "\0" not in page.text + page.title
    assert (page.text + page.title).encode()[:0] == b""
    assert all(canonical(link.url) == link.url for link in page.links)
    assert len({(link.url, link.rel in MEDIA_RELS) for link in page.links}) == len(page.links)
