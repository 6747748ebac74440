"""Stored pages of strangers in an export: converted in a jailed cell, in time that grows with the page."""

import gzip
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sterna.export.converter import MANNER, Converter
from sterna.export.markdown import text_to_markdown, to_markdown
from sterna.export.markdown_cell import Conversion, convert
from sterna.runtime.cell import seccomp

URL = "https://a.test/"
PAGE = Conversion(url=URL, html="<h1>Terns</h1><p>fly <b>far</b>", text="Terns fly far", headings=("Terns",))

BAD = """
import os, time
from sterna.export import markdown_cell

def convert(page):
    if "please die" in page.html:
        os.abort()
    if "please open" in page.html:
        open("/etc/passwd")
    if "please hang" in page.html:
        time.sleep(600)
    return good(page)

def serve(sock):
    markdown_cell.convert = convert
    markdown_cell.serve(sock)

good, warm = markdown_cell.convert, markdown_cell.warm
"""


@pytest.fixture
def converter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Converter]:
    (tmp_path / "bad_cell.py").write_text(BAD)
    monkeypatch.syspath_prepend(tmp_path)
    with Converter(replace(MANNER, entry="bad_cell:serve", seconds=1.0)) as converter:
        yield converter


def test_page_is_converted_in_a_jail_as_outside(converter: Converter) -> None:
    charset = replace(PAGE, html="", record=record(b"<p>\x82\xa0", "text/html; charset=shift_jis"))
    for page in (PAGE, charset, replace(PAGE, html=""), replace(PAGE, html="<p>", text="")):
        assert converter.convert(page) == convert(page)
    assert convert(charset) == "\u3042\n"


def record(body: bytes, content_type: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n\r\n".encode()
    warc = "WARC/1.1\r\nWARC-Type: response\r\nContent-Type: application/http;msgtype=response\r\n\r\n"
    return gzip.compress(warc.encode() + head + body + b"\r\n\r\n")


@pytest.mark.skipif(bool(seccomp.why_not()), reason="this machine has no seccomp")
@pytest.mark.parametrize("what", ["die", "open", "hang"])
def test_page_that_breaks_its_cell_is_exported_as_its_text(
    converter: Converter, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    page = replace(PAGE, html=f"<p>please {what}")
    assert converter.convert(page) == "## Terns\n\nfly far\n"
    assert f"{URL} is exported as plain text: " in caplog.text
    assert converter.convert(PAGE) == "# Terns\n\nfly **far**\n"


def test_damaged_record_and_oversized_page_fall_back_to_the_text(converter: Converter) -> None:
    for html, packed in (("", b"no gzip"), ("", record(b"x", "text/html")[:-20]), ("x" * 2**27, b"")):
        assert converter.convert(replace(PAGE, html=html, record=packed)) == "## Terns\n\nfly far\n"


def links(count: int) -> str:
    return "".join(f"<a href=/{number}>x{number}</a> " for number in range(count))


SHAPES: dict[str, Callable[[int], str]] = {
    "links": links,
    "links in lists": lambda count: "<ul>" + "".join(f"<li><a href=/{n}>x</a>" for n in range(count)),
    "nested lists": lambda count: "<ul><li>x" * count,
    "nested quotations": lambda count: "<blockquote>x" * count,
    "breaks": lambda count: "x" + "<br>" * 8 * count + "x",
    "styles": lambda count: "<b>x</b>y<code>`</code>" * count,
    "rows": lambda count: "<table>" + "<tr><td>x<td>y" * count,
    "nested tables": lambda count: "<table><tr><td>x" * count,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_page_takes_about_four_times_the_time(shape: str) -> None:
    small, large = (spent(to_markdown, SHAPES[shape](count), URL) for count in (1_000, 4_000))
    assert large < 8 * max(small, 0.02), f"{small:.3f} s, {large:.3f} s"


def spent(call: Callable[..., str], *arguments: object) -> float:
    began = time.process_time()
    call(*arguments)
    return time.process_time() - began


def test_headings_that_are_everywhere_in_a_text_take_no_longer_than_others() -> None:
    text = "a" * 6_500_000
    assert spent(text_to_markdown, text, ("a",) * 200) < 5
