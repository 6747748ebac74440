"""`sterna index` and `sterna search` as they are called, on a site by a real nginx."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import COMMAND, crawl_here, segment_paths, sterna
from tests.search.shelf import held_in, newest_good
from tests.servers.nginx import NginxServer, serve

PAGES = {
    "index.html": "<title>Start</title>"
    '<a href="whales.html">w</a><a href="terns.html">t</a><a href="evil.html">e</a>',
    "whales.html": "<html lang=en><title>Whales of the North</title><p>They are singing songs.</p>",
    "terns.html": "<html lang=en><title>Arctic terns</title><p>They migrate and sing.</p>",
    "evil.html": "<title>Sing &#27;]0;owned&#7; \u202egnis</title><p>sing \u009b31m red",
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[NginxServer]:
    root = tmp_path / "site"
    root.mkdir()
    for name, text in PAGES.items():
        (root / name).write_text(f'<meta charset="utf-8">{text}')
    with serve(root, folder=tmp_path / "nginx") as server:
        yield server


def found(folder: Path, *words: str) -> list[str]:
    result = sterna("search", folder, *words, "--json")
    assert result.returncode == (0 if json.loads(result.stdout)["hits"] else 1), result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return sorted(hit["url"].rpartition("/")[2] for hit in answer["hits"])


def test_a_site_is_crawled_indexed_searched_and_forgotten(site: NginxServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    crawl_here(folder, f"{site.url}/index.html")
    first = sterna("search", folder, "singing")
    assert first.returncode == 0, first.stderr
    assert "has no search index yet: creating it" in first.stderr
    assert "Whales of the North" in first.stdout
    # Nothing of a page may reach the terminal but its letters.
    assert first.stdout.replace("\n", "").isprintable()
    assert found(folder, '"of the north"') == ["whales.html"]
    assert found(folder, "sing", "title:terns") == ["terns.html"]
    assert found(folder, "sing -title:sing site:127.0.0.1") == ["terns.html", "whales.html"]
    (tmp_path / "site" / "terns.html").unlink()
    crawl_here(folder, refresh=0.0)
    again = sterna("index", folder)
    assert (again.returncode, again.stderr) == (0, "")
    assert "3 pages can be searched" in again.stdout
    assert found(folder, "terns") == []
    assert held_in(folder / "index") == newest_good([Path(path) for path in segment_paths(folder, "page")])


def test_json_is_one_object_of_ascii(site: NginxServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    crawl_here(folder, f"{site.url}/index.html")
    assert sterna("index", folder).returncode == 0
    result = sterna("search", folder, "sing", "--json", "--limit", "1", "--offset", "1")
    assert result.stdout.isascii()
    assert result.stdout.count("\n") == 1
    answer = json.loads(result.stdout)
    assert (answer["words"], answer["total"], answer["offset"], answer["limit"]) == ("sing", 3, 1, 1)
    assert set(answer["hits"][0]) == {
        *("url", "site", "title", "language", "snippet", "title_pieces"),
        *("score", "inbound", "fetched", "folded", "collection"),
    }


def test_a_broken_index_is_one_line_and_one_command(site: NginxServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    crawl_here(folder, f"{site.url}/index.html")
    assert sterna("index", folder).returncode == 0
    for meta in (folder / "index").glob("*/meta.json"):
        meta.write_text("{")
    broken = sterna("search", folder, "sing")
    assert broken.returncode == 6
    assert broken.stderr.count("\n") == 1
    assert f"sterna index {folder} --anew" in broken.stderr
    anew = sterna("index", folder, "--anew")
    assert anew.returncode == 0, anew.stderr
    assert found(folder, "songs") == ["whales.html"]


def test_wrong_calls_are_one_line(tmp_path: Path) -> None:
    for command in ("index", "search"):
        arguments = [command, tmp_path, *(["words"] if command == "search" else [])]
        result = sterna(*arguments)
        assert result.returncode == 5
        assert result.stderr.count("\n") == 1
        assert "is not a collection" in result.stderr


def test_a_crawl_indexes_what_it_brings_in(site: NginxServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    crawled = sterna("crawl", f"{site.url}/index.html", "--into", folder, "--delay", "0", "--index")
    assert crawled.returncode == 0, crawled.stderr
    result = sterna("search", folder, "singing", "--json")
    assert result.stderr == ""
    assert json.loads(result.stdout)["total"] == 2
    assert held_in(folder / "index") == newest_good([Path(path) for path in segment_paths(folder, "page")])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting read-only needs root")
@pytest.mark.parametrize("has_log", [True, False])
def test_collection_on_a_read_only_disk_is_searched_queried_and_exported(
    site: NginxServer, tmp_path: Path, has_log: bool
) -> None:
    folder = tmp_path / "c"
    crawl_here(folder, f"{site.url}/index.html")
    assert sterna("index", folder).returncode == 0
    for ending in ("-wal", "-shm"):  # a reader that was killed leaves them, a copy may lack them
        path = folder / f"ledger.sqlite{ending}"
        path.touch() if has_log else path.unlink(missing_ok=True)
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    commands = [
        ["search", str(folder), "singing", "--json"],
        ["query", str(folder), "'SELECT count(*) AS n FROM page'", "--format", "csv"],
        ["status", str(folder)],
        ["export", str(folder), "--to", "csv", "--out", str(tmp_path / "out.csv")],
        ["index", str(folder)],
    ]
    lines = [" ".join([*COMMAND, *command]) for command in commands]
    mounted = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"
    script = "; ".join([mounted, *(f"{line}; echo code $?" for line in lines)])
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    out = result.stdout
    assert [line for line in out.splitlines() if line.startswith("code")] == ["code 0"] * 4 + ["code 6"], (
        result
    )
    assert "Whales of the North" in out
    assert "\nn\n4\n" in out
    assert "search index: up to date" in out
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 5
    assert result.stderr.splitlines() == [
        f"sterna: cannot store in '{folder}/index': the disk is read-only: mount it writable and run the same"
        " command again"
    ]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == files
