"""Odd HTTP answers, each with a name and with the text that a page of it shows."""

import gzip
import zlib
from collections.abc import Callable, Iterator

import brotli
import zstandard
from tests.odd.server import RESET, Answer, Asked, Case

PAIR = "Tern & gull"  # in the title of every page that tries no charset
_TITLE = "Tern &amp; gull"
_FILLER = "".join(
    f"<p>{number} terns, and {number * 7919 % 1000} gulls, over the {number}. wave" for number in range(400)
)


def _page(title: str = _TITLE, *, head: str = "", body: str = "") -> bytes:
    return f"<!doctype html><html><head>{head}<title>{title}</title></head><body><p>{title}{body}".encode()


PAGE = _page()
LONG = _page(body=_FILLER)  # so long that the title is read before an end that comes too early
HTML = "Content-Type: text/html"


def _raw(status: str, lines: tuple[str | bytes, ...], body: bytes, *, end: bytes = b"\r\n") -> bytes:
    encoded = [line if isinstance(line, bytes) else line.encode("latin-1") for line in lines]
    return end.join([status.encode("latin-1"), *encoded, b"", body])


def _ok(
    *lines: str | bytes, body: bytes = PAGE, status: str = "HTTP/1.1 200 OK", length: bool = True
) -> bytes:
    stated = (f"Content-Length: {len(body)}",) if length else ()
    return _raw(status, (*lines, *stated), body)


def _status_lines() -> Iterator[tuple[str, Answer]]:
    for name, line in {
        "plain": "HTTP/1.1 200 OK",
        "version-1-0": "HTTP/1.0 200 OK",
        "version-1-2": "HTTP/1.2 200 OK",
        "version-2-0": "HTTP/2.0 200 OK",
        "version-1": "HTTP/1 200 OK",
        "version-lower-case": "http/1.1 200 OK",
        "version-icy": "ICY 200 OK",
        "no-reason": "HTTP/1.1 200 ",
        "no-reason-no-blank": "HTTP/1.1 200",
        "long-reason": "HTTP/1.1 200 " + "x" * 5000,
        "reason-8-bit": "HTTP/1.1 200 \xc4\xd6\xdc",
        "two-blanks": "HTTP/1.1  200 OK",
        "tab": "HTTP/1.1\t200 OK",
        "reason-attached": "HTTP/1.1 200OK",
        "wrong-reason": "HTTP/1.1 200 Not Found",
        "colon-reason": "HTTP/1.1 200: fine",
    }.items():
        yield f"status-{name}", _ok(HTML, status=line)
    for code in (201, 202, 203, 206, 207, 226, 299):
        yield f"status-{code}", _ok(HTML, status=f"HTTP/1.1 {code} Odd")
    for code in (300, 302, 304, 305, 399, 400, 401, 403, 404, 410, 418, 451, 500, 600, 999):
        yield f"status-{code}-with-page", _ok(HTML, status=f"HTTP/1.1 {code} Odd")
    for name, before in {
        "continue": b"HTTP/1.1 100 Continue\r\n\r\n",
        "early-hints": b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n",
        "three-interim": b"HTTP/1.1 102 Processing\r\n\r\n" * 3,
        "empty-line": b"\r\n",
        "junk": b"ab",
    }.items():
        yield f"before-status-{name}", before + _ok(HTML)
    yield "no-head-at-all", LONG


