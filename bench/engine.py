"""What programs cost: python -m bench.engine.

A whole crawl of a real site with and without selection and filtering by a spec; pages through a jailed engine
with three rules of an author's own, beside the same pages through one without rules, which is the limit; the
start of an engine beside that of a bare Python; 100,000 facts saved and restored.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop
from bench.crawl import DEBIAN, SERVER, START, install_sites, seen, sterna
from bench.measuring import measure
from bench.ratios import settle
from tests.runtime.continuing import changed
from tests.servers.nginx import serve

from sterna.model import Links, Program, Source, State
from sterna.runtime.engine.client import Engines
from sterna.runtime.engine.messages import PageView
from sterna.web.document import Fetched, read_document

SAMPLE = 5_000
STARTS = 50
FACTS = 100_000
SPEC = """
name = "bench"
seeds = ["{url}"]
[select]
keywords_any = ["iterator", "thread", "socket", "template"]
languages = ["en"]
[keep]
fields = ["title", "description", "keywords"]
[politeness]
delay = 0
"""
RULES = """
(deftemplate subject (slot name) (slot url))
(defrule on-subject
   (page (url ?url) (status 200) (title ?title))
   (test (neq ?title ""))
   =>
   (if (text-has "iterator" "thread") then (keep) else (drop)))
(defrule row
   (page (url ?url) (title ?title) (depth ?depth&:(< ?depth 9)))
   =>
   (emit seen ?url ?title (text-count "iterator")))
(defrule remember
   (page (url ?url))
   =>
   (if (text-has "iterator") then (assert (subject (name "iterator") (url ?url)))))
"""
MANY_FACTS = f"""
(deftemplate known (slot url) (slot number))
(defrule make
   (page (url ?url))
   =>
   (loop-for-count (?n 1 {FACTS // 100})
      (assert (known (url (str-cat ?url "/" ?n)) (number ?n)))))
"""


def crawl_speed(command: list[str], server: object, folder: Path) -> float:
    since = server.log_path.stat().st_size  # type: ignore[attr-defined]
    cost = measure(command, folder=folder)
    return len(seen(server, since)) / cost.seconds  # type: ignore[arg-type]


def whole_crawls(rounds: int) -> dict[str, float]:
    """Pages a second, plain and by a spec, in turn."""
    made: dict[str, list[float]] = {"plain": [], "spec": []}
    with tempfile.TemporaryDirectory() as work:
        roots = {"/boost/": DEBIAN["libboost1.81-doc"], "/java/": DEBIAN["openjdk-17-doc"]}
        with serve(roots, folder=Path(work), extra=SERVER) as server:
            url = f"{server.url}{START}"
            spec = Path(work) / "bench.toml"
            spec.write_text(SPEC.format(url=url))
            for _ in range(rounds):
                for name, first in (("plain", url), ("spec", str(spec))):
                    with tempfile.TemporaryDirectory() as folder:
                        made[name].append(crawl_speed(sterna()(first, Path(folder)), server, Path(folder)))
                    print(f"crawl, {name}: {made[name][-1]:,.0f} pages/s", flush=True)
    return {name: statistics.median(speeds) for name, speeds in made.items()}


def sample_views() -> list[PageView]:
    paths = sorted(path for folder in DEBIAN.values() for path in folder.rglob("*.html") if path.is_file())
    views = []
    for path in paths[:: max(1, len(paths) // SAMPLE)][:SAMPLE]:
        url = f"http://h.test{path}"
        document = read_document(
            Fetched(url=url, status=200, content_type="text/html", body=path.read_bytes())
        )
        views.append(
            PageView(
                url=url, site="http://h.test", status=200, depth=2, content_type="text/html",
                size=document.size, title=document.title, text=document.text, links=Links(),
            )
        )  # fmt: skip
    return views


async def engine_speed(views: list[PageView], rules: str, *, is_jailed: bool) -> float:
    """Pages a second from the call to the verdict."""
    async with Engines(is_jailed=is_jailed) as engines:
        engine = await engines.open(Program(rules=(Source("bench.clp", rules),)))
        await asyncio.gather(*map(engine.judge, views[:100]))
        began = time.perf_counter()
        await asyncio.gather(*map(engine.judge, views))
        seconds = time.perf_counter() - began
        await engine.close()
    return len(views) / seconds


async def start_milliseconds() -> float:
    """Of a jailed engine with three rules, from the call until they run; the warm parent is there already."""
    program = Program(rules=(Source("bench.clp", RULES),))
    times = []
    async with Engines() as engines:
        for _ in range(STARTS + 1):
            began = time.perf_counter()
            engine = await engines.open(program)
            times.append(1000 * (time.perf_counter() - began))
            await engine.close()
    return statistics.median(times[1:])


def python_milliseconds() -> float:
    times = []
    for _ in range(10):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import clips"], check=True)
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


async def facts_seconds() -> tuple[float, float]:
    """For 100,000 facts to come home, and for an engine to go on with them."""
    program = Program(rules=(Source("bench.clp", MANY_FACTS),))
    async with Engines() as engines:
        engine = await engines.open(program)
        for number in range(100):
            await engine.judge(PageView(url=f"http://h.test/{number}"))
        began = time.perf_counter()
        change = await engine.change()
        data = msgspec.msgpack.encode(changed(State(), change))
        saved = time.perf_counter() - began
        await engine.close()
        assert len(change.added) == FACTS
        began = time.perf_counter()
        engine = await engines.open(program, state=msgspec.msgpack.decode(data, type=State))
        restored = time.perf_counter() - began
        await engine.close()
    return saved, restored


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="of whole crawls; 0 leaves them out")
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    given = parser.parse_args()
    install_sites()
    ratios: dict[str, float] = {}
    print("| what | here | beside | ratio |\n|---|---|---|---|", flush=True)
    views = sample_views()
    rules = uvloop.run(engine_speed(views, RULES, is_jailed=True))
    none = uvloop.run(engine_speed(views, "(deffacts nothing)", is_jailed=True))
    ratios["three rules, jailed / none"] = rules / none
    ratios["three rules, jailed / 3,000 pages a second"] = rules / 3_000
    print(f"| pages/s, three rules, jailed | {rules:,.0f} | no rules {none:,.0f} | {rules / none:.2f} |")
    start, bare = uvloop.run(start_milliseconds()), python_milliseconds()
    ratios["20 ms / start of a jailed engine"] = 20 / start
    print(
        f"| start of a jailed engine, ms | {start:.1f} | Python with CLIPS {bare:.1f} | {start / bare:.2f} |"
    )
    saved, restored = uvloop.run(facts_seconds())
    ratios["3 s / 100,000 facts saved and restored"] = 3 / (saved + restored)
    total = saved + restored
    print(f"| 100,000 facts saved, restored, s | {saved:.2f}, {restored:.2f} | 3 s | {total / 3:.2f} |")
    if given.rounds:
        speeds = whole_crawls(given.rounds)
        ratios["crawl by a spec / plain"] = speeds["spec"] / speeds["plain"]
        print(
            f"| pages/s, crawl with select and keep | {speeds['spec']:,.0f} | plain {speeds['plain']:,.0f} |"
            f" {speeds['spec'] / speeds['plain']:.2f} |"
        )
    settle("engine", ratios, record=given.record)


if __name__ == "__main__":
    main()
