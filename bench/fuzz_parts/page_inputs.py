"""Responses for the readers: pages, sitemaps and robots.txt, spoiled in their markup, bytes and codings."""

import gzip
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import brotli
import zstandard
from bench.fuzz_parts.spoiling import SITE, bombs, spoil_bytes
from msgspec.structs import replace
from tests.servers.bombs import brotli_bomb, gzip_bomb
from tests.servers.nginx import real_site

from sterna.model import DEFAULT_FIELDS, Field, Selector
from sterna.web.document import Fetched, Manner

REAL_PAGES, MAX_REAL_BYTES = 60, 12_000

_TOKENS = (
    *(
        "<",
        ">",
        "</",
        "<!--",
        "-->",
        "--!>",
        "<!",
        "<![CDATA[",
        "]]>",
        "<?xml ?>",
        "&",
        "&amp;",
        "&#0;",
        "&#x110000;",
    ),
    *(
        "<a href=/b>",
        "</a>",
        "<a href='http://[::1'>",
        "<a href=//other.test/é>",
        "<a href=javascript:1 rel=nofollow>",
    ),
    *(
        "<base href=/x/>",
        "<base href='http://evil.test/'>",
        "<meta charset=utf-16>",
        "<meta charset=x-user-defined>",
    ),
    *(
        "<meta name=robots content='noindex,nofollow'>",
        "<meta http-equiv=refresh content='0;url=/r'>",
        "<title>",
        "</title>",
    ),
    *(
        "<script>",
        "</script>",
        "<style>",
        "<textarea>",
        "<plaintext>",
        "<template>",
        "<noscript>",
        "<svg>",
        "<math>",
    ),
    *(
        "<mi>",
        "<annotation-xml encoding=text/html>",
        "<foreignObject>",
        "<table>",
        "<tr>",
        "<td>",
        "<select>",
        "<option>",
    ),
    *(
        "<h1>",
        "</h1>",
        "<p>",
        "<b>",
        "<i>",
        "<font>",
        "<form>",
        "<frameset>",
        "<body>",
        "<html lang=de>",
        "</html>",
        "</p>",
    ),
    *(
        "<img srcset='a 1x, b 2x'>",
        "<area href=c>",
        "<link rel=canonical href=/c>",
        "<iframe src=d>",
        "\0",
        "\r",
        "\f",
        "\ufeff",
    ),
    *(
        "<div " + "a=b " * 50 + ">",
        "<x" + "y" * 300 + ">",
        "<div>" * 200,
        "</div>" * 200,
        "<b><p>" * 40,
        "\u202e",
        "🐦" * 20,
    ),
)
_SITEMAP_TOKENS = (
    *(
        "<url>",
        "</url>",
        "<loc>",
        "</loc>",
        "<sitemap>",
        "<lastmod>x</lastmod>",
        "<!DOCTYPE x [<!ENTITY a 'b'>]>",
        "&a;",
        "&lt;",
    ),
    *(
        '<!ENTITY a SYSTEM "file:///etc/passwd">',
        "<loc>http://other.test/</loc>",
        "<![CDATA[",
        "]]>",
        "<?pi ?>",
        "<!--",
        "-->",
    ),
    *(
        "<x:loc xmlns:x='u'>",
        "<rss>",
        "<item><link>http://site.test/i</link>",
        "\n",
        "\0",
        "<url>" * 300,
        "http://site.test/t\n",
    ),
)
_ROBOTS_TOKENS = (
    *(
        "User-agent: *\n",
        "User-agent: sterna\n",
        "Disallow: /\n",
        "Allow: /a\n",
        "Disallow: /*" + "*a" * 60 + "$\n",
        "Crawl-delay: 1e9\n",
    ),
    *(
        "Crawl-delay: NaN\n",
        "Sitemap: http://site.test/s.xml\n",
        "Sitemap: \0\n",
        "Disallow:\n",
        ":\n",
        "#\n",
        "\r",
        "\ufeff",
        "%2f%zz",
    ),
    *(
        "Allow: /%e2%98%83\n",
        "Disallow: /" + "x" * 3_000 + "\n",
        "user-agent\tsterna\n",
        "<html>\n",
        "Disallow: /a*b*c*d$\n" * 50,
    ),
)
_SITEMAP = (
    '<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    + "".join(f"<url><loc>{SITE}/{n}</loc><lastmod>2026-01-0{n % 9 + 1}</lastmod></url>" for n in range(20))
    + "</urlset>"
)
_ROBOTS = (
    "User-agent: *\nDisallow: /private\nAllow: /private/open$\nCrawl-delay: 2\n\n"
    f"User-agent: Sterna\nDisallow: /*.pdf$\nSitemap: {SITE}/sitemap.xml\n"
)
_TYPES = (
    *(
        "text/html",
        "text/html; charset=utf-8",
        "text/html; charset=utf-16le",
        "text/html;charset=iso-2022-jp",
    ),
    *("text/plain", "", "application/xhtml+xml", "text/html; charset=big5", "*/*", "text/html; charset=\0"),
)
_SELECTORS = ("a", "p > b", "td:nth-child(2n+1)", "[href^=h]", "div ~ p", ":not(a, b)", "h1 + *")
_CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "deflate": lambda data: zlib.compress(data, 1),
    "br": lambda data: brotli.compress(data, quality=1),
    "zstd": lambda data: zstandard.compress(data, 1),
}