def _heads() -> Iterator[tuple[str, Answer]]:
    lines: dict[str, str | bytes] = {
        "without-colon": "Powered by terns",
        "one-word": "Terns",
        "blank-before-colon": "X-Tern : 1",
        "no-name": ": tern",
        "only-colon": ":",
        "blanks-only": "   ",
        "folded": "X-Tern: 1\r\n and 2",
        "folded-tab": "X-Tern: 1\r\n\tand 2",
        "name-with-blank": "X Tern: 1",
        "name-8-bit": "X-T\xe9rn: 1",
        "value-8-bit": "X-Tern: \xe9\xff",
        "value-utf-8": "X-Tern: 鳥".encode(),
        "value-nul": "X-Tern: a\0b",
        "value-bare-cr": "X-Tern: a\rb",
        "value-control": "X-Tern: \x01\x02",
        "value-empty": "X-Tern:",
        "value-60-kb": "X-Tern: " + "x" * 60_000,
        "value-150-kb": "X-Tern: " + "x" * 150_000,
        "name-long": "X-" + "n" * 3000 + ": 1",
        "status-404": "Status: 404 Not Found",
        "name-brackets": "X-[tern](gull): 1",
        "html-in-it": "<b>Warning</b>: it is late",
    }
    for name, line in lines.items():
        yield f"head-{name}", _ok(HTML, line)
    yield "head-without-colon-first", _ok("Powered by terns", HTML)
    yield "head-folded-first", _ok(" folded: 1", HTML)
    yield "head-folded-type", _ok("Content-Type:\r\n text/html")
    yield "head-300-lines", _ok(HTML, *(f"X-Tern-{number}: 1" for number in range(300)))
    yield "head-150-cookies", _ok(HTML, *(f"Set-Cookie: tern{number}=1" for number in range(150)))
    yield "head-names-upper-case", _ok("CONTENT-TYPE: TEXT/HTML")
    yield "head-tabs", _ok("Content-Type:\t\ttext/html\t")
    yield "head-no-blank", _ok("Content-Type:text/html")
    yield "head-line-feeds-only", _raw("HTTP/1.1 200 OK", (HTML,), PAGE, end=b"\n")
    yield "head-mixed-line-ends", b"HTTP/1.1 200 OK\nContent-Type: text/html\r\nX-Tern: 1\n\r\n" + PAGE
    yield "head-none", b"HTTP/1.1 200 OK\r\n\r\n" + PAGE
    yield "head-type-twice", _ok(HTML, "Content-Type: text/html; charset=utf-8")
    yield "head-types-differ", _ok("Content-Type: text/plain", HTML)


def _lengths() -> Iterator[tuple[str, Answer]]:
    size = len(PAGE)
    for name, lines in {
        "none": (),
        "none-close": ("Connection: close",),
        "none-keep-alive": ("Connection: keep-alive",),
        "twice": (f"Content-Length: {size}",) * 2,
        "list": (f"Content-Length: {size}, {size}",),
        "zeros": (f"Content-Length: 000{size}",),
        "plus": (f"Content-Length: +{size}",),
        "minus": ("Content-Length: -1",),
        "word": ("Content-Length: tern",),
        "empty": ("Content-Length:",),
        "fraction": (f"Content-Length: {size}.0",),
        "unit": (f"Content-Length: {size} bytes",),
        "too-large": (f"Content-Length: {size + 500}",),
        "huge": ("Content-Length: 9" + "9" * 30,),
        "differ": (f"Content-Length: {size}", f"Content-Length: {size + 5}"),
    }.items():
        yield f"length-{name}", _ok(HTML, *lines, length=False)
    yield "length-too-small", _ok(HTML, f"Content-Length: {size - 3}", length=False)
    yield (
        "length-too-large-of-long",
        _ok(HTML, f"Content-Length: {len(LONG) + 5000}", body=LONG, length=False),
    )


def _chunks(body: bytes, *, size: int = 50, form: str = "%x\r\n", end: bytes = b"0\r\n\r\n") -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join((form % len(part)).encode() + part + b"\r\n" for part in parts) + end


