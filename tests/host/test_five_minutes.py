"""A host beside a real nginx, from nothing to a crawl through it: the commands of docs/hosts.md, timed."""

import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.crawl.running import COMMAND
from tests.documents import ROOT, Document, free_port
from tests.host.deploying import make_site
from tests.servers import nginx
from tests.servers.apache import open_folder
from tests.wheelhouse import make_wheels

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(600)]

MOST_SECONDS = 300.0
MOST_COMMANDS = 6
USER = "nobody" if os.geteuid() == 0 else ""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that the user of the host can read too."""
    with open_folder() as made:
        monkeypatch.delenv("STERNA_KEYS", raising=False)
        yield made


def environment(folder: Path) -> dict[str, str]:
    """For pip without a network; Debian's Python, because the tests' own may lie where only root can read."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    wheels = make_wheels(folder / "wheels", "sterna", "hatchling")
    minor = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print(sys.version_info[1])"], capture_output=True, check=True
    )
    is_debians = int(minor.stdout) == sys.version_info[1]
    return kept | wheels | {"PYTHON": "/usr/bin/python3" if is_debians else sys.executable}


def test_host_is_up_and_read_through_in_five_minutes_and_six_commands(folder: Path) -> None:
    make_site(folder)
    pip = environment(folder)
    with nginx.serve(folder / "site", folder=folder / "nginx", extra="server_name 127.0.0.1;") as server:
        own, home = folder / "own", str(folder / "home-keys")
        conf = folder / "nginx/nginx.conf"
        control = f"nginx -e {folder}/error.log -p {folder}/nginx -c {conf}"
        key = run([*COMMAND, "keys", "new", "home", "--keys", home]).split()[-1]
        listen = f"127.0.0.1:{free_port()}"
        places = {
            "/opt/sterna": str(folder / "opt"),
            "/var/lib/sterna/www.example.org": str(own),
            "https://www.example.org": server.url,
            "www\\.example\\.org": "127\\.0\\.0\\.1",
            "/var/www/html": str(folder / "site"),
            "/etc/nginx/sites-enabled/www": str(conf),
            "nginx -t": f"{control} -t",
            "nginx -s": f"{control} -s",
            "runuser -u sterna -- ": f"runuser -u {USER} -- " if USER else "",
            "KEY": key,
        }
        (text,) = Document("docs/hosts.md").blocks("bash")
        steps = [with_places(line, places) for line in text.splitlines()]
        assert len(steps) <= MOST_COMMANDS
        install, init, start, include, allow, crawl = steps

        began = time.monotonic()
        run(shlex.split(f"{ROOT}/{install}"), env=pip)
        user = f"--user {USER}" if USER else ""
        told = run(shlex.split(f"{init} --into {own} --server nginx --listen {listen} {user}"))
        calm(own / "policy.toml")
        assert start.startswith(f"cp {own}/sterna-host.service ")  # which needs systemd
        with running(own / "sterna-host.service"):
            run(["sh", "-c", include])
            wait_for_offer(f"{server.url}/.well-known/sterna")
            run(shlex.split(allow))
            here = {"cwd": folder, "env": os.environ | {"STERNA_KEYS": home}}
            words = shlex.split(crawl)
            assert words.pop(0) == "sterna"
            crawled = run([*COMMAND, *words, "--delay", "0", "--require-host"], **here)
        took = time.monotonic() - began

    assert "1 visit made at hosts" in crawled
    assert took < MOST_SECONDS
    # What init prints is what the document has, with names of its own.
    assert allow.replace(key, "KEY").replace("archive", "NAME") in told
    assert f"include {own}/sterna-nginx.conf;" in told
    assert f"include {own}/sterna-nginx.conf;" in include


def with_places(line: str, places: dict[str, str]) -> str:
    for old, new in places.items():
        line = line.replace(old, new)
    return line


def run(command: list[str], **more: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def calm(policy: Path) -> None:
    """Other tests keep the machine busy, which would make crawlers wait."""
    text = policy.read_text()
    assert "machine = 0.75" in text
    policy.write_text(text.replace("machine = 0.75", "machine = 0"))


@contextmanager
def running(unit: Path) -> Iterator[None]:
    """What the unit starts, as its user and without privileges, until the block ends."""
    text = unit.read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    (user,) = re.findall(r"^User=(.*)$", text, re.MULTILINE)
    limits = ["--reuid", user, "--regid", user_group(user), "--clear-groups"] if USER else []
    command = ["setpriv", *limits, "--no-new-privs", "--inh-caps=-all", *shlex.split(command)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin"}) as host:
        try:
            assert host.stdout
            while not (line := host.stdout.readline()).startswith("listens"):
                assert line, "the host ended"
            yield
        finally:
            host.terminate()
            host.communicate(timeout=30)


def user_group(user: str) -> str:
    return run(["id", "-g", user]).strip()


def wait_for_offer(url: str) -> None:
    """Returns when nginx has taken its new configuration over."""
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except HTTPError:
            assert time.monotonic() < deadline
