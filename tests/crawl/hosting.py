"""Hosts for the sites of a test, each in a process of its own, and a home that is let in."""

import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.crawl.running import COMMAND, sterna, summary_of
from tests.forking import Forked
from tests.servers.pages import PageServer

from sterna.wire.discovery import WELL_KNOWN


class HostProcess:
    """`sterna host run` beside a site; the site announces it until it is killed, and afterwards too."""

    def __init__(self, server: PageServer, address: str, folder: Path, *, upstream: str = "") -> None:
        """`upstream` is what the host takes for the site's web server, where that is to be another."""
        self.port = free_port(address)
        site = server.url(address, "")
        endpoint = f"http://{address}:{self.port}/sterna"
        policy = folder / f"policy-{address}.toml"
        policy.parent.mkdir(parents=True, exist_ok=True)
        policy.write_text("[load]\nmachine = 0\n")  # other tests keep the machine busy
        self._process = Forked(
            [
                *(*COMMAND, "host", "run", "--allow-self", "--site", site),
                *("--upstream", upstream or site),
                *("--endpoint", endpoint, "--listen", f"{address}:{self.port}"),
                *("--keys", str(folder / "keys"), "--state", str(folder / f"state-{address}")),
                *("--policy", str(policy)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._wait()
        with urllib.request.urlopen(f"http://{address}:{self.port}{WELL_KNOWN}", timeout=10) as answer:
            pages: Any = server.sites[address]
            pages[WELL_KNOWN] = answer.read().decode()

    def _wait(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("listens"):
                return
        raise AssertionError("the host never listened")

    def kill(self) -> None:
        """kill -9, for the whole group; once is enough."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


@contextmanager
def hosts(server: PageServer, folder: Path, *addresses: str) -> Iterator[list[HostProcess]]:
    """A host at each of these sites; their keys are in folder/keys, and so is home's, which they let in."""
    with ExitStack() as stack:
        made = []
        for address in addresses:
            made.append(HostProcess(server, address, folder))
            stack.callback(made[-1].kill)
        yield made


def crawl_with_keys(folder: Path, *arguments: str | Path) -> dict[str, Any]:
    """The summary of `sterna crawl` into folder/c, without a delay, with the keys of the hosts above."""
    result = sterna(*command(folder), *arguments)
    assert result.returncode == 0, result.stderr
    return summary_of(result)


def command(folder: Path, *, check: str = "none") -> tuple[str, ...]:
    """Unchecked unless a test is about that: so parcels are stored as they come."""
    given = ("--into", str(folder / "c"), "--keys", str(folder / "keys"), "--check", check)
    return ("crawl", *given, "--delay", "0", "--json")


def free_port(address: str) -> int:
    with socket.socket() as listener:
        listener.bind((address, 0))
        port: int = listener.getsockname()[1]
        return port
