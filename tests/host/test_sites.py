"""The hosts of many sites in one process: each request to its own, each site with rules of its own."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.crawl.running import call
from tests.host.deploying import snippet
from tests.host.knocking import NAME, GatedSite, Home, config_of, limits_of, send, until, write_site
from tests.servers import apache, nginx

from sterna.errors import ConfigError
from sterna.host.config import SETTINGS, HostConfig, read_host_file, sites_in
from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.host.policy.load import LoadMeter
from sterna.host.premises import Commons
from sterna.host.service import Service
from sterna.host.sites import Sites
from sterna.host.visiting.workshop import Workshop
from sterna.transport.interface import Call
from sterna.web.clock import SystemClock
from sterna.wire.discovery import WELL_KNOWN, decode_offer
from sterna.wire.keys import Identity


class Fake:
    """A service, as far as finding it goes."""

    def __init__(self, site: str, endpoint: str = "") -> None:
        self.config = HostConfig(site=site, endpoint=endpoint, state=Path("s"), keys=Path("k"))


@pytest.mark.parametrize(
    ("host", "path", "site"),
    [
        ("a.test", WELL_KNOWN, "https://a.test"),
        ("A.Test.", "/sterna/hello", "https://a.test"),
        ("b.test:8080", WELL_KNOWN, "http://b.test:8080"),
        ("b.test", WELL_KNOWN, ""),  # it has two ports here
        ("b.test:9090", "/sterna/hello", "http://b.test:9090"),
        ("hoster.test", "/crawlers/c/hello", "https://c.test"),
        ("hoster.test", "/crawlers/d/hello", "https://d.test"),
        ("hoster.test", "/crawlers/e/hello", ""),
        ("c.test", WELL_KNOWN, "https://c.test"),
        ("c.test", "/hello", "https://c.test"),  # its proxy strips the prefix
        ("e.test", WELL_KNOWN, ""),
        ("", WELL_KNOWN, ""),
        ("[bad", WELL_KNOWN, ""),
        ("a.test:x", WELL_KNOWN, ""),
    ],
)
def test_request_goes_to_the_site_that_it_names(host: str, path: str, site: str) -> None:
    fakes = [
        Fake("https://a.test"),
        Fake("http://b.test:8080"),
        Fake("http://b.test:9090"),
        Fake("https://c.test", "https://hoster.test/crawlers/c"),
        Fake("https://d.test", "https://hoster.test/crawlers/d"),
    ]
    found = Sites(fakes).find(host, path)  # type: ignore[arg-type]
    assert (found.config.site if found else "") == site


def test_two_folders_of_one_site_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"two folders are of https://a\.test"):
        Sites([Fake("https://a.test"), Fake("https://a.test")])  # type: ignore[list-item]


def test_paths_of_a_site_are_relative_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "www").mkdir(parents=True)
    (tmp_path / "a" / "policy.toml").write_text("connections = 2\n")
    (tmp_path / "a" / SETTINGS).write_text('site = "https://a.test"\nroot = "www"\npolicy = "policy.toml"\n')

    config = read_host_file(*sites_in(tmp_path))

    assert (config.root, config.state, config.keys) == tuple(
        tmp_path / "a" / name for name in ("www", "", "keys")
    )
    assert config.policy.connections == 2


def test_folder_without_a_site_says_how_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sterna host init --site URL"):
        sites_in(tmp_path)


# -- two sites, one process --------------------------------------------------------------------------------


@asynccontextmanager
async def two_homes(folder: Path, commons: Commons, **fields: object) -> AsyncIterator[list[Home]]:
    """A home that both sites allow, at the service of each."""
    homes = []
    try:
        for name in ("a", "b"):
            write_site(folder / name / "site")
            config = config_of(folder / name, limits=limits_of(), **fields)
            identity = Keyring(config.keys).read_or_make("host")
            site = GatedSite()
            service = Service(
                config,
                identity=identity,
                clock=SystemClock(),
                meter=LoadMeter(machine=lambda: None),
                workshop=Workshop(config, SystemClock(), open_source=site.open),
                commons=commons,
            )
            home = Home(service, identity, Identity.new())
            allow(config.keys / ALLOWED, home.identity.public, NAME)
            home.site = site  # type: ignore[attr-defined]
            homes.append(home)
        yield homes
    finally:
        for home in homes:
            await home.service.close()


async def test_crawlers_at_work_are_limited_over_all_sites(tmp_path: Path) -> None:
    async with two_homes(tmp_path, Commons(crawlers=1)) as (first, second):
        await first.order(send())
        await until(lambda: first.service.status().crawlers == 1)
        await second.order(send())
        await until(lambda: second.service.status().queue == 1)
        assert second.service.status().crawlers == 0

        first.site.let(20)  # type: ignore[attr-defined]
        await until(lambda: second.service.status().crawlers == 1)
        second.site.let(20)  # type: ignore[attr-defined]
        await until(lambda: second.service.status().visits[0].state == "finished")


async def test_visits_are_limited_over_all_sites(tmp_path: Path) -> None:
    async with two_homes(tmp_path, Commons(visits=1)) as (first, second):
        await first.order(send())
        session = await second.greet()
        reply, _ = await second.order(send(), session)
        assert b"the hosts of this machine are full" in reply.body  # type: ignore[operator]


async def test_memory_of_engines_is_divided_among_all_sites(tmp_path: Path) -> None:
    commons = Commons(crawlers=8, engine_bytes=512 << 20)
    async with two_homes(tmp_path, commons) as homes:
        for home in homes:
            body = await home.service.answer(Call("discover", b""))
            offer = decode_offer(body.body, "http://site.test")  # type: ignore[arg-type]
            assert offer.platform["memory_bytes"] == str(64 << 20)


# -- as a command ------------------------------------------------------------------------------------------


@pytest.fixture
def hoster(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        write_site(tmp_path / name / "www", pages=3)
        (tmp_path / name / "policy.toml").write_text("[load]\nmachine = 0\n")
        (tmp_path / name / SETTINGS).write_text(
            f'site = "http://{name}.test"\nroot = "www"\ncheck = "never"\npolicy = "policy.toml"\n'
        )
    return tmp_path


def run_of(folder: Path) -> list[str]:
    command = [sys.executable, "-m", "sterna", "host", "run"]
    return [*command, "--sites", str(folder), "--listen", "127.0.0.1:0"]


@pytest.fixture
def running(hoster: Path) -> Iterator[int]:
    """The port of a host of both sites."""
    with serving(hoster) as port:
        yield port


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """The port of a host of two sites."""
    with subprocess.Popen(run_of(folder), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = []
        while not (line := process.stdout.readline()).startswith("listens"):
            assert line, "it ended"
            lines.append(line)
        assert sum(line.startswith("site ") for line in lines) == 2
        try:
            yield int(line.rpartition(":")[2])
        finally:
            process.terminate()
            code = process.wait(30)
        assert code == 0


def ask(port: int, name: str, path: str) -> bytes:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": name})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        data: bytes = answer.read()
        return data


def test_command_serves_each_site_with_its_own_key_status_stop_and_audit(hoster: Path, running: int) -> None:
    keys = {}
    for name in ("a", "b"):
        offer = decode_offer(ask(running, f"{name}.test", WELL_KNOWN), f"http://{name}.test")
        keys[name] = offer.public_key
        assert offer.public_key == Keyring(hoster / name / "keys").read("host").public
    assert keys["a"] != keys["b"]

    stopped = call(["host", "stop", "--all", "--state", str(hoster / "a")])
    assert stopped.returncode == 0, stopped.stderr
    states = {
        name: json.loads(call(["host", "status", "--json", "--state", str(hoster / name)]).stdout)
        for name in ("a", "b")
    }
    assert [(each["site"], bool(each["doors"])) for each in states.values()] == [
        ("http://a.test", True),
        ("http://b.test", False),
    ]
    for name, lines in (("a", 2), ("b", 1)):
        told = call(["host", "audit", "--state", str(hoster / name)]).stdout
        assert f"  {lines} line" in told


@pytest.mark.parametrize("server", ["nginx", "apache"])
def test_sites_that_differ_by_port_alone_are_told_apart_behind_a_server(
    hoster: Path, tmp_path: Path, server: str
) -> None:
    for name, number in (("a", 8081), ("b", 8082)):
        file = hoster / name / SETTINGS
        file.write_text(file.read_text().replace(f"http://{name}.test", f"http://a.test:{number}"))
    source = {"nginx": "nginx.conf", "apache": "apache-proxy.conf"}[server]
    with serving(hoster) as port:
        extra = snippet(source, **{"127.0.0.1:8470": f"127.0.0.1:{port}"})
        serve = nginx.serve if server == "nginx" else partial(apache.serve, is_ours=True)
        with serve(hoster / "a" / "www", folder=tmp_path / "server", extra=extra) as front:
            entry = int(front.url.rpartition(":")[2])
            offers = [
                decode_offer(ask(entry, f"a.test:{number}", WELL_KNOWN), f"http://a.test:{number}")
                for number in (8081, 8082)
            ]
    keys = [offer.public_key for offer in offers]
    assert keys == [Keyring(hoster / name / "keys").read("host").public for name in ("a", "b")]


def test_unknown_name_is_refused_and_the_others_go_on(running: int) -> None:
    with pytest.raises(urllib.error.HTTPError, match="421"):
        ask(running, "c.test", WELL_KNOWN)
    assert ask(running, "b.test", WELL_KNOWN)


def test_site_with_an_invalid_policy_is_left_out_and_the_others_are_served(hoster: Path) -> None:
    (hoster / "a" / "policy.toml").write_text("connections = 'many'\n")
    (hoster / "c").mkdir()
    (hoster / "c" / SETTINGS).write_text("site = 5\n")
    write_site(hoster / "d" / "www", pages=1)
    (hoster / "d" / SETTINGS).write_text('site = "http://d.test"\nroot = "www"\ncheck = "never"\n')
    (hoster / "d" / "host.sqlite").write_text("no database " * 100)
    command = [
        sys.executable,
        "-m",
        "sterna",
        "host",
        "run",
        "--sites",
        str(hoster),
        "--listen",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        while not (line := process.stdout.readline()).startswith("listens"):
            assert line, "it ended"
        process.terminate()
        _, told = process.communicate(timeout=30)
    assert told.count("left out: ") == told.count("\n") == 3
    assert "left out: http://d.test: the state of the host" in told
    assert "policy.toml, line 1" in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), "name the site with --site URL, or its folder with --sites DIR"),
        (("--site", "http://a.test", "--sites", "."), "name the site with --site URL"),
        (("--sites", ".", "--root", "."), "--root is not for --sites: write it into host.toml there"),
        (("--sites", ".", "--page", "127.0.0.1:0"), "--page shows one site"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    hoster: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(hoster)
    done = call(["host", "run", *given])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr
