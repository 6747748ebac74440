"""HTML as Markdown; what a Markdown reader makes of it is what the page says."""

import re
import time
from html import escape as html_escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from sterna.export.markdown import to_markdown

URL = "https://www.example.org/docs/page.html"
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def shown(markdown: str) -> str:
    """The text that a reader of the Markdown sees."""
    tree = LexborHTMLParser(READER.render(markdown))
    return " ".join((tree.body.text() if tree.body else "").split())


def md(html: str) -> str:
    return to_markdown(html, URL)


CASES = {
    "headings": ("<h1>One</h1><h3>Two # </h3><h2></h2>", "# One\n\n### Two \\#\n"),
    "paragraphs": ("<p>a  b\n c</p>d<div>e</div>", "a b c\n\nd\n\ne\n"),
    "styles": ("<p>a <b>b </b><i>c</i>, <code>d_e</code>", "a **b** *c*, `d_e`\n"),
    "both styles": ("<p><b><i>a</i></b>", "***a***\n"),
    "struck": ("<p>x <s>a</s>", "x ~~a~~\n"),
    "style within a word": ("<p>un<b>believ</b>able", "unbelievable\n"),
    "style beside a style": ("<p><b>a.</b><i>b</i>", "a.b\n"),
    "break": ("<p>a<br>b<br><br>", "a\\\nb\n"),
    "link": ("<a href='x.html'>the <b>text</b></a>", "[the **text**](https://www.example.org/docs/x.html)\n"),
    "link with brackets": (
        "<a href='/a_(b)'>[x]</a>",
        "[\\[x\\]](<https://www.example.org/a_(b)>)\n",
    ),
    "link to nowhere": ("<a href='javascript:alert(1)'>x</a> <a href='#y'>y</a>", "x y\n"),
    "mail": ("<a href='mailto:a@b.org'>write</a>", "write\n"),
    "image": ("<img src=i.png alt='a [b]'>", "![a \\[b\\]](https://www.example.org/docs/i.png)\n"),
    "image without an address": ("<img src='data:image/png;base64,xx' alt=words>", "words\n"),
    "image in a link": (
        "<a href=/><img src=/i.png alt=i></a>",
        "[![i](https://www.example.org/i.png)](https://www.example.org/)\n",
    ),
    "exclamation before a link": ("Hello!<a href=/>x</a>", "Hello\\![x](https://www.example.org/)\n"),
    "list": ("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>", "- a\n- b\n  - c\n- d\n"),
    "numbers": ("<ol start=9><li>a<li><p>b<p>c</ol>", "9. a\n10. b\n\n    c\n"),
    "list after a paragraph": ("<p>x<ul><li>a</ul><p>y", "x\n\n- a\n\ny\n"),
    "quotation": ("<blockquote><p>a<p>b</blockquote>c", "> a\n>\n> b\n\nc\n"),
    "code": ("<pre><code class='language-c'>a\n  b &lt; c\n</code></pre>", "```c\na\n  b < c\n```\n"),
    "code with a fence": ("<pre>```\nx</pre>", "````\n```\nx\n````\n"),
    "code with a backtick": ("<p><code>`a</code>", "`` `a ``\n"),
    "code in a list": ("<ul><li><pre>a\n\nb</pre></ul>", "- ```\n  a\n\n  b\n  ```\n"),
    "rule": ("a<hr>b", "a\n\n---\n\nb\n"),
    "terms": ("<dl><dt>a<dd>b<dd>c</dl>", "**a**\n\n- b\n- c\n"),
    "table": (
        "<table><tr><th>a<th>b|c<tr><td><p>d</p><td><code>e|f</code></table>",
        "| a | b\\|c |\n| --- | --- |\n| d | `e\\|f` |\n",
    ),
    "table with a span": ("<table><tr><td colspan=2>a<tr><td>b<td>c</table>",
        "| a |  |\n| --- | --- |\n| b | c |\n"),
    "table that is a layout": ("<table><tr><td><h2>a</h2><td><ul><li>b</ul></table>", "## a\n\n- b\n"),
    "base": ("<head><base href='https://b.org/x/'></head><a href=y>z</a>", "[z](https://b.org/x/y)\n"),
    "unseen": ("<script>x</script><style>x</style><template>x</template><!-- x -->a<noscript>x</noscript>",
        "a\n"),
    "nothing": ("<p> <br> </p>", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_markdown_of(name: str) -> None:
    html, expected = CASES[name]
    assert md(html) == expected


MARKS = [
    "# no heading", "- no item", "+ no item", "* no item", "1. no number", "1) no number", "> no quotation",
    "=== no line", "--- no rule", "*no* _emphasis_ __none__ **at** all", "no `code`", "```no fence",
    "~~~no fence", "~~not struck~~", "[no](link)", "[no]: reference", "![no](image)", "<b>no tag</b>",
    "<!-- no comment -->", "&amp; no &lt; entity &#65;", "a | b", ":--- | ---", "snake_case_name and _x_",
    "\\*", "back\\slash", "http://no.link/_a_*b*", "    no code", "a\tb", "* * *", "***", "___",
    "1234567890. no", "|a|b|", "$x$", "a^b^",
]  # fmt: skip


@pytest.mark.parametrize("text", MARKS)
def test_marks_in_a_text_stay_text(text: str) -> None:
    assert shown(md(f"<p>{html_escape(text)}</p>")) == " ".join(text.split())
    assert shown(md(f"<ul><li>x<br>{html_escape(text)}</ul>")) == f"x {' '.join(text.split())}"


signs = st.text(st.sampled_from("ab1 #*_`~[]()<>!&;|\\-+=.:\n"), max_size=40)


@settings(max_examples=150, deadline=None)
@given(signs)
def test_any_text_is_shown_as_it_is(text: str) -> None:
    expected = " ".join(text.split())
    assert shown(md(f"<p>{html_escape(text)}</p>")) == expected
    assert shown(md(f"<h2>{html_escape(text)}</h2>")) == expected
    table = f"<table><tr><th>x<tr><td>{html_escape(text)}</table>"
    assert shown(md(table)).removeprefix("x").strip() == expected


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "b", "i", "code", "s", "a href=/x"]), signs), max_size=5))
def test_styles_never_change_the_text(pieces: list[tuple[str, str]]) -> None:
    html = "".join(
        f"<{tag}>{html_escape(text)}</{tag.split()[0]}>" if tag else html_escape(text) for tag, text in pieces
    )
    text = "".join(text for _, text in pieces)
    assert shown(md(f"<p>{html}</p>")).replace(" ", "") == "".join(text.split())