@cache
def _pages() -> tuple[str, ...]:
    """Real pages of Debian's apache2-doc, and one of everything."""
    files = sorted(real_site("apache2-doc").rglob("*.html*"))
    texts = [path.read_text("utf-8", "replace") for path in files if path.stat().st_size <= MAX_REAL_BYTES]
    return (
        "<!doctype html><title>t</title><p>x" + "".join(_TOKENS),
        *texts[:: max(1, len(texts) // REAL_PAGES)],
    )


def fetched(kind: str, chance: Random) -> Fetched:
    """A response of this kind."""
    match kind:
        case "read: sitemap":
            body = _spoiled(_SITEMAP, _SITEMAP_TOKENS, chance)
            return _coded(Fetched(url=f"{SITE}/s.xml", status=200, body=body, kind="sitemap"), chance)
        case "read: robots":
            body = _spoiled(_ROBOTS, _ROBOTS_TOKENS, chance)
            return _coded(Fetched(url=f"{SITE}/robots.txt", status=200, body=body, kind="robots"), chance)
    css = [Selector(text, text, chance.choice(("", "href"))) for text in chance.sample(_SELECTORS, 2)]
    fields: tuple[Field, ...] = ("title", "text", "html", "headings", "keywords", "description")
    wants = DEFAULT_FIELDS if chance.random() < 0.5 else tuple(chance.sample(fields, chance.randrange(6)))
    manner = Manner(wants=wants, selectors=tuple(css) if chance.random() < 0.2 else (), max_bytes=1 << 24)
    page = Fetched(
        url=f"{SITE}/a/b?c=d",
        status=chance.choice((200, 200, 200, 204, 404)),
        content_type=chance.choice(_TYPES),
        x_robots=chance.choice(("", "", "noindex", "sterna: nofollow", "\0", "unavailable_after: 1")),
        content_language=chance.choice(("", "de, en", "x" * 300, "\0")),
        body=_spoiled(chance.choice(_pages()), _TOKENS, chance),
        manner=manner.encoded(),
    )
    return _coded(page, chance)


def _spoiled(text: str, tokens: Sequence[str], chance: Random) -> bytes:
    """The text with tokens in wrong places, and with a few of its bytes changed."""
    for _ in range(chance.choice((0, 1, 3, 10))):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(tokens) * chance.choice((1, 1, 1, 2, 30)) + text[at:]
    data = text.encode(chance.choice(("utf-8", "utf-8", "utf-8", "utf-16", "latin-1")), "replace")
    return spoil_bytes(data, chance) if chance.random() < 0.6 else data


def _coded(response: Fetched, chance: Random) -> Fetched:
    """The response as it is, or compressed: well, damaged, under a wrong name, or as a bomb."""
    if chance.random() < 0.6:
        return response
    name = chance.choice(list(_CODINGS))
    body = _CODINGS[name](response.body)
    match chance.randrange(20):
        case 0:
            name = chance.choice(
                ("gzip, br", "x-gzip", "identity", "gzip, gzip, gzip", "\0", "compress", "zstd")
            )
        case 1 if chance.random() < 0.02:
            name, body = chance.choice((("gzip", gzip_bomb()), ("br", brotli_bomb()), ("zstd", bombs()[0])))
        case 2 | 3 | 4 | 5 | 6:
            body = spoil_bytes(body, chance)
        case _:
            pass
    return replace(response, body=body, content_encoding=name)
