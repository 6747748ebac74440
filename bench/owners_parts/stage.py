"""A real site behind nginx, and a host beside it as an owner runs one."""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.crawl import DEBIAN, SERVER, START
from bench.measuring import descendants, pss_bytes
from bench.owners_parts.homes import Home
from bench.owners_parts.memory import MemoryGroup
from tests.servers.nginx import free_ports, serve

from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.wire.keys import PublicKey

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
START_SECONDS = 60.0
STOP_SECONDS = 40.0
# nginx's own combined format.
_HIT = re.compile(r'"GET (\S+\.html?)(?:\?\S*)? HTTP/[\d.]+" (?:200|304) \d+ "[^"]*" "([^"]*)"')


@dataclass(frozen=True, slots=True)
class Site:
    """A site that is served, the port on which its host is looked for, and nginx's log with names."""

    url: str
    host_port: int
    log: Path

    @property
    def start(self) -> str:
        return f"{self.url}{START}"

    def size(self) -> int:
        """Of the log now."""
        return self.log.stat().st_size

    def asked_by(self, since: int = 0) -> list[str]:
        """Who asked for a page, by User-Agent, in the order of the log from this offset on."""
        with self.log.open(errors="replace") as log:
            log.seek(since)
            return [agent for _, agent in _HIT.findall(log.read())]

    def counts(self, since: int = 0) -> Counter[str]:
        return Counter(self.asked_by(since))


@contextmanager
def served(folder: Path) -> Iterator[Site]:
    """The documentation of Boost and OpenJDK, with nginx as deploy/ sets it up, gzip on."""
    (port,) = free_ports(1)
    passed_on = (DEPLOY / "nginx.conf").read_text().replace("127.0.0.1:8470", f"127.0.0.1:{port}")
    log = folder / "combined.log"
    # A later `gzip` in the same block would be an error.
    extra = f"access_log {log} combined;\n{SERVER.replace('gzip off;', '')}\n{passed_on}"
    roots = {"/boost/": DEBIAN["libboost1.81-doc"], "/java/": DEBIAN["openjdk-17-doc"]}
    with serve(roots, folder=folder / "nginx", extra=extra) as server:
        yield Site(server.url, port, log)


@dataclass(frozen=True, slots=True)
class Host:
    """A host that runs."""

    process: "subprocess.Popen[bytes]"
    key: PublicKey
    log: Path

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def pss_bytes(self) -> int:
        """What its processes take of the machine's memory."""
        return sum(map(pss_bytes, descendants(self.process.pid)))

    def processes(self) -> int:
        return len(descendants(self.process.pid))


@contextmanager
def running(
    site: Site,
    folder: Path,
    *,
    homes: Sequence[Home],
    policy: str = "",
    group: MemoryGroup | None = None,
) -> Iterator[Host]:
    """`sterna host run` at the site until the block ends, in a memory group if told."""
    folder.mkdir(parents=True)
    for home in homes:
        allow(folder / "keys" / ALLOWED, home.identity.public, home.name)
    (folder / "policy.toml").write_text(policy)
    command = [sys.executable, "-m", "sterna", "host", "run", "--site", site.url]
    command += ["--listen", f"127.0.0.1:{site.host_port}", "--policy", str(folder / "policy.toml")]
    command += ["--keys", str(folder / "keys"), "--state", str(folder / "state")]
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            group.within(command) if group else command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(process, log)
        yield Host(process, Keyring(folder / "keys").read("host").public, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while "listens" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the host did not start:\n{log.read_text()}")
        time.sleep(0.05)