def _chunked() -> Iterator[tuple[str, Answer]]:
    te = "Transfer-Encoding: chunked"
    for name, body in {
        "plain": _chunks(PAGE),
        "upper-case": _chunks(PAGE, form="%X\r\n"),
        "zeros": _chunks(PAGE, form="0000%x\r\n"),
        "extension": _chunks(PAGE, form='%x;tern="gull"\r\n'),
        "blanks": _chunks(PAGE, form="%x   \r\n"),
        "blank-before": _chunks(PAGE, form=" %x\r\n"),
        "line-feeds": _chunks(PAGE, form="%x\n").replace(b"\r\n", b"\n"),
        "prefix-0x": _chunks(PAGE, form="0x%x\r\n"),
        "trailers": _chunks(PAGE, end=b"0\r\nX-Tern: 1\r\n\r\n"),
        "trailer-without-colon": _chunks(PAGE, end=b"0\r\nTerns\r\n\r\n"),
        "no-last-chunk": _chunks(PAGE, end=b""),
        "no-last-line": _chunks(PAGE, end=b"0\r\n"),
        "cut": _chunks(LONG, size=5000)[:-3000],
        "then-junk": _chunks(LONG, end=b"xyz\r\n"),
        "not-chunked": PAGE,
        "more-behind": _chunks(PAGE) + b"junk",
    }.items():
        yield f"chunked-{name}", _ok(HTML, te, body=body, length=False)
    for name, line in {
        "other-case": "transfer-encoding: Chunked",
        "twice": "Transfer-Encoding: chunked, chunked",
        "quoted": 'Transfer-Encoding: "chunked"',
        "semicolon": "Transfer-Encoding: chunked;",
    }.items():
        yield f"chunked-named-{name}", _ok(HTML, line, body=_chunks(PAGE), length=False)
    yield "chunked-with-length", _ok(HTML, te, "Content-Length: 20", body=_chunks(PAGE), length=False)
    yield "chunked-version-1-0", _ok(HTML, te, body=_chunks(PAGE), length=False, status="HTTP/1.0 200 OK")
    yield "transfer-identity", _ok(HTML, "Transfer-Encoding: identity")
    yield "transfer-unknown", _ok(HTML, "Transfer-Encoding: tern", length=False)
    packed = _chunks(gzip.compress(PAGE))
    yield "transfer-gzip", _ok(HTML, "Transfer-Encoding: gzip, chunked", body=packed, length=False)


def _raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


def _codings() -> Iterator[tuple[str, Answer]]:
    zipped, short = gzip.compress(LONG), gzip.compress(PAGE)
    named = b"\x1f\x8b\x08\x08" + short[4:10] + b"tern.html\0" + short[10:]
    for name, (coding, body) in {
        "gzip": ("gzip", short),
        "x-gzip": ("x-gzip", short),
        "gzip-upper-case": ("GZIP", short),
        "gzip-with-name": ("gzip", named),
        "gzip-two-members": ("gzip", gzip.compress(PAGE[:20]) + gzip.compress(PAGE[20:])),
        "gzip-then-junk": ("gzip", short + b"junk"),
        "gzip-then-zeros": ("gzip", short + b"\0" * 100),
        "gzip-bad-checksum": ("gzip", zipped[:-8] + b"\0\0\0\0" + zipped[-4:]),
        "gzip-bad-size": ("gzip", zipped[:-4] + b"\0\0\0\0"),
        "gzip-no-trailer": ("gzip", zipped[:-8]),
        "gzip-cut": ("gzip", zipped[:-200]),
        "gzip-broken-late": ("gzip", zipped[:-300] + b"\xff" * 300),
        "gzip-twice": ("gzip, gzip", gzip.compress(short)),
        "gzip-identity": ("gzip, identity", short),
        "gzip-named-twice": ("gzip\r\nContent-Encoding: gzip", gzip.compress(short)),
        "gzip-but-plain": ("gzip", PAGE),
        "deflate": ("deflate", zlib.compress(PAGE)),
        "deflate-raw": ("deflate", _raw_deflate(PAGE)),
        "deflate-cut": ("deflate", zlib.compress(LONG)[:-200]),
        "deflate-bad-checksum": ("deflate", zlib.compress(LONG)[:-4] + b"\0\0\0\0"),
        "deflate-but-plain": ("deflate", PAGE),
        "deflate-but-gzip": ("deflate", short),
        "brotli": ("br", brotli.compress(PAGE)),
        "brotli-cut": ("br", brotli.compress(LONG)[:-100]),
        "brotli-but-plain": ("br", PAGE),
        "zstd": ("zstd", zstandard.compress(PAGE)),
        "zstd-cut": ("zstd", zstandard.compress(LONG * 10, level=1)[:-20]),
        "zstd-two-frames": ("zstd", zstandard.compress(PAGE[:20]) + zstandard.compress(PAGE[20:])),
        "identity": ("identity", PAGE),
        "none": ("none", PAGE),
        "charset": ("utf-8", PAGE),
        "empty": ("", PAGE),
        "binary": ("binary", PAGE),
        "base64": ("base64", PAGE),
    }.items():
        yield f"coding-{name}", _ok(HTML, f"Content-Encoding: {coding}", body=body)
    cut = _ok(
        HTML, "Content-Encoding: gzip", f"Content-Length: {len(zipped)}", body=zipped[:-200], length=False
    )
    yield "coding-gzip-and-length-cut", cut


