"""A host beside a real nginx, from a checkout to the first crawl, by the commands that it prints."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.documents import ROOT, free_port
from tests.servers.nginx import NginxServer, serve
from tests.wheelhouse import make_wheels

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(600)]

MOST_SECONDS = 300
SERVER_NAME = "server_name www.example.test;"


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[NginxServer]:
    site = tmp_path / "site"
    site.mkdir()
    for number in range(20):
        links = "".join(f'<a href="/{each}.html">{each}</a>' for each in range(20))
        (site / f"{number}.html").write_text(f"<title>Page {number}</title>{links}")
    (site / "index.html").write_text('<title>Start</title><a href="/0.html">0</a>')
    with serve(site, folder=tmp_path / "nginx", extra=SERVER_NAME) as running:
        yield running


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_host_is_there_in_six_commands_and_five_minutes(tmp_path: Path, nginx: NginxServer) -> None:
    wheels = make_wheels(tmp_path / "wheels", "sterna", "hatchling", "editables")
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    opt, mine, listen = tmp_path / "opt", tmp_path / "mine", f"127.0.0.1:{free_port()}"
    home = ["--keys", str(tmp_path / "keys")]
    key = run(sys.executable, "-m", "sterna", "keys", "new", "home", *home, **plain).split()[1]
    began = time.monotonic()

    run(ROOT / "scripts/install-host", opt, **plain | wheels, PYTHON=f"{sys.base_prefix}/bin/python3")

    place = ["--root", str(tmp_path / "site"), "--into", str(mine)]
    served = ["--site", nginx.url, "--listen", listen, "--server", "nginx", "--user", "root"]
    told = run(opt / "bin/sterna", "host", "init", *place, *served, **plain)
    printed = [line.strip() for line in told.partition("next:\n")[2].splitlines()]
    assert "checked   sterna-nginx.conf (nginx)" in told

    policy = mine / "policy.toml"  # without its limit of load: the tests themselves keep the machine busy
    policy.write_text(re.sub(r"^machine = \S+", "machine = 0", policy.read_text(), flags=re.MULTILINE))
    # Where systemd runs, the next commands enable the unit; this is what it runs.
    (command,) = re.findall(r"^ExecStart=(.*)$", (mine / "sterna-host.service").read_text(), re.MULTILINE)
    host = subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, text=True, env=plain)
    try:
        assert host.stdout
        assert any(line.startswith("listens") for line in host.stdout)

        (include,) = (found[1] for line in printed if (found := re.search(r"(include \S+;)", line)))
        conf = tmp_path / "nginx" / "nginx.conf"
        conf.write_text(conf.read_text().replace(SERVER_NAME, f"{SERVER_NAME} {include}"))
        run("nginx", "-t", "-p", conf.parent, "-e", conf.parent / "error.log", "-c", conf, **plain)
        os.kill(nginx.pid, signal.SIGHUP)  # nginx -s reload

        (allow,) = (line for line in printed if "keys allow KEY" in line)
        words = shlex.split(allow.replace("KEY", key).replace("NAME", "archive"))
        run(*words, **plain)

        crawl = ["crawl", f"{nginx.url}/", "--into", str(tmp_path / "pages"), *home]
        flags = ["--check", "none", "--delay", "0", "--require-host", "--json"]
        said = run(sys.executable, "-m", "sterna", *crawl, *flags, **plain)
        summary = json.loads(said.splitlines()[-1])
    finally:
        host.terminate()
        host.communicate(timeout=30)
    assert time.monotonic() - began < MOST_SECONDS
    assert (summary["pages"], summary["visits"]["here"], summary["visits"]["host"] > 0) == (21, 0, True)
