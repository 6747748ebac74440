"""What an ordinary user does, each step in a process of its own; prints what became of it as JSON."""

import json
import os
import sys
from pathlib import Path

from tests.crawl.hosting import crawl_with_keys, hosts
from tests.crawl.running import sterna_process, stored_urls
from tests.servers.pages import PageServer, linking

A, B = "127.0.6.41", "127.0.6.42"
PAGES = 20


def crawl(folder: Path) -> object:
    """One site from here with an index, one through its host, both with WARC files."""
    pages = {"/": linking(*(f"/{n}" for n in range(PAGES - 1)), title="Terns")}
    pages |= {f"/{n}": linking(title=f"Tern {n}") + f"Tern {n} sings." for n in range(PAGES - 1)}
    with PageServer({A: pages, B: pages}).run_in_thread() as server, hosts(server, folder, B):
        seeds = [server.url(site, "/") for site in (A, B)]
        summary = crawl_with_keys(folder, *seeds, "--allow-private", "--warc", "--index")
    return {"user": os.geteuid(), "visits": summary["visits"], "pages": len(stored_urls(folder / "c"))}


def read(folder: Path) -> object:
    """All commands that only read, of a collection that the user may read and not change."""
    collection, into = folder / "c", folder / "made"
    into.mkdir()
    commands = {
        "search": ("search", collection, "tern", "--json"),
        "query": ("query", collection, "SELECT count(*) AS n FROM page", "--format", "csv"),
        "query --out": ("query", collection, "SELECT url FROM page", "--out", into / "rows.csv", "-f", "csv"),
        "status": ("status", collection),
        "csv": ("export", collection, "--to", "csv", "--out", into / "all.csv"),
        "wacz": ("export", collection, "--to", "wacz", "--out", into / "all.wacz"),
        "markdown": ("export", collection, "--to", "markdown", "--out", into / "pages"),
        "index": ("index", collection),
    }
    done = {name: sterna_process(*words) for name, words in commands.items()}
    return {
        "user": os.geteuid(),
        "codes": {name: result.returncode for name, result in done.items()},
        "out": {name: result.stdout for name, result in done.items()},
        "errors": {name: result.stderr for name, result in done.items()},
        "made": sorted(path.name for path in into.iterdir()),
        "rows": len((into / "rows.csv").read_text().splitlines()) - 1,
        "files": len(list((into / "pages").rglob("*.md"))),
    }


if __name__ == "__main__":
    json.dump({"crawl": crawl, "read": read}[sys.argv[1]](Path(sys.argv[2])), sys.stdout)