def _charset(
    text: str, codec: str, type_: str, *, head: str = "", bom: bytes = b""
) -> tuple[Answer, str, bytes]:
    body = bom + _page(text, head=head).decode().encode(codec)
    return _ok(f"Content-Type: {type_}", body=body), text, text.encode(codec)


_GREETING, _RUSSIAN, _JAPANESE = "Grüße €", "Полярная крачка", "極鰺刺 キョクアジサシ"
_KOREAN, _CHINESE = "북극제비갈매기 똠", "北极燕鸥"


def _charsets() -> Iterator[tuple[str, tuple[Answer, str, bytes]]]:
    late = f"<!--{'x' * 2000}-->"
    yield "header", _charset(_GREETING, "utf-8", "text/html; charset=utf-8")
    yield "header-quoted", _charset(_GREETING, "utf-8", 'text/html; charset="utf-8"')
    yield (
        "header-single-quoted",
        _charset(_GREETING, "utf-8", "text/html; charset='utf-8'", head='<meta charset="utf-8">'),
    )
    yield (
        "header-blanks",
        _charset(_GREETING, "utf-8", "text/html ;  charset = utf-8", head='<meta charset="utf-8">'),
    )
    yield (
        "header-no-semicolon",
        _charset(_GREETING, "utf-8", "text/html charset=utf-8", head='<meta charset="utf-8">'),
    )
    yield "header-utf8-label", _charset(_GREETING, "utf-8", "text/html; charset=utf8")
    yield (
        "header-unknown-label",
        _charset(_GREETING, "utf-8", "text/html; charset=tern", head='<meta charset="utf-8">'),
    )
    yield (
        "header-before-meta",
        _charset(_GREETING, "utf-8", "text/html; charset=utf-8", head='<meta charset="koi8-r">'),
    )
    yield "header-latin1", _charset(_GREETING, "cp1252", "text/html; charset=iso-8859-1")
    yield "header-ascii", _charset(_GREETING, "cp1252", "text/html; charset=us-ascii")
    yield "header-twice", _charset(_GREETING, "utf-8", "text/html; charset=utf-8; charset=koi8-r")
    yield "meta", _charset(_GREETING, "utf-8", "text/html", head='<meta charset="utf-8">')
    yield "meta-unquoted", _charset(_RUSSIAN, "koi8-r", "text/html", head="<meta charset=koi8-r>")
    equivalent = '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">'
    yield "meta-http-equiv", _charset(_RUSSIAN, "cp1251", "text/html", head=equivalent)
    yield "meta-late", _charset(_RUSSIAN, "cp1251", "text/html", head=late + '<meta charset="windows-1251">')
    yield "meta-late-http-equiv", _charset(_RUSSIAN, "cp1251", "text/html", head=late + equivalent)
    yield "meta-late-utf-8", _charset(_GREETING, "utf-8", "text/html", head=late + '<meta charset="utf-8">')
    yield "meta-utf-16", _charset(_GREETING, "utf-8", "text/html", head='<meta charset="utf-16">')
    yield "bom-utf-8", _charset(_GREETING, "utf-8", "text/html", bom=b"\xef\xbb\xbf")
    yield "bom-before-header", _charset(_GREETING, "utf-8", "text/html; charset=koi8-r", bom=b"\xef\xbb\xbf")
    yield "bom-utf-16le", _charset(_GREETING, "utf-16-le", "text/html", bom=b"\xff\xfe")
    yield "bom-utf-16be", _charset(_GREETING, "utf-16-be", "text/html", bom=b"\xfe\xff")
    yield "utf-16-no-bom", _charset(_GREETING, "utf-16-le", "text/html; charset=utf-16")
    yield "windows-1251", _charset(_RUSSIAN, "cp1251", "text/html; charset=windows-1251")
    yield "ibm866", _charset(_RUSSIAN, "cp866", "text/html; charset=ibm866")
    yield "macintosh", _charset("Grüße", "mac-roman", "text/html; charset=macintosh")
    yield "windows-874", _charset("นกนางนวลแกลบ", "cp874", "text/html; charset=tis-620")
    yield "iso-8859-8-i", _charset("שחפית", "iso-8859-8", "text/html; charset=iso-8859-8-i")
    yield "shift-jis", _charset(_JAPANESE, "cp932", "text/html; charset=shift_jis")
    yield "shift-jis-nec", _charset("①Ⅳ髙", "cp932", "text/html; charset=shift_jis")
    yield "euc-jp", _charset(_JAPANESE, "euc_jp", "text/html; charset=euc-jp")
    yield "iso-2022-jp", _charset("極鰺刺", "iso2022_jp", "text/html; charset=iso-2022-jp")
    yield "gb2312", _charset(_CHINESE, "gb2312", "text/html; charset=gb2312")
    yield "gb2312-but-gbk", _charset("镕" + _CHINESE, "gbk", "text/html; charset=gb2312")
    yield "gb18030", _charset("𠀋" + _CHINESE, "gb18030", "text/html; charset=gb18030")
    yield "big5", _charset("北極燕鷗", "big5", "text/html; charset=big5")
    yield "big5-hong-kong", _charset("㗎北極燕鷗", "big5hkscs", "text/html; charset=big5")
    yield "euc-kr", _charset(_KOREAN, "cp949", "text/html; charset=euc-kr")
    yield "none-utf-8", _charset(_GREETING, "utf-8", "text/html")
    yield "none-windows-1252", _charset(_GREETING, "cp1252", "text/html")

    def vendor(type_: str, codes: bytes, shows: str) -> tuple[Answer, str, bytes]:
        body = PAGE.replace(_TITLE.encode(), codes)
        return _ok(f"Content-Type: text/html; charset={type_}", body=body), shows, codes

    yield "euc-jp-nec", vendor("euc-jp", b"\xad\xa1\xad\xb7", "①Ⅲ")  # JIS X 0208's row 13
    yield "euc-jp-ibm", vendor("euc-jp", b"\xfc\xe2\xfc\xe3", "髙")
    yield "euc-jp-0212", vendor("euc-jp", b"\x8f\xb0\xa1\x8f\xb0\xa2", "丂丄")
    yield "iso-2022-jp-nec", vendor("iso-2022-jp", b"\x1b$B-!-7\x1b(B", "①Ⅲ")
    yield "iso-2022-jp-katakana", vendor("iso-2022-jp", b"\x1b(I12\x1b(B", "ｱｲ")
    xml = '<?xml version="1.0" encoding="windows-1251"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>'
    body = f"{xml}{_RUSSIAN}</title></head><body><p>{_RUSSIAN}</p></body></html>".encode("cp1251")
    yield (
        "xml-declaration",
        (_ok("Content-Type: application/xhtml+xml", body=body), _RUSSIAN, _RUSSIAN.encode("cp1251")),
    )


