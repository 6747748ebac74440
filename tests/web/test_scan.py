"""The scan for links: either it is unsure, or it finds what the tree says, in the same order."""

import random
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.servers.nginx import real_site

from sterna.web.charset import decode_text
from sterna.web.scan import scan
from sterna.web.walk import read_tree

Said = tuple[str, str, str, list[str], list[tuple[str, str]], list[tuple[str, str]]]


def by_scan(text: str) -> Said | None:
    page = scan(text, agent="sterna")
    if page is None:
        return None
    links = [(href, rel) for href, (_, rel) in page.hrefs.items()]
    return page.language, page.content_language, page.base, page.robots, links, list(page.media.items())


def by_tree(text: str) -> Said:
    page = read_tree(text, agent="sterna")
    links = [(href, rel) for href, (_, rel) in page.hrefs.items()]
    return page.language, page.content_language, page.base, page.robots, links, list(page.media.items())


def is_sure(text: str) -> bool:
    """Tells whether the scan is sure of a page; what it then says must be what the tree says."""
    said = by_scan(text)
    if said is not None:
        assert said == by_tree(text), text[:2_000]
    return said is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text only",
        "<!DOCTYPE html><html lang=en-GB><head><title>a</title></head><body>x</body></html>",
        '<a href=\'x\'>1</a> <a href=y>2</a> <a class="c" href="z" title=\'it"s\'>3</a>',
        '<a href="x" rel="NoFollow  ugc">1</a><a href="x">2</a>',
        '<a href="?a=1&amp;b=2&copy=3&lt;&#38;&unknown;">1</a>',
        '<a name="place"></a><a href="#place">here</a><a href="x#place">there</a>',
        '<A HREF="x" REL=next>1</A><TABLE><TR><TD><A HREF=y>2</A></TABLE>',
        '<!-- <a href="no"> --><a href="x">1</a><script>"<a href=no>"</script><style>a<b{}</style>',
        '<svg viewBox="0 0 1 1"><title>t</title><path d="M0"/></svg><a href="x">1</a>',
        '<img title="<-" alt="->" src=i><a href="x">1</a>',
        '<select><option>1<option>2</select><textarea>t</textarea><iframe src="f"></iframe>',
        '<table><tr><td><a href="x">1</a></td></tr></table><a href="y">2</a>',
        '<meta name="robots" content="noindex"><meta name=STERNA content=nofollow><base href="/b/">',
        '<meta http-equiv="refresh" content="0; url=next"><link rel=next href=n><link rel=icon href=i>',
        '<a href=x><img src=a srcset="s 1x, t 2x"></a><script src="b"></script><video poster=c></video>',
        '<a href="x">1</a><img srcset="s 1x, t 2x"><map><area href=m alt=n></map>',
        "<body><noscript><a href=x>1</a></noscript>",
        "<p><a href=x>one<p>two</a>three",
    ],
)
def test_usual_pages_are_read_without_a_tree(text: str) -> None:
    assert is_sure(text)


@pytest.mark.parametrize(
    "text",
    [
        '<a href="x">1</a>\0',
        '<b title="<!-- "><a href="x">1</a><b title=" -->">',
        '<b x=y" t="d><a href="n">">',
        '<b title="1 > 0 <a href="x">',
        "<b <a href=x>",
        "<!--><a href=x>1</a>",
        "<!-- --!><a href=x>1</a>",
        "<!-- <a href=x>1</a>",
        "<script><a href=x>1</a>",
        "<script><!--<script></script><a href=x></a></script>",
        "<title><a href=x>1</a>",
        "<template><a href=x>1</a></template>",
        "<textarea><a href=x>1</a></textarea>",
        "<select><a href=x>1</a></select>",
        "<iframe><a href=x>1</a></iframe>",
        "<xmp><a href=x>1</a></xmp>",
        "<plaintext><a href=x>1</a>",
        "<svg><a xlink:href=x>1</a></svg>",
        "<frameset><frame src=a></frameset>",
        "<table><tr><td><a href=x>1</a></td><a href=y>2</a></tr></table>",
        "<a href=x><table><tr><td><a href=y>2</a></table>",
        "<html lang=en><html lang=de>",
        '<a href="&#0;&#xD800;">1</a>',
        '<a href="x\ry">1</a>',
    ],
)
def test_pages_on_which_a_tree_may_differ_are_left_to_it(text: str) -> None:
    assert not is_sure(text)


