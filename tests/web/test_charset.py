"""Encodings: who decides, and that nothing is refused."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.web.charset import charset_of, decode_text

RUSSIAN = "Привет"


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        ("text/html", None),
        ("text/html; charset=utf-8", "utf-8"),
        ('text/html;CHARSET="Windows-1251"', "Windows-1251"),
        ("text/html; charset='koi8-r'", "koi8-r"),
        ("text/html; charset = utf-8 ; x=y", "utf-8"),
        ("text/html; charset=", None),
        ("", None),
    ],
)
def test_the_charset_is_found_in_a_content_type(content_type: str, charset: str | None) -> None:
    assert charset_of(content_type) == charset


@pytest.mark.parametrize(
    ("bom", "codec"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16le"),
        (codecs.BOM_UTF16_BE, "utf-16be"),
    ],
)
def test_a_byte_order_mark_outdoes_header_and_meta(bom: bytes, codec: str) -> None:
    body = bom + f"<meta charset=koi8-r>{RUSSIAN}".encode(codec)
    assert decode_text(body, "windows-1251") == (f"<meta charset=koi8-r>{RUSSIAN}", codec)


def test_the_header_outdoes_the_meta_element() -> None:
    body = b"<meta charset=utf-8>" + RUSSIAN.encode("koi8-r")
    assert decode_text(body, "koi8-r") == ("<meta charset=utf-8>" + RUSSIAN, "koi8-r")


def test_an_unknown_label_in_the_header_leaves_it_to_the_meta_element() -> None:
    body = b"<meta charset=koi8-r>" + RUSSIAN.encode("koi8-r")
    assert decode_text(body, "klingon")[1] == "koi8-r"
    assert decode_text(body, "\ud800")[1] == "koi8-r"


@pytest.mark.parametrize(
    "markup",
    [
        "<meta charset=windows-1251>",
        "<META CHARSET='windows-1251'>",
        '<meta name=x charset = "windows-1251" />',
        "<meta/charset=windows-1251>",
        '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
        '<meta content="text/html; charset=windows-1251" http-equiv=content-type>',
        "<!-- <meta charset=utf-8> --><meta charset=cp1251>",
        "<!--><meta charset=cp1251>",
        "<!DOCTYPE html><?x <meta charset=koi8-r?><p title='<meta charset=koi8-r>'><meta charset=cp1251>",
        "<meta charset=klingon><meta charset=cp1251>",
        "<meta content='text/html; charset=koi8-r'><meta charset=cp1251>",
        '<?xml version="1.0" encoding="windows-1251"?><html>',
    ],
)
def test_a_declaration_is_found_as_the_standard_scans_for_it(markup: str) -> None:
    body = (markup + RUSSIAN).encode("cp1251")
    assert decode_text(body, None) == (markup + RUSSIAN, "windows-1251")


@pytest.mark.parametrize(
    "markup",
    [
        "<!-- <meta charset=windows-1251> -->",
        "<!-- > <meta charset=windows-1251>",
        "<p title='> <meta charset=windows-1251>",
        "<p title='<meta charset=windows-1251>'>",
        "<metal charset=windows-1251>",
        "<meta content='text/html; charset=windows-1251'>",
        "<p>" + " " * 1024 + "<meta charset=windows-1251>",
        "<!--" + " " * 1024 + "<meta charset=windows-1251> -->",
        "<script>" + " " * 1024 + "'<meta charset=windows-1251>'</script>",
        " " * 65536 + "<meta charset=windows-1251>",
    ],
)
def test_what_is_hidden_or_outside_the_head_declares_nothing(markup: str) -> None:
    assert decode_text(markup.encode() + "é".encode(), None) == (markup + "é", "utf-8")


@pytest.mark.parametrize("filler", [" " * 1024, f"<!--{'x' * 3000}-->", f"<script>{'x' * 9000}</script>"])
@pytest.mark.parametrize(
    "meta",
    [
        "<meta charset=windows-1251>",
        "<meta http-equiv=content-type content='text/html;charset=windows-1251'>",
    ],
)
def test_a_declaration_late_in_the_head_counts_as_in_browsers(filler: str, meta: str) -> None:
    markup = f"<html><head>{filler}{meta}<title>"
    assert decode_text((markup + RUSSIAN).encode("cp1251"), None) == (markup + RUSSIAN, "windows-1251")


@pytest.mark.parametrize(
    ("label", "body", "text"),
    [
        ("euc-jp", b"\xad\xa1\xad\xb7", "\u2460\u2162"),  # NEC's row 13
        ("euc-jp", b"\xfc\xe2", "\u9ad9"),  # IBM's rows, where NEC put them
        ("euc-jp", b"\xa1\xc1\xa1\xc2", "\uff5e\u2225"),  # as Windows and all browsers read them
        ("euc-jp", b"\x8f\xb0\xa1", "\u4e02"),
        ("euc-jp", b"\xa9\xa1\xffa", "\ufffd\ufffda"),
        ("iso-2022-jp", b"\x1b$B-!-7\x1b(B", "\u2460\u2162"),
        ("iso-2022-jp", b"\x1b(I12\x1b(B", "\uff71\uff72"),
    ],
)
def test_japanese_encodings_have_what_browsers_know_of_them(label: str, body: bytes, text: str) -> None:
    assert decode_text(body, label)[0] == text


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("utf-16", "utf-8"),
        ("UTF-16BE", "utf-8"),
        ("x-user-defined", "windows-1252"),
        ("latin1", "windows-1252"),
    ],
)
def test_labels_in_a_meta_element_mean_what_the_standard_says(label: str, name: str) -> None:
    assert decode_text(f"<meta charset={label}>".encode(), None)[1] == name


def test_latin_1_is_windows_1252_in_the_header_too() -> None:
    assert decode_text(b"\x80 \x93x\x94", "iso-8859-1") == ("€ “x”", "windows-1252")
    assert decode_text(b"\x81", "iso-8859-1") == ("\x81", "windows-1252")


def test_undeclared_text_is_utf_8_if_it_can_be() -> None:
    assert decode_text("é".encode(), None) == ("é", "utf-8")
    assert decode_text("é".encode("latin-1"), None) == ("é", "windows-1252")
    assert decode_text(b"", None) == ("", "utf-8")


def test_gbk_is_read_with_its_superset() -> None:
    assert decode_text("\u20ac\U00020087".encode("gb18030"), "gb2312") == ("\u20ac\U00020087", "gbk")


def test_bad_bytes_become_replacement_characters() -> None:
    assert decode_text(b"a\xffb", "utf-8") == ("a\ufffdb", "utf-8")
    assert decode_text(b"\x1b$)Csecret", "iso-2022-kr") == ("\ufffd", "replacement")


def test_a_meta_element_declares_nothing_in_plain_text() -> None:
    body = "<meta charset=koi8-r>é".encode()
    assert decode_text(body, None, is_html=False) == ("<meta charset=koi8-r>é", "utf-8")
    assert decode_text(body, "latin1", is_html=False)[1] == "windows-1252"


LABELS = [
    "utf-8",
    "utf-16",
    "gbk",
    "gb18030",
    "big5",
    "shift_jis",
    "euc-jp",
    "iso-2022-jp",
    "euc-kr",
    "koi8-r",
]
MARKUP = st.sampled_from(
    [b"<meta ", b"charset=", b'"', b"'", b">", b"<!--", b"-->", b"content=", b"/", b"utf-8", b" "]
)


@given(
    st.one_of(st.binary(max_size=200), st.lists(MARKUP, max_size=30).map(b"".join)),
    st.one_of(st.none(), st.sampled_from([*LABELS, "iso-2022-kr", "x-user-defined"]), st.text(max_size=10)),
)
def test_any_bytes_give_text_that_can_be_stored(body: bytes, label: str | None) -> None:
    text, name = decode_text(body, label)
    assert text.encode().decode() == text
    assert name
