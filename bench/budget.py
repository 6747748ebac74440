"""Where each microsecond and byte of a page goes: python -m bench.budget.

First a whole crawl of a real site, with the CPU time of each of its processes and threads; then every step of
a page by itself, on the same pages, in one process. --draw writes the picture of docs/performance.md. --jail
compares whole crawls with jailed readers and without, in turn, instead.
"""

import argparse
import asyncio
import gc
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from bench.crawl import DEBIAN, SERVER, START, install_sites
from bench.measuring import descendants, thread_seconds
from tests.servers.nginx import serve

from sterna.archive.rows import link_table, page_table
from sterna.archive.segments import SegmentStore
from sterna.model import DEFAULT_FIELDS, Links, Page
from sterna.web import walk
from sterna.web.charset import decode_text
from sterna.web.curl import CurlConfig, CurlFetcher
from sterna.web.document import Document, Fetched, Manner, read_document
from sterna.web.html import join
from sterna.web.http import Request
from sterna.web.language import guess_language
from sterna.web.markup import Findings
from sterna.web.native.judge import JudgedReader
from sterna.web.native.reader import NativeReader
from sterna.web.urls import Canonical, fingerprint

PICTURE = Path(__file__).parent.parent / "docs" / "budget.svg"
SAMPLE = 1_500
CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a page and what it takes, in microseconds of CPU."""

    name: str
    micros: float


# -- a whole crawl -------------------------------------------------------------------------------------------


def crawl_costs(url: str, folder: Path, *flags: str) -> tuple[float, list[Step]]:
    """Pages a second of a whole crawl, and the CPU of its processes and threads for each page."""
    command = [
        sys.executable,
        "-m",
        "sterna",
        "crawl",
        url,
        "--into",
        str(folder),
        "--delay",
        "0",
        "--no-index",
        "--json",
    ]
    spent: dict[tuple[int, int], float] = {}
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        while process.poll() is None:
            for pid in descendants(process.pid):
                spent.update(thread_seconds(pid))
            time.sleep(0.1)
        summary = msgspec.json.decode(process.stdout.read().splitlines()[-1])
    main, pages = process.pid, summary["pages"]
    parts = {
        "home and runtime: the loop": sum(s for (pid, tid), s in spent.items() if pid == tid == main),
        "home: ledger and archive": sum(s for (pid, tid), s in spent.items() if pid == main != tid),
        "readers": sum(s for (pid, _), s in spent.items() if pid != main),
    }
    return summary["pages_per_second"], [Step(name, 1e6 * s / pages) for name, s in parts.items()]


def compare_jail(url: str, folder: Path, *, rounds: int) -> None:
    """Prints the cost of the readers' jail: CPU of a crawl for each page, and pages a second."""
    found: dict[str, list[tuple[float, float]]] = {"--jail": [], "--no-jail": []}
    for number in range(rounds):
        for flag, results in found.items():
            speed, steps = crawl_costs(url, folder / f"{number}{flag}", flag)
            results.append((sum(step.micros for step in steps), speed))
            print(f"{flag}: {results[-1][0]:,.0f} µs a page, {speed:,.0f} pages/s", flush=True)
    (micros, speed), (plain_micros, plain_speed) = (
        [statistics.median(column) for column in zip(*results, strict=True)] for results in found.values()
    )
    print(
        f"\nCPU {micros / plain_micros:.3f} times, speed {speed / plain_speed:.3f} times that without a jail"
    )


# -- each step by itself -------------------------------------------------------------------------------------


