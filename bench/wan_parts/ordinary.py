"""Crawling from home in the ordinary way: Sterna that stays there, and Scrapy."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from bench.wan_parts.sites import Site
from bench.wan_parts.stage import Outcome, Stage, pages_in, summary_of

HERE = Path(__file__).parent
PEERS = HERE.parent / ".peers"
PYTHON = PEERS / "venv/bin/python"
STERNA = (sys.executable, "-m", "sterna")


@dataclass(frozen=True, slots=True)
class Task:
    """What is wanted of a site: fields, of which pages, and how much of each."""

    name: str
    keep: tuple[str, ...] = ("html",)
    words: tuple[str, ...] = ()
    share: float = 1.0

    def write(self, folder: Path) -> Path:
        """The task as a spec."""
        name = self.name.replace(" ", "-")
        lines = [f'name = "{name}"', "[scope]", "sitemaps = false", "[keep]"]
        lines += [f"fields = {json.dumps(self.keep)}", f"share = {self.share}"]
        if self.words:
            lines += ["[select]", f"keywords_any = {json.dumps(self.words)}"]
        path = folder / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path


FULL = Task("full")
TEXT = Task("text", keep=("title", "text"))
BRIEF = Task("brief", keep=("title", "keywords"))


def install() -> None:
    """Scrapy, and what draws the figures, into the environment of the benches' peers."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS / "venv"], check=True)
    found = subprocess.run([PYTHON, "-c", "import scrapy, matplotlib"], capture_output=True, check=False)
    if found.returncode:
        subprocess.run([PYTHON, "-m", "pip", "install", "-q", "scrapy", "matplotlib"], check=True)


def way_of(connections: int, *, gzip: bool) -> str:
    return f"ordinary {connections}{' gzip' if gzip else ''}"


def crawl_from_home(
    stage: Stage,
    site: Site,
    *,
    connections: int,
    gzip: bool,
    task: Task = FULL,
    max_pages: int = 0,
    collection: Path | None = None,
    is_again: bool = False,
    label: str = "",
) -> Outcome:
    """Sterna, all requests over the line; in a collection of its own, or again in one that is there."""
    folder = collection or stage.collection("ordinary")
    command = [*STERNA, "crawl", str(task.write(stage.folder)), site.start("gzip" if gzip else "plain")]
    # Half of the connections are one site's.
    command += ["--into", str(folder), "--delay", "0", "--concurrency", str(2 * connections)]
    command += ["--no-index", "--here", "--json", *more_flags(max_pages, is_again=is_again)]
    outcome, printed = stage.run(way_of(connections, gzip=gzip), label or task.name, site, command)
    return settled(stage, outcome, printed, folder=folder, is_whole=not max_pages)


def more_flags(max_pages: int, *, is_again: bool) -> list[str]:
    limit = ["--max-pages", str(max_pages)] if max_pages else []
    return limit + (["--refresh", "0"] if is_again else [])


def settled(stage: Stage, outcome: Outcome, printed: str, *, folder: Path, is_whole: bool) -> Outcome:
    """The outcome with the counts of the summary; the pages are checked where all were wanted."""
    summary = summary_of(printed)
    if is_whole:
        stage.check(outcome, pages_in(folder))
    return replace(outcome, pages=summary["pages"], kept=summary["kept"])


def crawl_by_scrapy(stage: Stage, site: Site, *, connections: int) -> Outcome:
    """Scrapy, with gzip, as it asks for it by itself."""
    pages = stage.folder / "scrapy.jsonl"
    pages.unlink(missing_ok=True)
    command = [str(PYTHON), str(HERE / "scrapy_pages.py"), site.start("gzip"), str(pages), str(connections)]
    outcome, _ = stage.run(f"scrapy {connections} gzip", FULL.name, site, command)
    with pages.open() as lines:
        seen = {urlsplit(json.loads(line)["url"]).path for line in lines}
    known = stage.pages.get(site.name, {})
    if known:
        # Scrapy tells no digests: those of the others stand for them.
        stage.check(outcome, {path: known.get(path, "") for path in seen})
    return replace(outcome, pages=len(seen), kept=len(seen))