PIECES = [
    '<a href="x">', "<a href='y'>", "<a href=z rel=nofollow>", '<a name="n">', "</a>", "<A HREF=u>",
    "</A>", '<a href="q?a&amp;b=1&copy=2&lt" class=c>', '<a href="d" href="e">', "<a\nhref=l>",
    "<a/href=m>", "<a", "<p>", "</p>", "<div>", "</div>", "<b>", "</b>", "<span title='<a href=v>'>",
    '<i t="1>2">', "<h1>", "</h1>", "<table>", "</table>", "<tr>", "</tr>", "<td>", "</td>", "<tbody>",
    "<caption>", "</caption>", "<col>", "<ul>", "<li>", "</ul>", "<form>", "</form>", "<button>",
    "</button>", "<br/>", "</br>", "<hr>", "<input>", "<select>", "<option>", "</select>", "<textarea>",
    "</textarea>", "<script>", "</script>", "<style>", "</style>", "<title>", "</title>", "<noscript>",
    "</noscript>", "<svg>", "<path/>", "</svg>", "<math>", "<template>", "</template>", '<iframe src="f">',
    "</iframe>", "<html lang=de>", "<head>", "</head>", "<body>", "</body>", "</html>", '<base href="b/">',
    "<meta name=robots content=noindex>", "<link rel=next href=n>", "<area href=r>",
    '<img srcset="s 1x,t 2x">', "<img src=i>", '<script src="j">', "<SCRIPT SRC=k>", "<video src=o poster=v>",
    "<track src=w>", "<source src=w>", "<link rel=icon href=i>", "<link rel=stylesheet href='m'>",
    "<frameset>", "<frame src=g>", "<xmp>", "<image>",
    "<!-- -->", "<!--", "-->", "--!>", "<!-->", "<!doctype html>", "<?pi>", "<![CDATA[", "]]>", "<", ">",
    "&", '"', "'", "=", "<3", "</3", ' x=y" t="', "&amp;", "&#65;", "&#0;", "text", " ", "\n", "\r",
    "\x00", "\x0b",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_a_soup_of_tags_is_read_as_the_tree_has_it(text: str) -> None:
    is_sure(text)


def test_small_soups_are_often_read_and_always_as_the_tree_has_them() -> None:
    dice = random.Random(7)
    soups = ["".join(dice.choices(dice.sample(PIECES, 8), k=12)) for _ in range(10_000)]
    assert sum(map(is_sure, soups)) > 1_000


def pages_of(site: str, *, step: int) -> Iterator[str]:
    for path in islice(sorted(real_site(site).rglob("*.html")), 0, None, step):
        if path.is_file():
            yield read(path)


def read(path: Path) -> str:
    return decode_text(path.read_bytes(), None)[0]


@pytest.mark.servers
@pytest.mark.parametrize(("site", "step"), [("sqlite3-doc", 4), ("apache2-doc", 12), ("debian-handbook", 15)])
def test_real_pages_are_read_as_the_tree_has_them(site: str, step: int) -> None:
    sure = [is_sure(text) for text in pages_of(site, step=step)]
    assert len(sure) > 100
    assert sum(sure) > 0.98 * len(sure)


@pytest.mark.servers
def test_damaged_pages_are_read_as_the_tree_has_them() -> None:
    dice = random.Random(7)
    for text in pages_of("sqlite3-doc", step=10):
        for _ in range(20):
            is_sure(damage(text[:20_000], dice))


def damage(text: str, dice: random.Random) -> str:
    start = dice.randrange(len(text))
    end = start + dice.choice([1, 2, 5, 20, 100, 500])
    return dice.choice(
        [
            text[:start],
            text[:start] + text[end:],
            text[:end] + text[start:],
            text[:start] + text[start:end].replace('"', "'") + text[end:],
            text[:start] + dice.choice(PIECES) + text[start:],
        ]
    )


@pytest.mark.parametrize(
    "piece",
    [
        "<", ">", "&", '"', "=", '="', "</", "<3 ", "<a ", "<a href=", '<a href="', '<a href="x">',
        "<a href=x>t</a>", "<A HREF=x>", "<p x=", "<!--", "<!-- -- ", "<script>", "<script", "<style>",
        "<title>", "<svg>", "<svg><path>", "<select>", "<select><option>", "<textarea>", "<iframe>",
        "<table>", "<table><tr><td>", "<table> ", "<div>", '<b x=\'"\' y="<">', "<img srcset=x>",
        '<img title="<">', "&amp", "&#", "<a href=x><img srcset=y>", "<b>",
        "<script src=x>", "<script src=x></script>", "<video><source src=x>",
    ],
)  # fmt: skip
def test_no_page_takes_long(piece: str) -> None:
    for text in (
        piece * (400_000 // len(piece)),
        "<body><table>" + piece * (400_000 // len(piece)) + "'\">",
    ):
        start = time.process_time()
        scan(text, agent="sterna")
        assert time.process_time() - start < 2  # 0.4 s at most; with the square of the page it takes minutes


@pytest.mark.parametrize(
    "text",
    [
        '<a href="' + "x" * 3_000_000 + '">1</a>',
        "<a " + "x=1 " * 700_000 + "href=y>1</a>",
        "<a" + " " * 3_000_000 + "href=x>",
        "<table>" + " " * 3_000_000 + "<",
    ],
)
def test_no_tag_takes_long(text: str) -> None:
    start = time.process_time()
    scan(text, agent="sterna")
    assert time.process_time() - start < 5