def test_no_script_gets_through() -> None:
    html = (
        "<title><script>1</script></title><p>&lt;script&gt;alert(1)&lt;/script&gt;"
        "<p title='\"><script>'>x<a href=\"https://a.org/'&quot;&gt;<script>\">y</a>"
        "<img src=x onerror=alert(1) alt='\"><script>alert(1)</script>'>"
        "<pre>&lt;/code&gt;&lt;script&gt;</pre><code>`&lt;script&gt;`</code>"
        "<table><tr><td>&lt;script&gt;|</table>"
    )
    rendered = READER.render(md(html))
    assert not re.search(r"<script|\son\w+=|javascript:", rendered, re.IGNORECASE)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("tag", ["div", "blockquote", "ul><li", "b", "table><tr><td", "a href=x", "dl><dd"])
def test_deep_nesting_is_no_danger(tag: str) -> None:
    text = md(f"<{tag}>" * 20_000 + "the end")
    assert shown(text) == "the end"
    assert len(text) < 1_000


def test_many_nested_tables_take_no_time_to_judge() -> None:
    html = "<table><tr><td>" * 300 + "<p>x" * 3_000
    assert shown(md(html)) == " ".join(["x"] * 3_000)


def test_time_grows_with_the_number_of_links_and_not_with_its_square() -> None:
    html = "<p>" + "".join(f"<a href='/{number}'>x</a> " for number in range(32_000))
    began = time.process_time()
    assert md(html).count("](") == 32_000
    assert time.process_time() - began < 6  # about 1; the square took 10