_XHTML = (
    b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head>'
    b"<title>Tern &amp; gull</title></head>"
    b"<body><p>Tern &amp; gull</p></body></html>"
)


def _types() -> Iterator[tuple[str, Answer]]:
    for name, type_ in {
        "empty": "",
        "any": "*/*",
        "unknown": "unknown/unknown",
        "application-unknown": "application/unknown",
        "html-alone": "html",
        "text-alone": "text",
        "no-subtype": "text/",
        "no-main-type": "/html",
        "dash": "text-html",
        "upper-case": "Text/HTML",
        "semicolons": "text/html;;;",
        "comma": "text/html, text/html",
        "comma-before": ", text/html",
        "quoted": '"text/html"',
        "parameter": "text/html; tern=gull",
        "blanks": "  text/html  ",
        "blank-inside": "text / html",
        "header-inside": "Content-Type: text/html",
        "octet-stream": "application/octet-stream",
        "xhtml": "application/xhtml+xml",
        "wap": "application/vnd.wap.xhtml+xml",
        "xml": "application/xml",
        "text-xml": "text/xml",
    }.items():
        yield (
            f"type-{name}",
            _ok(
                f"Content-Type: {type_}", body=_XHTML if name in {"xhtml", "wap", "xml", "text-xml"} else PAGE
            ),
        )
    text = PAIR.encode() + b"\nare two birds of the coast.\n"
    yield "type-none", _ok()
    yield "type-none-nosniff", _ok("X-Content-Type-Options: nosniff")
    yield "type-none-after-blanks", _ok(body=b"\n\n  \t" + PAGE)
    yield "type-none-after-comment", _ok(body=b"<!-- tern -->" + PAGE)
    yield "type-none-after-mark", _ok(body=b"\xef\xbb\xbf" + PAGE)
    yield "type-none-div", _ok(body=b"<div>Tern &amp; gull</div>")
    yield "type-none-title", _ok(body=b"<TITLE>Tern &amp; gull</TITLE><P>Tern &amp; gull")
    yield "type-none-xml", _ok(body=_XHTML)
    yield "type-none-text", _ok(body=text)
    yield "type-any-text", _ok("Content-Type: */*", body=text)
    yield "type-unknown-text", _ok("Content-Type: unknown/unknown", body=text)
    yield "type-text", _ok("Content-Type: text/plain", body=text)
    yield "type-markdown", _ok("Content-Type: text/markdown", body=text)
    yield "type-csv", _ok("Content-Type: text/csv", body=text)
    yield "type-json", _ok("Content-Type: application/json", body=b'{"title": "Tern & gull"}')
    yield "type-attachment", _ok(HTML, "Content-Disposition: attachment; filename=tern.html")


