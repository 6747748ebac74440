"""The example crawlers do what they say; those that the page on programs does not run already."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import sterna
from tests.servers.nginx import NginxServer, real_site, serve

pytestmark = pytest.mark.servers

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
HEALTH = {
    "index.html": "<html lang=en><title>Town</title><p>Welcome. <a href=clinic.html>a</a>"
    "<a href=park.html>b</a>",
    "clinic.html": "<html lang=en><title>Clinic</title><meta name=description content='Care for all.'>"
    "<h1>Clinic</h1><p>Our clinic cares for every patient's health."
    "<a href='http://health.example/'>more</a> <a href='http://health.example/b'>x</a>",
    "park.html": "<html lang=en><title>Park</title><p>Trees and benches. <a href=klinik.html>c</a>",
    "klinik.html": "<html lang=de><title>Klinik</title><p>Unsere clinic für health.",
}


def crawl(name: str, url: str, folder: Path, *flags: str) -> Path:
    """The collection of an example that starts at another place."""
    shutil.copytree(EXAMPLES / name, folder / name)
    spec = folder / name / f"{name}.toml"
    spec.write_text(re.sub(r"seeds = \[.*\]", f'seeds = ["{url}"]', spec.read_text()))
    result = sterna("crawl", spec, "--into", folder / "c", "--delay", "0", "--quiet", *flags)
    assert result.returncode == 0, result.stderr
    return folder / "c"


def ask(collection: Path, sql: str) -> list[dict[str, Any]]:
    result = sterna("query", collection, sql, "--format", "json")
    assert result.returncode == 0, result.stderr
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


@pytest.fixture
def town(tmp_path: Path) -> Iterator[NginxServer]:
    root = tmp_path / "town"
    root.mkdir()
    for name, text in HEALTH.items():
        (root / name).write_text(text)
    (tmp_path / "nginx").mkdir()
    with serve(root, folder=tmp_path / "nginx") as server:
        yield server


@pytest.fixture
def sqlite_docs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxServer]:
    with serve(real_site("sqlite3-doc"), folder=tmp_path_factory.mktemp("nginx")) as server:
        yield server


def test_health_brings_the_pages_on_health_care_and_the_sites_outside(
    tmp_path: Path, town: NginxServer
) -> None:
    collection = crawl("health", f"{town.url}/", tmp_path)

    pages = ask(collection, "SELECT title, description, text, keywords FROM page")
    assert [(page["title"], page["description"], page["text"]) for page in pages] == [
        ("Clinic", "Care for all.", None)
    ]
    assert "clinic" in pages[0]["keywords"]
    facts = ask(collection, "SELECT template, data::VARCHAR AS data FROM fact ORDER BY template")
    assert [(fact["template"], json.loads(fact["data"])) for fact in facts] == [
        ("external", {"site": "http://health.example"}),
        ("relevant", {"url": f"{town.url}/clinic.html", "score": 8}),
    ]


def test_best_first_finds_more_of_the_subject_in_the_same_number_of_pages(
    tmp_path: Path, sqlite_docs: NginxServer
) -> None:
    """On SQLite's documentation, for pages that speak of its virtual tables."""
    counts = {}
    for order in ("best", "breadth"):
        folder = tmp_path / order
        folder.mkdir()
        shutil.copytree(EXAMPLES / "best-first", folder / "best-first")
        spec = folder / "best-first" / "best-first.toml"
        text = spec.read_text().replace("tern =", "vtab =").replace("migration =", "xfilter =")
        text = text.replace("seabird =", "xbestindex =").replace("pages = 500", "pages = 60")
        rules = folder / "best-first" / "best-first.clp"
        rules.write_text(
            rules.read_text().replace('"tern"', '"vtab"').replace('"migration"', '"virtual"')
            .replace('"seabird"', '"xbestindex"')
        )  # fmt: skip
        if order == "breadth":
            text = text.replace('order = "best"\nrules = ["best-first.clp"]\n', "")
        spec.write_text(re.sub(r"seeds = \[.*\]", f'seeds = ["{sqlite_docs.url}/index.html"]', text))
        collection = folder / "c"
        result = sterna("crawl", spec, "--into", collection, "--delay", "0", "--quiet")
        assert result.returncode == 0, result.stderr
        counts[order] = ask(collection, "SELECT count(*) AS n FROM page WHERE status = 200")[0]["n"]

    assert counts["best"] > counts["breadth"]


def test_dead_links_of_a_real_site_are_those_that_its_answers_show(tmp_path: Path) -> None:
    (tmp_path / "nginx").mkdir()
    with serve(real_site("apache2-doc"), folder=tmp_path / "nginx") as server:
        collection = crawl("dead-links", f"{server.url}/", tmp_path)
        lines = server.log_path.read_text()

    dead = ask(collection, "SELECT data->>'url' AS url, data->>'found-on' AS page FROM fact")
    served = {f"{server.url}{path}" for path in re.findall(r'"GET (\S+) HTTP/1.1" 404 ', lines)}
    assert {row["url"] for row in dead} == served - {f"{server.url}/robots.txt"}
    assert len(dead) >= 1
    assert all(row["page"].startswith(server.url) for row in dead)
