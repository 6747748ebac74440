"""The pages as HTML: pure functions from search results to text, with everything escaped."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from urllib.parse import urlencode

from sterna.model import Record
from sterna.search.page.api import Bounds
from sterna.search.page.text import (
    ELLIPSIS,
    cut,
    cut_pieces,
    host_of,
    href_of,
    is_web,
    language_name,
    path_shown,
    plain,
    tag_of,
)
from sterna.search.results import Found, Hit, Piece
from sterna.web.http_app import read_asset

STYLE = read_asset("sterna.search.page", "style.css", "text/css; charset=utf-8")
ICON = read_asset("sterna.search.page", "icon.svg", "image/svg+xml")

MAX_NAME = 80
MAX_TITLE = 160
MAX_SNIPPET = 400
MAX_ADDRESS = 100
MAX_ALIKE = 8  # listed near-duplicates
_FIRST_YEAR, _LAST_YEAR = 631_152_000, 253_402_300_799  # 1990 and the end of 9999, in seconds
_CUT = f" {ELLIPSIS}"

_WAYS = (
    ('"forked tail"', "exactly these words in this order"),
    ("title:tern", "a word of the title"),
    ("site:example.org", "pages of one site only"),
    ("-gull", "pages without this word"),
)


class Face(Record, frozen=True, kw_only=True):
    """What all pages of a collection share."""

    name: str
    bounds: Bounds = Bounds()
    has_sql: bool = False  # there is a page for queries beside the search


def start_page(face: Face, *, page_count: int) -> str:
    body = (
        f'<main class="start" id="main" tabindex="-1"><img src="{ICON.path}" alt="" width="88" height="88">'
        f"<h1>{text(cut(face.name, MAX_NAME))}</h1>{_form(face, '', is_first=True)}"
        f'<p class="count">{_counted(page_count, "page")} to search</p>{_ways()}</main>'
    )
    return document(face, f"Search {face.name}", body)


def results_page(face: Face, found: Found) -> str:
    number = found.offset // found.limit + 1
    note = f"{found.note[:1].upper()}{found.note[1:]}"
    said = f'<p class="note" role="note">{text(cut(note, MAX_SNIPPET))}</p>' if note else ""
    hits = "\n".join(_hit(hit, found.words) for hit in found.hits)
    listed = f'\n<ol class="hits" role="list" start="{found.offset + 1}">\n{hits}\n</ol>\n'
    body = (
        f'{header(face, found.words)}<main id="main" tabindex="-1">{_heading(found)}'
        f"{said}{listed if hits else _nothing(found)}{_pager(face, found, number)}</main>"
    )
    place = f" (page {number})" if number > 1 else ""
    return document(face, f"{cut(plain(found.words), MAX_TITLE)}{place} - {face.name}", body)


def problem_page(face: Face, title: str, detail: str, *, words: str = "") -> str:
    """An error, and the form for the next search."""
    body = (
        f'{header(face, words)}<main id="main" tabindex="-1"><h1>{text(title)}</h1><p>{text(detail)}</p>'
        '<p><a href="/">Back to the search page</a></p></main>'
    )
    return document(face, f"{title} - {face.name}", body)


# -- the frame ---------------------------------------------------------------------------------------------


def document(face: Face, title: str, body: str) -> str:
    more = ' <a href="/sql">Query in SQL</a>.' if face.has_sql else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{text(title)}</title>"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex,nofollow">'
        f'<link rel="stylesheet" href="{STYLE.path}">'
        f'<link rel="icon" type="image/svg+xml" href="{ICON.path}">'
        '</head>\n<body><a class="skip" href="#main">Skip to the content</a>\n'
        f"{body}\n<footer><p>Found by Sterna. Programs ask <code>/api/search</code>:"
        f' <a href="/openapi.json">its description</a>.{more}</p></footer></body></html>\n'
    )


def header(face: Face, words: str) -> str:
    name = text(cut(face.name, MAX_NAME))
    home = f'<a class="name" href="/"><img src="{ICON.path}" alt="" width="32" height="32"> {name}</a>'
    return f"<header>{home}{_form(face, words)}</header>\n"


def _form(face: Face, words: str, *, is_first: bool = False) -> str:
    return (
        '<form role="search" action="/" method="get">'
        '<label class="unseen" for="q">Words to search for</label>'
        f'<input id="q" name="q" type="search" value="{text(words)}" maxlength="{face.bounds.letters}"'
        ' required autocomplete="off" autocapitalize="none" spellcheck="false" enterkeyhint="search"'
        f'{" autofocus" if is_first else ""}><button type="submit">Search</button></form>'
    )


def _ways() -> str:
    rows = "".join(f"<dt><code>{text(way)}</code></dt><dd>{text(meaning)}</dd>" for way, meaning in _WAYS)
    heading = '<h2 id="ways">Query syntax</h2>'
    return f'<section aria-labelledby="ways">{heading}<dl class="ways">{rows}</dl></section>'


# -- what was found ----------------------------------------------------------------------------------------


def _heading(found: Found) -> str:
    words = f"<q>{text(cut(found.words, MAX_TITLE))}</q>"
    if not found.hits:
        said = "No more pages for" if found.total and found.offset else "Nothing found for"
        return f"<h1>{said} {words}</h1>"
    about = "" if found.is_exact else "About "
    return (
        f'<h1 class="count">{about}{_counted(found.total, "page")} for {words}'
        f'<span class="took"> in {found.seconds:.3f} s</span></h1>'
    )


def _hit(hit: Hit, words: str) -> str:
    lang = f' lang="{tag}"' if (tag := tag_of(hit.language)) else ""
    pieces = cut_pieces(hit.title_pieces or (Piece(hit.title),), MAX_TITLE)
    title = _marked(pieces)
    if not any(piece.text.strip() for piece in pieces):
        title = text(cut(path_shown(hit.url).strip("/") or host_of(hit.url), MAX_TITLE))
    said = [text(cut(hit.collection, MAX_NAME)), text(language_name(hit.language))]
    about = [*said, _moment(hit.fetched), _same_site(hit, words)]
    dot = '<span class="dot" aria-hidden="true"> · </span>'
    return (
        f'<li><p class="where">{_address(hit.url)}</p><h2 dir="auto"{lang}>{link(hit.url, title)}</h2>'
        f'<p class="snippet" dir="auto"{lang}>{_marked(cut_pieces(hit.snippet, MAX_SNIPPET))}</p>'
        f'<p class="about">{dot.join(filter(None, about))}</p>{_alike(hit.folded)}</li>'
    )


def _marked(pieces: Iterable[Piece]) -> str:
    texts = ((escape(piece.text), piece.is_marked) for piece in pieces)
    html = "".join(f"<mark>{text}</mark>" if is_marked else text for text, is_marked in texts)
    # A no-break space keeps it from standing alone in the last line.
    return f"{html.removesuffix(_CUT)}&nbsp;{ELLIPSIS}" if html.endswith(_CUT) else html


def link(url: str, html: str) -> str:
    """A link if the URL is an HTTP address, the text alone if not."""
    if not is_web(url):
        return html
    return f'<a href="{escape(href_of(url))}" rel="noreferrer nofollow ugc">{html}</a>'


def _address(url: str) -> str:
    if not is_web(url):
        return f"<bdi>{text(cut(url, MAX_ADDRESS))}</bdi>"
    host, path = host_of(url), path_shown(url).rstrip("/")
    left = max(0, MAX_ADDRESS - len(host))
    return f'<bdi class="host">{text(cut(host, MAX_ADDRESS))}</bdi><bdi>{text(cut(path, left))}</bdi>'


def _same_site(hit: Hit, words: str) -> str:
    host = host_of(hit.url) if is_web(hit.url) else ""
    if not host or "site:" in words.lower():
        return ""
    # For screen readers, which would otherwise read the same link ten times.
    unseen = f'<span class="unseen">{text(cut(f", {host}", MAX_NAME))}</span>'
    return f'<a href="{_results(f"{words} site:{host}")}" rel="nofollow">Only this site{unseen}</a>'


def _moment(seconds: float) -> str:
    if not _FIRST_YEAR <= seconds <= _LAST_YEAR:
        return ""
    at = datetime.fromtimestamp(seconds, UTC)
    return f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}">fetched {at.day} {at:%b %Y}</time>'


def _alike(urls: Sequence[str]) -> str:
    if not urls:
        return ""
    items = "".join(f"<li>{link(url, _address(url))}</li>" for url in urls[:MAX_ALIKE])
    more = len(urls) - MAX_ALIKE
    rest = f"<li>and {more:,} more</li>" if more > 0 else ""
    return f'<details><summary>and {len(urls):,} alike</summary><ul role="list">{items}{rest}</ul></details>'


def _nothing(found: Found) -> str:
    if found.total and found.offset:
        return f'<p><a href="{_results(found.words)}">To the first page of results</a></p>'
    hints = "".join(f"<li>{text(hint)}</li>" for hint in hints_for(found.words))
    return f"<ul>{hints}</ul>{_ways()}"


def hints_for(words: str) -> Sequence[str]:
    """What may help where nothing was found."""
    parts = words.split()
    hints = {
        "Check the spelling of each word.": True,
        "Remove the quotation marks: the words then need not stand side by side.": '"' in words,
        "Remove site: to search all sites of the collection.": "site:" in words,
        "Remove title: to search the text of the pages, too.": "title:" in words,
        "Remove the words with a minus sign: they exclude pages.": any(each[0] == "-" for each in parts),
        "Try fewer words, or more common ones.": len(parts) > 1,
    }
    return [hint for hint, is_apt in hints.items() if is_apt]


def _pager(face: Face, found: Found, number: int) -> str:
    last = min(max(1, -(-found.total // found.limit)), face.bounds.pages)
    before = number > 1
    after = bool(found.hits) and number < last
    if not (before and found.hits) and not after:
        return ""
    place = f"Page {number}" + (f" of {last}" if found.is_exact else "")
    parts = [
        _step(found.words, number - 1, "prev", "‹ Previous", "Previous page") if before else "<span></span>",
        f'<span aria-current="page">{place}</span>',
        _step(found.words, number + 1, "next", "Next ›", "Next page") if after else "<span></span>",
    ]
    end = ""
    if number >= face.bounds.pages and found.total > face.bounds.reach:
        end = f"<p>Only the first {face.bounds.reach:,} hits are shown: add a word to narrow the search.</p>"
    return f'<nav class="pages" aria-label="Pages of results">{"".join(parts)}</nav>{end}'


def _step(words: str, number: int, rel: str, text: str, label: str) -> str:
    # The label contains the visible word: voice control needs it.
    return f'<a href="{_results(words, number)}" rel="{rel}" aria-label="{label}">{text}</a>'


def _results(words: str, number: int = 1) -> str:
    asked = {"q": words} | ({"page": str(number)} if number > 1 else {})
    return escape(f"/?{urlencode(asked, errors='replace')}")


# -- escaping ----------------------------------------------------------------------------------------------


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def text(value: str) -> str:
    return escape(plain(value))