def cost(call: Callable[[Any], object], items: Sequence[Any]) -> float:
    """Microseconds of CPU for each item, the best of three times."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        for item in items:
            call(item)
        best = min(best, time.process_time() - began)
    return 1e6 * best / len(items)


async def fetch_all(urls: Iterable[str]) -> None:
    fetcher = CurlFetcher(CurlConfig(connections=CONNECTIONS))
    queue = iter(urls)

    async def work() -> None:
        for url in queue:
            await fetcher.fetch(Request(url=url, address="127.0.0.1"))

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    await fetcher.close()


def fetch_cost(urls: Sequence[str]) -> Step:
    return Step("fetch (libcurl, loop)", cost(lambda _: uvloop.run(fetch_all(urls)), [None]) / len(urls))


def reader_steps(bodies: Sequence[tuple[str, bytes]]) -> list[Step]:
    """What a reader does with an answer, one after the other; last, what the tree takes instead of C."""
    decoder, encoder, canonical = msgspec.msgpack.Decoder(Fetched), msgspec.msgpack.Encoder(), Canonical()
    native, judged = NativeReader(), JudgedReader()
    answers = [encoder.encode(_answer(url, body)) for url, body in bodies]
    texts = [decode_text(body, None)[0] for _, body in bodies]
    documents = [read_document(_answer(url, body), judged) for url, body in bodies]
    read = [walk.read_tree(text, agent="sterna") for text in texts]
    return [
        Step("answer in (msgpack)", cost(decoder.decode, answers)),
        Step("digest (BLAKE2)", cost(lambda each: blake2b(each[1], digest_size=16).digest(), bodies)),
        Step("charset", cost(lambda each: decode_text(each[1], None), bodies)),
        Step("text and links, in C", cost(partial(native.read, agent="sterna", wants=DEFAULT_FIELDS), texts)),
        Step("links joined", cost(lambda page: _joined(page, canonical), read)),
        Step("fingerprints of links", cost(lambda document: _mark_all(document.links.urls), documents)),
        Step("language guessed", cost(lambda document: guess_language(document.text), documents)),
        Step("document out (msgpack)", cost(encoder.encode, documents)),
        Step("by the tree instead of C", cost(partial(walk.read_tree, agent="sterna"), texts)),
    ]


def _joined(page: Findings, canonical: Canonical) -> Links:
    return join(page.hrefs, page.media, "http://h.test/a/b.html", canonical=canonical)


def link_steps(bodies: Sequence[tuple[str, bytes]]) -> list[Step]:
    native, texts = NativeReader(), [decode_text(body, None)[0] for _, body in bodies]
    return [Step("links alone, in C", cost(partial(native.read, agent="sterna", wants=("links",)), texts))]


def archive_steps(bodies: Sequence[tuple[str, bytes]], folder: Path) -> tuple[list[Step], dict[str, float]]:
    documents = [read_document(_answer(url, body)) for url, body in bodies]
    pages = [("http://h.test", _page(url, each)) for (url, _), each in zip(bodies, documents, strict=True)]
    count = len(pages)
    store = SegmentStore(folder)
    tables = cost(lambda _: (page_table(pages), link_table(pages)), [None]) / count
    written = cost(lambda _: store.write_pages(pages), [None]) / count
    size = sum(segment.size_bytes for segment in store.write_pages(pages)) / count
    moved = {
        "over the network": sum(len(body) for _, body in bodies) / count,
        "back from a reader": sum(len(msgspec.msgpack.encode(each)) for each in documents) / count,
        "of that, text": sum(len(each.text.encode()) for each in documents) / count,
        "of that, links": sum(len(each.links.urls) + len(each.links.texts) for each in documents) / count,
        "in Parquet": size,
    }
    return [Step("rows (Arrow)", tables), Step("Parquet, fsync", written - tables)], moved


def _mark_all(urls: str) -> list[int]:
    return [fingerprint(url) for url in urls.split("\n")] if urls else []


def _answer(url: str, body: bytes) -> Fetched:
    return Fetched(url=url, status=200, content_type="text/html", body=body, manner=Manner().encoded())


def _page(url: str, document: Document) -> Page:
    return Page(
        url=url,
        fingerprint=fingerprint(url),
        depth=1,
        fetched=1.0,
        status=200,
        title=document.title,
        text=document.text,
        digest=document.digest,
        links=document.links,
    )


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """Serves the site, and gives the URL where a crawl starts."""
    roots = {"/boost/": DEBIAN["libboost1.81-doc"], "/java/": DEBIAN["openjdk-17-doc"]}
    with serve(roots, folder=folder / "nginx", extra=SERVER) as server:
        yield f"{server.url}{START}"


def sample(count: int) -> list[tuple[str, Path]]:
    """Paths under which pages of the site are served, and their files."""
    found = [
        (f"{prefix}{path.relative_to(root)}", path)
        for prefix, root in (
            ("/boost/", DEBIAN["libboost1.81-doc"]),
            ("/java/", DEBIAN["openjdk-17-doc"]),
        )
        for path in sorted(root.rglob("*.html"))
        if path.is_file()
    ]
    return random.Random(1).sample(found, count)


# -- the picture ---------------------------------------------------------------------------------------------

_COLOURS = ("#31688e", "#35b779", "#8fd744", "#fde725", "#440154", "#443983", "#21918c", "#90d743", "#b5de2b")


def draw(rows: dict[str, list[Step]]) -> str:
    """A bar of steps for each row, to one scale."""
    widest = max(sum(step.micros for step in steps) for steps in rows.values())
    scale = 760 / widest
    lines: list[str] = []
    y = 30
    for title, steps in rows.items():
        total = sum(step.micros for step in steps)
        lines.append(f'<text x="10" y="{y}" font-weight="bold">{title}: {total:,.0f} µs</text>')
        x = 10.0
        for number, step in enumerate(steps):
            width = step.micros * scale
            colour = _COLOURS[number % len(_COLOURS)]
            lines.append(f'<rect x="{x:.1f}" y="{y + 8}" width="{width:.1f}" height="26" fill="{colour}"/>')
            label_y = y + 52 + 17 * number
            lines.append(f'<rect x="10" y="{label_y - 10}" width="11" height="11" fill="{colour}"/>')
            lines.append(f'<text x="28" y="{label_y}">{step.name}: {step.micros:,.0f} µs</text>')
            x += width
        y += 52 + 17 * len(steps) + 24
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {y}" '
        'font-family="sans-serif" font-size="13">\n'
        f'<rect width="780" height="{y}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", action="store_true", help="write docs/budget.svg")
    parser.add_argument("--jail", type=int, metavar="ROUNDS", help="only compare readers in and out of jail")
    given = parser.parse_args()
    install_sites()
    if given.jail:
        with tempfile.TemporaryDirectory() as work, site(Path(work)) as start:
            compare_jail(start, Path(work), rounds=given.jail)
        return
    chosen = sample(SAMPLE)
    bodies = [(f"http://h.test{path}", file.read_bytes()) for path, file in chosen]
    gc.freeze()
    gc.set_threshold(100_000)
    with tempfile.TemporaryDirectory() as work:
        with site(Path(work)) as start:
            speed, whole = crawl_costs(start, Path(work) / "all")
            link_speed, whole_links = crawl_costs(start, Path(work) / "links", "--keep", "links")
            fetch = fetch_cost([f"{start.removesuffix(START)}{path}" for path, _ in chosen])
        archive, moved = archive_steps(bodies, Path(work) / "segments")
    rows = {
        f"a whole crawl, {speed:,.0f} pages/s": whole,
        f"a whole crawl with --keep links, {link_speed:,.0f} pages/s": whole_links,
        "a reader, step by step": reader_steps(bodies),
        "a reader with --keep links instead of text and links": link_steps(bodies),
        "home and runtime, the large steps": [fetch, *archive],
    }
    for title, steps in rows.items():
        print(f"\n{title}\n\n| step | µs a page |\n|---|---|")
        for step in steps:
            print(f"| {step.name} | {step.micros:,.0f} |")
    print("\nbytes a page\n\n| | bytes |\n|---|---|")
    for name, size in moved.items():
        print(f"| {name} | {size:,.0f} |")
    if given.draw:
        PICTURE.write_text(draw(rows))


if __name__ == "__main__":
    main()
