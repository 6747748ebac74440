"""Documents: from an answer as it came to what it says."""

import gzip
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from sterna.errors import ReadError
from sterna.web.document import Document, Fetched, Manner, read_document

PLAIN = Manner(max_bytes=10_000)
HTML = b"<html lang=en><title>Title</title><a href=a?sort=1>text</a>"
SITEMAP = b"<urlset><url><loc>/a</loc></url></urlset>"


def answer(body: bytes = HTML, manner: Manner = PLAIN, **changes: Any) -> Fetched:
    settled = {"url": "http://www.example.org/", "status": 200, "content_type": "text/html"}
    return Fetched(**{**settled, "body": body, "manner": manner.encoded(), **changes})


def read(body: bytes = HTML, manner: Manner = PLAIN, **changes: Any) -> Document:
    return read_document(answer(body, manner, **changes))


def test_a_page_is_read_with_digest_and_size() -> None:
    document = read(gzip.compress(HTML), content_encoding="gzip", content_type="Text/HTML; charset=utf-8")
    assert document.digest == blake2b(HTML, digest_size=16).digest()
    assert (document.size, document.content_type) == (len(HTML), "text/html")
    assert (document.title, document.text, document.language) == ("Title", "text", "en")
    assert [link.url for link in document.links] == ["http://www.example.org/a?sort=1"]
    assert (document.may_index, document.may_follow, document.may_archive) == (True, True, True)


def test_answers_and_documents_cross_to_another_process() -> None:
    sent = answer(known_digest=b"x")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Fetched) == sent
    document = read_document(sent)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(document), type=Document) == document


def test_the_parameters_to_drop_are_those_of_the_answer() -> None:
    assert [link.url for link in read(manner=Manner(drop_params=("sort",))).links] == [
        "http://www.example.org/a"
    ]


def test_the_charset_of_the_header_is_used() -> None:
    body = "<title>Привет</title>".encode("koi8-r")
    assert read(body, content_type="text/html; charset=koi8-r").title == "Привет"
    assert read("Привет".encode("koi8-r"), content_type="text/plain; charset=koi8-r").text == "Привет"


def test_an_unchanged_body_is_known_by_the_first_bytes_of_its_digest() -> None:
    digest = read().digest
    assert read(known_digest=digest[:5]).is_unchanged
    assert not read(known_digest=digest[:4]).is_unchanged  # too few to tell
    assert not read(known_digest=digest[:4] + b"!").is_unchanged
    assert not read(known_digest=digest + b"!").is_unchanged


def words(share: float) -> bytes:
    """A page of a thousand words, of which this share is other than in `words(0)`."""
    texts = [f"new{n}" if n < share * 1000 else f"word{n}" for n in range(1000)]
    return f"<title>Title</title><p>{' '.join(texts)}".encode()


MINDFUL = Manner(least_change=0.3)


@pytest.mark.parametrize(("share", "is_alike"), [(0.02, True), (0.1, True), (0.6, False), (1.0, False)])
def test_a_page_that_changed_by_less_than_matters_is_alike(share: float, is_alike: bool) -> None:
    before = read(words(0), MINDFUL)
    after = read(words(share), MINDFUL, known_digest=before.digest, known_likeness=before.likeness)
    assert (after.is_unchanged, after.is_alike) == (False, is_alike)
    assert len(after.likeness) == 8


def test_the_same_page_is_unchanged_and_not_only_alike() -> None:
    before = read(words(0), MINDFUL)
    after = read(words(0), MINDFUL, known_digest=before.digest, known_likeness=before.likeness)
    assert (after.is_unchanged, after.is_alike, after.likeness) == (True, False, before.likeness)


def test_likeness_is_told_only_where_changes_are_measured_and_the_page_may_be_indexed() -> None:
    assert read(words(0)).likeness == b""
    closed = read(words(0), MINDFUL, x_robots="noindex", known_likeness=read(words(0), MINDFUL).likeness)
    assert (closed.likeness, closed.is_alike) == (b"", False)


def test_plain_text_has_a_likeness_and_what_has_no_words_has_none() -> None:
    plain = read(b"one two three", MINDFUL, content_type="text/plain")
    assert plain.likeness == read(b"<p>Three Two One", MINDFUL).likeness
    assert read(b"<img src=a.png>", MINDFUL).likeness == b""
    assert not read(b"<img src=a.png>", MINDFUL, known_likeness=plain.likeness).is_alike


