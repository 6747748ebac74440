"""The pages of a collection as a folder of Markdown files, one for each page.

A page's path is made of its URL: it stays inside the folder, and every file system accepts it. A name that
spells its URL exactly stays as it is; any other gets a hash of the URL. Names that differ only in case or in
Unicode composition are one name on some file systems: the later one gets a hash too.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote

from sterna.archive.warc_records import DATE_FORMAT
from sterna.archive.warc_scan import packed_record
from sterna.errors import UsageError
from sterna.export.converter import Converter
from sterna.export.markdown import text_to_markdown
from sterna.export.markdown_cell import MAX_RECORD_BYTES, Conversion
from sterna.export.selection import Selection
from sterna.export.spill import Lookup
from sterna.export.warc import WarcFile, entries
from sterna.model import Record
from sterna.query.engine import Result
from sterna.query.output import distinct
from sterna.query.terminal import as_plain
from sterna.web.sitemap_file import xml_time
from sterna.web.urls import Canonical, path_of, site_of

_IS_HTML = "content_type IN ('text/html', 'application/xhtml+xml')"
_IS_READABLE = f"status = 200 AND (html IS NOT NULL OR text IS NOT NULL OR {_IS_HTML})"
_COLUMNS = f"url, title, fetched, language, {_IS_HTML}, text, headings, html"

SUFFIX = ".md"
_MAX_NAME_BYTES = 64
_MAX_FOLDERS = 10
_HASH_BYTES = (5, 10, 20)  # more where shorter ones are taken

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_UNSAFE = re.compile(r"[^\w.+=,@~-]")
_PAGE = re.compile(r"\.x?html?\Z", re.IGNORECASE)
# Devices on Windows, with any extension.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)


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


def write_folder(source: Selection, folder: Path, *, is_main: bool = False) -> int:
    """Writes a file for each page with a text, and returns their number."""
    source.check()
    scratch, progress = source.scratch, source.progress
    with (
        Lookup(scratch / "paths") as taken,
        Lookup(scratch / "names") as names,
        Lookup(scratch / "responses") as places,
        Converter() as converter,
    ):
        if source.warcs and source.count(f"{_IS_READABLE} AND {_IS_HTML} AND html IS NULL"):
            _note_responses(source, places)
        progress.begin("pages", total=source.count(_IS_READABLE), unit="pages")
        # In order of the URLs, so that each export gives a page the same name.
        for (url,) in source.engine.run(f"{source.select('url', and_where=_IS_READABLE)} ORDER BY url").rows:
            names.put_newest(url, take_path(url, taken))
        folder.mkdir()
        count = 0
        for row in progress.of(source.rows(_COLUMNS, and_where=_IS_READABLE)):
            page = _Page(*row)
            if body := converter.convert(_conversion(page, source.warcs, places, is_main=is_main)):
                path = folder / (names.get(page.url) or take_path(page.url, taken))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_front_matter(page) + body, "utf-8", newline="\n")
                count += 1
    return count


def write_answer(result: Result, folder: Path, *, scratch: Path) -> int:
    """Writes a file for each row of a query: its `url` names it, and after the other columns comes `text`."""
    names = distinct(result.columns)
    if not {"url", "text"} <= set(names):
        raise UsageError("Markdown is made of url and text: write SELECT url, title, text ...")
    folder.mkdir()
    count, canonical = 0, Canonical(())
    with Lookup(scratch / "paths") as taken:
        for row in result.rows:
            values = {name: as_plain(value) for name, value in zip(names, row, strict=True)}
            url, text = canonical(str(values["url"])), values.pop("text")
            if url is None:
                raise UsageError(f"{values['url']!r} is not a web address: url must be that of a page")
            path = folder / take_path(url, taken)
            path.parent.mkdir(parents=True, exist_ok=True)
            head = {name: str(value) for name, value in values.items() if value is not None}
            path.write_text(_front(head) + text_to_markdown(str(text or ""), ()), "utf-8", newline="\n")
            count += 1
    return count


def _conversion(page: _Page, files: Sequence[WarcFile], places: Lookup, *, is_main: bool) -> Conversion:
    return Conversion(
        url=page.url,
        html=page.html or "",
        record=_record(page, files, places) if page.is_html and not page.html else b"",
        text=page.text or "",
        headings=tuple(page.headings or ()),
        is_main=is_main,
    )


def _front_matter(page: _Page) -> str:
    fields = {
        "url": page.url,
        "title": page.title,
        "fetched": xml_time(page.fetched.timestamp()),
        "language": page.language,
    }
    return _front({name: value for name, value in fields.items() if value})


def _front(fields: Mapping[str, str]) -> str:
    names = (name if _PLAIN_NAME.fullmatch(name) else yaml_text(name) for name in fields)
    lines = [f"{name}: {yaml_text(value)}\n" for name, value in zip(names, fields.values(), strict=True)]
    return f"---\n{''.join(lines)}---\n\n"


def yaml_text(text: str) -> str:
    """The text as a quoted YAML scalar."""
    return "".join(map(_yaml_sign, json.dumps(text, ensure_ascii=False)))


def _yaml_sign(sign: str) -> str:
    if sign.isprintable():
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"


# --- pages as their servers sent them, found in WARC files


def _note_responses(source: Selection, places: Lookup) -> None:
    size_bytes = sum(file.committed_bytes for file in source.warcs)
    source.progress.begin("WARC files", total=size_bytes, unit="bytes")
    for number, file in enumerate(source.warcs):
        for entry in entries(file, progress=source.progress):
            if entry.heads.kind == "response":
                place = f"{entry.heads.date} {number} {entry.offset} {entry.length}"
                places.put_newest(entry.heads.url, place)


def _record(page: _Page, files: Sequence[WarcFile], places: Lookup) -> bytes:
    """The record of the page as it was fetched; nothing if there is none that is small enough.

    A later response is as good: a changed page would have a later version.
    """
    date, number, offset, length = (places.get(page.url) or " 0 0 0").split(" ")
    if date < page.fetched.astimezone(UTC).strftime(DATE_FORMAT) or int(length) > MAX_RECORD_BYTES:
        return b""
    with files[int(number)].open() as file:
        return packed_record(file, offset=int(offset), length=int(length))


# --- paths


def file_path(url: str) -> str:
    """The relative path for a canonical URL, with slashes."""
    path, _, query = path_of(url).partition("?")
    *folders, last = path.split("/")[1:]
    page = _PAGE.sub("", last) or last or "index"
    kept = [folder for folder in folders if folder][:_MAX_FOLDERS]
    names = [*map(_folder, kept), _name(page)]
    is_exact = not query and names == [unquote(segment) for segment in [*folders, page]]
    if query:
        names[-1] = _cut(f"{names[-1]}_{_name(query)}")
    whole = "/".join([_folder(site_of(url).partition("://")[2].replace(":", "_")), *names])
    return (whole if is_exact else f"{whole}-{_hash(url, _HASH_BYTES[0])}") + SUFFIX


def take_path(url: str, taken: Lookup) -> str:
    """The path for a URL that no other has; call it once for each."""
    path = file_path(url)
    for hash_bytes in _HASH_BYTES:
        if taken.add(normalize("NFKC", path).casefold()):
            break
        path = f"{file_path(url).removesuffix(SUFFIX)}-{_hash(url, hash_bytes)}{SUFFIX}"
    return path


def _folder(segment: str) -> str:
    name = _name(segment)
    # A file of this name may exist beside it.
    return f"{name}_" if normalize("NFKC", name).casefold().endswith(SUFFIX) else name


def _name(segment: str) -> str:
    text = _UNSAFE.sub("_", normalize("NFC", unquote(segment)))
    if text[:1] in (".", "-") or _RESERVED.fullmatch(text):
        text = f"_{text}"  # hidden files, and options of commands
    text = _cut(text)
    return f"{text[:-1]}_" if text.endswith(".") else text or "_"


def _cut(text: str) -> str:
    return text.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")


def _hash(url: str, hash_bytes: int) -> str:
    return blake2b(url.encode(), digest_size=hash_bytes).hexdigest()
