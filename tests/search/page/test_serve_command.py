"""`sterna serve` as its user meets it: what it says, what it refuses, how it ends."""

import json
import shutil
import signal
import socket
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.crawl.running import crawl_here, sterna
from tests.search.page.real_pages import PAGES, Crawled
from tests.search.page.serving import address_in, serving
from tests.servers.nginx import serve

from sterna.api.search import bring_up
from sterna.cli.exits import Exit
from sterna.home.folder import CollectionFolder

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_until_it_is_asked_to_end(crawled: Crawled, number: signal.Signals) -> None:
    with serving(crawled.folder) as (process, line):
        assert line.startswith("manuals: ")
        with urllib.request.urlopen(f"{address_in(line)}/api/search?q=select", timeout=20) as answer:
            assert json.load(answer)["total"] > 10
        process.send_signal(number)
        out, errors = process.communicate(timeout=20)
    assert (process.returncode, out, errors) == (0, "stopped\n", "")


def test_open_to_others_it_warns_once_and_answers_to_any_name(crawled: Crawled) -> None:
    with serving(crawled.folder, "--listen", "0.0.0.0:0", "--name", "Docs of SQLite") as (process, line):
        port = address_in(line).rpartition(":")[2]
        request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": "search.example.org"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert b"<h1>Docs of SQLite</h1>" in answer.read()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert errors == (
        f"sterna: warning: other machines may reach 0.0.0.0:{port}: anyone there can read the collection\n"
    )


def test_on_loopback_a_foreign_name_is_refused(crawled: Crawled) -> None:
    with serving(crawled.folder) as (_, line):
        request = urllib.request.Request(f"{address_in(line)}/", headers={"Host": "evil.test"})
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(request, timeout=20)
        assert refused.value.code == 403
        refused.value.close()
        assert int(line.split()[1]) <= PAGES


@pytest.mark.parametrize(
    "listen", ["", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:99999", "nowhere.invalid:1"]
)
def test_wrong_address_is_one_line(crawled: Crawled, listen: str) -> None:
    result = sterna("serve", crawled.folder, "--listen", listen)
    assert result.returncode == Exit.USAGE
    assert result.stderr.startswith(f"sterna: --listen {listen} is ")
    assert result.stderr.count("\n") == 1


def test_taken_port_is_one_line(crawled: Crawled) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        result = sterna("serve", crawled.folder, "--listen", listen)
    assert result.returncode == Exit.USAGE
    assert result.stderr.startswith(f"sterna: --listen {listen} is not available: ")


def test_other_folder_is_refused(tmp_path: Path) -> None:
    result = sterna("serve", tmp_path)
    assert result.returncode == Exit.COLLECTION
    assert "is not a collection" in result.stderr


def test_missing_index_is_made_and_a_broken_one_names_what_helps(crawled: Crawled, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(crawled.folder, folder)
    shutil.rmtree(folder / "index")
    with serving(folder) as (process, line):
        assert line.startswith(f"copy: {PAGES} pages at ")
        process.terminate()
        assert (
            process.communicate(timeout=20)[1] == f"sterna: {folder} has no search index yet: creating it\n"
        )
    (folder / "index" / "current").write_text("nonsense")
    result = sterna("serve", folder, "--listen", "127.0.0.1:0")
    assert result.returncode not in (Exit.FINISHED, Exit.USAGE)
    assert f"sterna index {folder} --anew" in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_a_crawl_brings_meanwhile_is_found(tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "collection"
    site.mkdir()
    (site / "index.html").write_text("<title>Birds</title><a href=tern.html>tern</a>")
    with serve(site, folder=tmp_path / "nginx") as server:
        crawl_here(folder, f"{server.url}/")
        with serving(folder) as (_, line):
            address = address_in(line)
            assert hits_at(address, "arctic") == []
            (site / "tern.html").write_text("<title>Arctic tern</title><p>It flies far.")
            crawl_here(folder, f"{server.url}/", refresh=0.0)
            bring_up(CollectionFolder(folder))
            deadline = time.monotonic() + 20
            while not (found := hits_at(address, "arctic")) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert found == [f"{server.url}/tern.html"]


def hits_at(address: str, words: str) -> list[str]:
    with urllib.request.urlopen(f"{address}/api/search?q={words}", timeout=20) as answer:
        return [hit["url"] for hit in json.load(answer)["hits"]]
