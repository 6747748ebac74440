"""Has every parser of strangers' and users' files read damaged ones: readers in their jail, and the rest."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.fuzz_parts.apart import Course
from bench.fuzz_parts.file_inputs import made
from bench.fuzz_parts.knocking import chance_of
from bench.fuzz_parts.page_inputs import fetched
from bench.fuzz_parts.results import Part
from bench.fuzz_parts.spoiling import SITE
from tests.crawl.running import crawl_here
from tests.servers.hostile import HostileServer

from sterna.api.search import bring_up
from sterna.archive.warc_scan import content, good_members, packed_record, scan
from sterna.errors import ReadError, SternaError
from sterna.export.cdxj import index_line
from sterna.export.markdown_cell import Conversion, convert
from sterna.export.progress import ExportProgress
from sterna.export.warc import WarcFile, copy_wanted, entries
from sterna.home.folder import CollectionFolder
from sterna.host.policy.policy import read_policy
from sterna.model import Selector
from sterna.runtime.readers import Readers
from sterna.search.searcher import Searcher
from sterna.storage.config import read_config
from sterna.web.charset import charset_of
from sterna.web.cookies import CookieJar
from sterna.web.document import Document
from sterna.web.extraction import extract, parse_selector
from sterna.web.html import read_may
from sterna.web.http import Response, read_head, retry_after_seconds
from sterna.web.markup import language_of, refresh_of
from sterna.web.robots import Rules
from sterna.web.urls import Canonical

READ_SECONDS = 5.0  # for one response: no reader needs as long for a small one
AT_ONCE = 32
MAX_MESSAGE = 2_000
URLS = (f"{SITE}/", f"{SITE}/private/open", f"{SITE}/a.pdf", f"{SITE}/a/b/c/d", f"{SITE}/%e2%98%83?x=*")

Try = Callable[[bytes], str]


class Unclean(Exception):
    """A refusal that is not one short line, or a parser that broke."""


# -- readers -------------------------------------------------------------------------------------------------


def read_responses(parts: Sequence[Part], folder: Path, course: Course) -> None:
    """Responses through jailed readers, as a crawl has them read."""
    for place, part in enumerate(parts):
        print(f"{part.kind}: {part.count:,}", flush=True)
        asyncio.run(_read(part, place, course))


async def _read(part: Part, place: int, course: Course) -> None:
    async with Readers(1, is_jailed=True, seconds=READ_SECONDS) as readers:
        numbers = range(part.first, part.first + part.count)
        for first in range(0, len(numbers), AT_ONCE):
            some = numbers[first : first + AT_ONCE]
            course.begin(place, some[0])
            answers = await asyncio.gather(
                *(_answer(readers, part, number) for number in some), return_exceptions=True
            )
            for number, answer in zip(some, answers, strict=True):
                if isinstance(answer, BaseException):
                    course.fault(part, number, answer)
                else:
                    course.results.tally(part.kind).add(number, *answer)


async def _answer(readers: Readers, part: Part, number: int) -> tuple[str, float]:
    """How the response was read, and the CPU time of it."""
    response = fetched(part.kind, chance_of(part.seed, part.kind, number))
    try:
        document = await readers.read(response)
    except ReadError as error:
        _check_words(error)
        if error.kind == "parser":  # it died, hung, or raised what nobody expected
            raise Unclean(str(error)) from error
        return error.kind, 0.0
    if part.kind == "read: robots":
        return f"rules, {_asked(document)}", document.cpu_seconds
    return document.content_type.partition(";")[0][:30] or "no type", document.cpu_seconds


def _asked(document: Document) -> str:
    rules = Rules.parse(document.text.encode(), "Sterna")
    return f"{sum(map(rules.may_fetch, URLS))} of {len(URLS)} allowed"


# -- files and texts -----------------------------------------------------------------------------------------


def read_files(parts: Sequence[Part], folder: Path, course: Course) -> None:
    """Files and texts, each read by the function that production reads it with."""
    path = folder / "warc" / "input"
    path.parent.mkdir()
    tries: dict[str, Try] = {
        "warc": lambda data: _warc(_written(path, data)),
        "warc export": lambda data: _export(_written(path, data)),
        "policy": lambda data: _config(read_policy, _written(path, data)),
        "storage.toml": lambda data: _config(read_config, _written(path, data)),
        "selector": _select,
        "head": _head,
    }
    for place, part in enumerate(parts):
        print(f"{part.kind}: {part.count:,}", flush=True)
        if part.kind == "search":
            with Searcher(_index(folder)) as searcher:
                _try_all(part, place, course, lambda data: _search(searcher, data))
        else:
            _try_all(part, place, course, tries[part.kind])


def _try_all(part: Part, place: int, course: Course, attempt: Try) -> None:
    for number in range(part.first, part.first + part.count):
        data = made(part.kind, chance_of(part.seed, part.kind, number))
        course.begin(place, number)
        try:
            answer = attempt(data)
        except SternaError as error:
            try:
                _check_words(error)
            except Unclean as unclean:
                course.fault(part, number, unclean)
                continue
            answer = f"refused: {type(error).__name__}"
        except Exception as error:  # whatever it is, it is what is looked for
            course.fault(part, number, error)
            continue
        course.end(part, number, answer)


def _check_words(error: SternaError) -> None:
    words = str(error)
    if len(words.splitlines()) != 1 or len(words) > MAX_MESSAGE:
        raise Unclean(f"{type(error).__name__} in other than one short line: {words[:300]!r}")


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _warc(path: Path) -> str:
    urls: list[str] = []
    scanned = scan(path, urls=urls)
    with path.open("rb") as file:
        for span in good_members(file, end=scanned.size_bytes):
            file.seek(span.offset)
            content(file.read(span.length), max_bytes=1_000_000)
    return f"{min(len(scanned.gaps), 3)} gaps"


def _export(path: Path) -> str:
    """The records as an export copies, indexes and converts them."""
    file, count = WarcFile(path.name, path.parent, path.stat().st_size), 0
    with file.open() as stream, path.with_name("copy").open("wb") as out:
        for entry in copy_wanted(file, out.write, wants=None, progress=ExportProgress()):
            index_line(entry, filename=path.name)
            count += 1
        for entry in entries(file, progress=ExportProgress()):
            record = packed_record(stream, offset=entry.offset, length=entry.length)
            convert(Conversion(url=entry.heads.url, record=record))
    return f"{min(count, 3)} records"


def _config(read: Callable[[Path], object], path: Path) -> str:
    read(path)
    return "accepted"


def _select(data: bytes) -> str:
    css = data.decode("utf-8", "replace")
    parse_selector(css)
    page = "<table><tr><td id=i class=c h=x>a<b>b</b><td>c</table><p>d<a href=x>e</a>" * 10
    found = extract(page, (Selector("x", css, ""),))
    return "accepted, finds some" if any(texts for _, texts in found) else "accepted, finds nothing"


def _head(data: bytes) -> str:
    """What a visit does with the head of a response in its own process."""
    response = Response(status=200, head=data, body=b"", headers=read_head(data), seconds=0.0, wire_bytes=0)
    url, jar, now = f"{SITE}/a", CookieJar(), 1.8e9
    jar.note(url, [value for name, value in response.headers if name == "set-cookie"], now=now)
    header = jar.header(url, now=now)
    if set(header) & set("\r\n\0"):
        raise Unclean(f"a cookie that ends the head: {header!r}")
    pause = retry_after_seconds(response.header("retry-after"), now)
    leads = Canonical()(response.location(), url)
    read_may(response.header("x-robots-tag"))
    refresh_of(response.header("refresh"))
    charset_of(response.header("content-type"))
    language_of(response.header("content-language"))
    kinds = {"cookies": header, "a pause": pause is not None, "a redirect": leads}
    return ", ".join(name for name, is_there in kinds.items() if is_there) or "nothing"


def _search(searcher: Searcher, data: bytes) -> str:
    return "hits" if searcher.search(data.decode("utf-8", "replace")).hits else "no hits"


def _index(folder: Path) -> Path:
    collection = CollectionFolder(folder / "c")
    with HostileServer().run_in_thread() as server:
        server.links = [f"/leaf/{number}" for number in range(50)]
        crawl_here(collection.folder, server.url)
    bring_up(collection)
    return collection.index_folder
