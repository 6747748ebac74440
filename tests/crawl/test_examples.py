"""The example crawlers do what they say; those that the page on programs does not run already."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crawl.running import ask, sterna
from tests.servers.nginx import NginxServer, real_site, serve

pytestmark = pytest.mark.servers

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
WITHOUT = "-without-rules"  # the same crawler, breadth first
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
    shutil.copytree(EXAMPLES / name.removesuffix(WITHOUT), folder / name)
    spec = folder / name / f"{name.removesuffix(WITHOUT)}.toml"
    text = re.sub(r"seeds = \[.*\]", f'seeds = ["{url}"]', spec.read_text())
    if name.endswith(WITHOUT):
        text = re.sub(r"^(order|rules) = .*\n", "", text, flags=re.MULTILINE)
    spec.write_text(text)
    result = sterna("crawl", spec, "--into", folder / "c", "--delay", "0", "--quiet", *flags)
    assert result.returncode == 0, result.stderr
    return folder / "c"


@pytest.fixture
def town(tmp_path: Path) -> Iterator[NginxServer]:
    root = tmp_path / "town"
    root.mkdir()
    for name, text in HEALTH.items():
        (root / name).write_text(text)
    (tmp_path / "nginx").mkdir()
    with serve(root, folder=tmp_path / "nginx") as server:
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


def test_best_first_finds_more_of_the_subject_in_the_same_number_of_pages(tmp_path: Path) -> None:
    """Thirty chapters of ten pages each, one chapter on terns: its pages lead to each other."""
    root = tmp_path / "library"
    root.mkdir()
    for chapter in range(30):
        words = "tern migration seabird" if chapter == 17 else "other matters"
        for number in range(10):
            onward = f"<a href={chapter}-{number + 1}.html>on</a>" if number < 9 else ""
            (root / f"{chapter}-{number}.html").write_text(f"<title>{chapter}</title><p>{words}{onward}")
    chapters = "".join(f"<a href={chapter}-0.html>c</a>" for chapter in range(30))
    (root / "index.html").write_text(f"<title>Library</title>{chapters}")
    (tmp_path / "nginx").mkdir()
    found = {}
    with serve(root, folder=tmp_path / "nginx") as server:
        for order in ("best", "breadth"):
            (tmp_path / order).mkdir()
            flags = ("--max-pages", "45", "--concurrency", "1")
            example = "best-first" if order == "best" else "best-first-without-rules"
            found[order] = crawl(example, f"{server.url}/", tmp_path / order, *flags)

    counts = {order: ask(found[order], "SELECT count(*) AS n FROM page")[0]["n"] for order in found}
    assert counts["best"] == 10
    assert counts["breadth"] <= 2


def test_dead_links_of_a_real_site_are_those_that_its_answers_show(tmp_path: Path) -> None:
    (tmp_path / "nginx").mkdir()
    with serve(real_site("apache2-doc"), folder=tmp_path / "nginx") as server:
        collection = crawl("dead-links", f"{server.url}/en/", tmp_path, "--include", "/en/")
        lines = server.log_path.read_text()

    dead = ask(collection, "SELECT data->>'url' AS url, data->>'found-on' AS page FROM fact")
    served = {f"{server.url}{path}" for path in re.findall(r'"GET (\S+) HTTP/1.1" 404 ', lines)}
    assert {row["url"] for row in dead} == served - {
        f"{server.url}/robots.txt",
        f"{server.url}/.well-known/sterna",  # the question for a host
    }
    assert len(dead) >= 1
    assert all(row["page"].startswith(server.url) for row in dead)