def _redirect(status: int, *lines: str | bytes, location: str | bytes = "end", body: bytes = b"") -> bytes:
    to = location if isinstance(location, bytes) else location.encode()
    return _ok(HTML, b"Location: " + to, *lines, status=f"HTTP/1.1 {status} Odd", body=body)


def _leads(name: str, make: Callable[[Asked], bytes]) -> tuple[str, Answer]:
    """An answer that leads to `end` below its name, where the page is."""
    return name, lambda asked: _ok(HTML) if asked.rest.startswith("end") else make(asked)


def _redirects() -> Iterator[tuple[str, Answer]]:
    for code in (300, 301, 302, 303, 307, 308):
        name = f"redirect-{code}"
        yield _leads(name, lambda asked, name=name, code=code: _redirect(code, location=f"/{name}/end"))  # type: ignore[misc]
    for what, location in {
        "relative": "{name}/end",
        "dots": "../a/../{name}/./end",
        "other-scheme-part": "//{host}/{name}/end",
        "absolute": "http://{host}/{name}/end",
        "fragment": "/{name}/end#part",
        "query": "/{name}/end?a=1&b=2",
        "blank": "/{name}/end of it",
        "blanks-around": "   /{name}/end   ",
        "backslash": "\\{name}\\end",
        "utf-8": "/{name}/end-ü",
        "upper-case-scheme": "HTTP://{host}/{name}/end",
        "percent": "/{name}/end%zz",
        "no-slashes": "http:/{name}/end",
    }.items():
        name = f"redirect-to-{what}"
        make = lambda asked, name=name, location=location: _redirect(  # noqa: E731
            302, location=location.format(name=name, host=asked.host)
        )
        yield _leads(name, make)
    for hops in (10, 15, 19):
        name = f"redirect-{hops}-times"
        yield (
            name,
            lambda asked, name=name, hops=hops: (  # type: ignore[misc]
                _ok(HTML)
                if asked.rest == str(hops)
                else _redirect(302, location=f"/{name}/{int(asked.rest or 0) + 1}")
            ),
        )
    yield _leads(
        "redirect-with-page", lambda _: _redirect(302, location="/redirect-with-page/end", body=b"<p>Moved")
    )
    yield _leads(
        "redirect-refresh-header",
        lambda _: _ok(HTML, "Refresh: 0; url=/redirect-refresh-header/end", body=b"<p>Wait"),
    )
    meta = b'<meta http-equiv=refresh content="0; url=/redirect-refresh-meta/end"><p>Wait'
    yield _leads("redirect-refresh-meta", lambda _: _ok(HTML, body=meta))
    script = b"<script>location = '/redirect-script/end'</script><p>Wait"
    yield _leads("redirect-script", lambda _: _ok(HTML, body=script))
    yield _leads(
        "redirect-locations-twice",
        lambda _: _redirect(
            302, "Location: /redirect-locations-twice/end", location="/redirect-locations-twice/end"
        ),
    )
    yield "redirect-empty-location", _redirect(302, location="", body=PAGE)
    yield "redirect-no-length", _raw("HTTP/1.1 200 OK", (HTML,), PAGE)