def test_an_unchanged_body_is_known_by_its_digest() -> None:
    digest = read().digest
    assert read(known_digest=digest).is_unchanged
    assert not read(known_digest=digest[::-1]).is_unchanged
    assert not read().is_unchanged
    assert read(gzip.compress(HTML), content_encoding="gzip", known_digest=digest).is_unchanged


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("", b"<!DOCTYPE html><title>x</title>", "text/html"),
        ("application/octet-stream", b"\xef\xbb\xbf \n<HTML>", "text/html"),
        ("", b"<!-- x --><p>", "text/html"),
        ("", b"<htmlx>", "text/plain"),
        ("", b"\x89PNG\r\n\x00", "application/octet-stream"),
        ("", b"%PDF-1.7", "application/pdf"),
        ("*/*", b"<p >", "text/html"),
        ("unknown/unknown", b"a tern", "text/plain"),
        ("application/unknown", b"<?xml version='1.0'?><a/>", "text/xml"),
        ("html", b"<!doctype html><p>", "text/html"),
        ("text/html charset=utf-8", b"", "text/html"),
        ("text/plain, text/html", b"", "text/html"),
        ("application/xml", b"<html xmlns='http://www.w3.org/1999/xhtml'>", "application/xhtml+xml"),
        ("application/xml", b"<urlset>", "application/xml"),
        ("application/octet-stream", b"\x7fELF<html>", "application/octet-stream"),
        ("text/plain", b"<html>", "text/plain"),
        ("image/png", b"<html>", "image/png"),
        ("application/xhtml+xml; charset=utf-8", b"<html>", "application/xhtml+xml"),
        ("text/html, text/html", b"", "text/html"),
    ],
)
def test_the_type_is_the_header_s_and_sniffed_only_where_it_says_nothing(
    content_type: str, body: bytes, expected: str
) -> None:
    assert read(body, content_type=content_type).content_type == expected


def test_plain_text_is_read_as_it_is() -> None:
    document = read(b"one\n\n <b>two</b>\0 ", content_type="text/plain")
    assert (document.text, document.title, len(document.links)) == ("one <b>two</b>\ufffd", "", 0)


def test_other_types_have_digest_and_size_only() -> None:
    document = read(HTML, content_type="application/pdf")
    assert (document.size, document.text, len(document.links)) == (len(HTML), "", 0)
    assert document.digest == read().digest


@pytest.mark.parametrize("status", [301, 404, 410, 500])
def test_only_good_answers_are_read(status: int) -> None:
    document = read(status=status)
    assert (document.content_type, document.size) == ("text/html", len(HTML))
    assert (document.title, document.text, len(document.links)) == ("", "", 0)
    assert read(b"<html>", status=status, kind="sitemap").urls == ()


def test_a_sitemap_is_read_as_one_whatever_its_type() -> None:
    document = read(gzip.compress(SITEMAP), kind="sitemap", content_type="application/x-gzip")
    assert document.urls == ("http://www.example.org/a",)
    index = b"<sitemapindex><sitemap><loc>/s.xml</loc></sitemap></sitemapindex>"
    assert read(index, kind="sitemap").sitemaps == ("http://www.example.org/s.xml",)


def test_what_may_not_be_indexed_has_no_title_and_no_text() -> None:
    by_header = read(x_robots="noindex")
    by_meta = read(b"<meta name=robots content=noindex>" + HTML)
    for document in (by_header, by_meta):
        assert not document.may_index
        assert (document.title, document.text) == ("", "")
        assert len(document.links) == 1


def test_the_header_s_directives_hold_for_every_type() -> None:
    text = read(b"secret", content_type="text/plain", x_robots="none")
    pdf = read(b"%PDF", content_type="application/pdf", x_robots="noarchive")
    assert (text.text, text.may_index, text.may_follow) == ("", False, False)
    assert (pdf.may_index, pdf.may_archive) == (True, False)


def test_the_language_falls_back_to_the_header() -> None:
    assert read(b"<title>x</title>", content_language="pt-BR, en").language == "pt-br"
    assert read(HTML, content_language="de").language == "en"
    assert read(b"x", content_type="text/plain", content_language="de").language == "de"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"content_encoding": "gzip", "body": b"\x1f\x8b"}, "encoding"),
        ({"kind": "robots", "content_encoding": "gzip", "body": gzip.compress(HTML)[:-8]}, "encoding"),
        ({"manner": Manner(max_bytes=10)}, "bomb"),
        ({"kind": "sitemap"}, "sitemap"),
        ({"status": 404, "content_encoding": "gzip", "body": b"\x1f\x8b"}, "encoding"),
    ],
)
def test_what_cannot_be_read_is_refused_by_kind(changes: dict[str, Any], kind: str) -> None:
    with pytest.raises(ReadError) as caught:
        read(**changes)
    assert caught.value.kind == kind
