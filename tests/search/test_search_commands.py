"""`sterna index` and `sterna search` as they are called, on a site by a real nginx."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import crawl_here, segment_paths, sterna
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
        *("score", "inbound", "fetched", "folded"),
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
