"""A real `sterna host run` on this machine: its site and keys, its processes and what they leave behind."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.fuzz_parts.spoiling import SITE
from bench.measuring import descendants

from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.wire.keys import Identity

HOMES = 8
START_SECONDS, END_SECONDS = 60.0, 40.0
SAMPLE_SECONDS = 0.5
PAGES = 12
KEPT_SECONDS, IDLE_SECONDS = 12, 3  # the first longer than the time between two signs of life
# Small caps, so that what never ends by itself ends soon, by name.
POLICY = f"""
[load]
machine = 0

[budget]
pages = 40
seconds = 10.0
urls = 20000
cpu_seconds = 1.0
sent_bytes = {4 << 20}
memory_bytes = {96 << 20}
scratch_bytes = {1 << 20}
facts = 20000

[limits]
kept_seconds = {KEPT_SECONDS}
idle_seconds = {IDLE_SECONDS}
crawlers_at_once = 4
queue = 64
visits_of_a_home = 16
"""


class HostProcess:
    """The process, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.homes = [Identity.new() for _ in range(HOMES)]
        _write_site(folder / "site")
        (folder / "policy.toml").write_text(POLICY)
        for number, home in enumerate(self.homes):
            allow(folder / "keys" / ALLOWED, home.public, f"home-{number}")
        self.key = Keyring(folder / "keys").read_or_make("host").public
        self.errors = folder / "errors.txt"
        with self.errors.open("w") as errors:
            self._process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-P",
                        "-m",
                        "sterna",
                        "host",
                        "run",
                        "--site",
                        SITE,
                        "--listen",
                        "127.0.0.1:0",
                    ),
                    *("--root", "site", "--check", "never", "--keys", "keys", "--state", "state"),
                    *("--policy", "policy.toml"),
                ],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.port = self._wait()
        self.said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def processes(self) -> int:
        """How many there are besides itself."""
        return len(descendants(self.pid)) - 1

    def visits_kept(self) -> int:
        """Folders of parcels."""
        folder = self.state / "visits"
        return len(list(folder.iterdir())) if folder.exists() else 0

    def tracebacks(self) -> list[str]:
        """The faults in its log, each in one line."""
        lines = self.errors.read_text(errors="replace").splitlines()
        begun = [at for at, line in enumerate(lines) if line.startswith("Traceback")]
        return [" / ".join(each.strip() for each in _traceback(lines, at)[-4:]) for at in begun]

    def end(self) -> int:
        """Asks it to stop; the code with which it did."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(END_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends whatever is left of it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> int:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("listens"):
                return int(line.rpartition(":")[2])
        raise RuntimeError(f"the host did not start:\n{self.errors.read_text()}")

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.said.append(line)


@contextmanager
def running(folder: Path) -> Iterator[HostProcess]:
    """A host, until the context ends."""
    host = HostProcess(folder)
    try:
        yield host
    finally:
        host.kill()


class Watch(threading.Thread):
    """Looks at a host's processes now and then: which they are, how much memory they take."""

    def __init__(self, host: HostProcess) -> None:
        super().__init__(daemon=True)
        self._host = host
        self._over = threading.Event()
        self._seen: dict[int, str] = {}  # every process that it ever had, with its birth
        self.peak_bytes = 0

    def run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            processes = descendants(self._host.pid)
            self._seen |= {pid: _born(pid) for pid in processes if pid not in self._seen}
            self.peak_bytes = max(self.peak_bytes, sum(map(_pss_bytes, processes)))

    def stop(self) -> int:
        self._over.set()
        self.join()
        return self.peak_bytes

    def left_behind(self) -> list[int]:
        """Those of its processes that still are."""
        return [pid for pid, born in self._seen.items() if born and _born(pid) == born]


async def quiet(host: HostProcess, *, seconds: float) -> bool:
    """True as soon as the host has no process and no visit left; False if that takes longer."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        if not host.processes() and not host.visits_kept():
            return True
        await asyncio.sleep(0.5)
    return False


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _born(pid: int) -> str:
    """When a process began, so that another one of its number is not taken for it; "" if it is over."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _traceback(lines: list[str], at: int) -> list[str]:
    """The lines of the traceback that begins there: those that are indented, and one."""
    end = at + 1
    while end < len(lines) and lines[end].startswith(" "):
        end += 1
    return lines[at : end + 1]


def _write_site(folder: Path) -> None:
    folder.mkdir(parents=True)
    links = "".join(f'<a href="/{number}.html">{number}</a>' for number in range(PAGES))
    (folder / "index.html").write_text(f"<title>Front</title>{links}")
    for number in range(PAGES):
        (folder / f"{number}.html").write_text(f"<title>Page {number}</title><p>{'tern ' * 50}{number}")
