"""The pages of a collection as a folder of Markdown files, one a page."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sterna.errors import ReadError
from sterna.export.inline import Piece, heading, paragraph
from sterna.export.markdown import to_markdown
from sterna.export.paths import Paths
from sterna.export.progress import Progress, Tally
from sterna.export.responses import Responses
from sterna.export.selection import Source
from sterna.export.spill import Lookup
from sterna.model import Record

_IS_HTML = "content_type IN ('text/html', 'application/xhtml+xml')"
_IS_READABLE = f"status = 200 AND (html IS NOT NULL OR text IS NOT NULL OR {_IS_HTML})"
_COLUMNS = f"url, title, fetched, language, {_IS_HTML}, text, headings, html"


class _Page(Record, frozen=True):
    """A page as the collection has it, in the order of the columns that are asked for."""

    url: str
    title: str | None
    fetched: datetime
    language: str | None
    is_html: bool | None
    text: str | None
    headings: Sequence[str] | None
    html: str | None


def write_folder(source: Source, folder: Path, *, scratch: Path, progress: Progress) -> int:
    """Writes a file for each page that says something, and tells how many these are."""
    source.check()
    with Lookup(scratch / "paths") as taken, Responses(scratch / "responses") as responses:
        if source.warcs and source.count(f"{_IS_READABLE} AND {_IS_HTML} AND html IS NULL"):
            responses.find(source.warcs, progress=progress)
        progress.begin("pages", total=source.count(_IS_READABLE), unit="pages")
        paths, count = Paths(taken), 0
        folder.mkdir()
        for row in Tally(progress).of(source.rows(_COLUMNS, and_where=_IS_READABLE)):
            page = _Page(*row)
            if body := _body(page, responses):
                path = folder / paths.take(page.url)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_front_matter(page) + body, "utf-8", newline="\n")
                count += 1
    return count


def _body(page: _Page, responses: Responses) -> str:
    html = page.html or (responses.html(page.url, page.fetched) if page.is_html else None)
    return (_of_html(html, page.url) if html else "") or of_text(page.text or "", page.headings or ())


def _of_html(html: str, url: str) -> str:
    try:
        return to_markdown(html, url)
    except ReadError:
        return ""  # the parser gave up, and the page's text is what is left of it


def of_text(text: str, headings: Sequence[str]) -> str:
    """The text of a page with its headings set apart, where they are found in it, in their order."""
    blocks: list[str] = []
    start = 0
    for title in headings:
        at = _place_of(title, text, start)
        if at >= 0:
            blocks += [paragraph([Piece(text[start:at])]), heading([Piece(title)], 2)]
            start = at + len(title)
    blocks.append(paragraph([Piece(text[start:])]))
    return "\n\n".join(filter(None, blocks)) + "\n" if any(blocks) else ""


def _place_of(title: str, text: str, start: int) -> int:
    """Where the title stands in the text as words of its own; -1 where it does not."""
    at = text.find(title, start) if title else -1
    while at >= 0:
        before, after = text[max(at - 1, 0) : at], text[at + len(title) : at + len(title) + 1]
        if not before.isalnum() and not after.isalnum():
            return at
        at = text.find(title, at + 1)
    return -1


def _front_matter(page: _Page) -> str:
    fields = {
        "url": page.url,
        "title": page.title,
        "fetched": page.fetched.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "language": page.language,
    }
    lines = [f"{name}: {yaml_text(value)}\n" for name, value in fields.items() if value]
    return f"---\n{''.join(lines)}---\n\n"


def yaml_text(text: str) -> str:
    """The text between quotes, as YAML reads it."""
    return "".join(map(_yaml_sign, json.dumps(text, ensure_ascii=False)))


def _yaml_sign(sign: str) -> str:
    if sign.isprintable():
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"