def _cookie(
    name: str, *cookies: str, needs: str = "tern=1", by_way: str = "", code: int = 302
) -> tuple[str, Answer]:
    """A page that redirects to itself until it gets the cookies that it sets."""

    def answer(asked: Asked) -> bytes:
        sent = set(asked.headers.get("cookie", "").split("; "))
        if not asked.rest and set(filter(None, needs.split("; "))) <= sent:
            return _ok(HTML)
        lines = [f"Set-Cookie: {cookie}" for cookie in cookies]
        is_on_the_way = bool(by_way) and asked.rest == by_way
        if by_way and not is_on_the_way:
            return _redirect(code, location=f"/{name}/{by_way}")
        return _redirect(code, *lines, location=f"/{name}")

    return name, answer


def _cookies() -> Iterator[tuple[str, Answer]]:
    yield _cookie("cookie-self", "tern=1")
    yield _cookie("cookie-self-301", "tern=1", code=301)
    yield _cookie("cookie-self-307", "tern=1", code=307)
    yield _cookie("cookie-path", "tern=1; Path=/")
    yield _cookie("cookie-attributes", "tern=1; path=/; HttpOnly; SameSite=Lax; Tern=gull")
    yield _cookie("cookie-expires", "tern=1; expires=Fri, 31-Dec-2099 23:59:59 GMT")
    yield _cookie("cookie-max-age", "tern=1; Max-Age=3600; expires=Thu, 01 Jan 1970 00:00:00 GMT")
    yield _cookie("cookie-domain", "tern=1; Domain=127.0.0.1")
    yield _cookie("cookie-two", "tern=1", "gull=2", needs="tern=1; gull=2")
    yield _cookie("cookie-quoted", 'tern="1 2"', needs='tern="1 2"')
    yield _cookie("cookie-empty", "tern=", needs="tern=")
    yield _cookie("cookie-blanks", "  tern = 1  ")
    yield _cookie("cookie-equals", "tern=a=b", needs="tern=a=b")
    yield _cookie("cookie-replaced", "tern=0", "tern=1")
    yield _cookie("cookie-of-another-site", "gull=2; Domain=example.org", "tern=1")
    yield _cookie("cookie-by-way", "tern=1; Path=/", by_way="login")


def _needs(name: str, header: str, value: str = "") -> tuple[str, Answer]:
    """A page only for those who send the header, with the value in it."""

    def answer(asked: Asked) -> bytes:
        is_there = value in asked.headers.get(header, "").lower() and header in asked.headers
        return _ok(HTML) if is_there else _ok(HTML, status="HTTP/1.1 406 Not Acceptable", body=b"No")

    return name, answer


def _demands() -> Iterator[tuple[str, Answer]]:
    yield _needs("needs-accept-language", "accept-language")
    yield _needs("needs-accept-html", "accept", "text/html")
    yield _needs("needs-accept", "accept")
    yield _needs("needs-gzip", "accept-encoding", "gzip")
    yield _needs("needs-user-agent", "user-agent")


def _all() -> Iterator[Case]:
    plain = (_status_lines, _heads, _lengths, _chunked, _codings, _types, _redirects, _cookies, _demands)
    for group in plain:
        for name, answer in group():
            yield Case(name=name, answer=answer, shows=PAIR)
    for name, (answer, shows, codes) in _charsets():
        yield Case(name=f"charset-{name}", answer=answer, shows=shows, codes=codes)
    for name, lines in {
        "after-page": (HTML,),
        "within-page": (HTML, f"Content-Length: {len(LONG) + 10}"),
        "within-chunks": (HTML, "Transfer-Encoding: chunked"),
    }.items():
        body = _chunks(LONG, end=b"") if "chunks" in name else LONG
        yield Case(
            name=f"reset-{name}", answer=_ok(*lines, body=body, length=False), shows=PAIR, ending=RESET
        )


CASES: dict[str, Case] = {case.name: case for case in _all()}
