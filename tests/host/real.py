"""A host as a process of its own, and a home that knocks at it over HTTP."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.crawl.running import COMMAND, sterna
from tests.forking import Forked
from tests.host.knocking import NAME, SITE, Home, send, write_site

from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.wire.handshake import Session
from sterna.wire.keys import Identity
from sterna.wire.orders import seal_order
from sterna.wire.stream import Came, StreamReader


class RealHost:
    """`sterna host run` for the site in `folder/site`; its home is allowed."""

    def __init__(self, folder: Path, *words: str, policy: str = "", pages: int = 300) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.identity = Identity.new()
        write_site(folder / "site", pages)
        allow(folder / "keys" / ALLOWED, self.identity.public, NAME)
        (folder / "policy.toml").write_text(policy or "[load]\nmachine = 0\n")  # other tests are busy
        self._words = words
        self.process, self.lines = self._start()

    def _start(self) -> tuple["subprocess.Popen[str]", list[str]]:
        given = ["--site", SITE, "--root", "site", "--check", "never", "--listen", "127.0.0.1:0"]
        folders = ["--keys", "keys", "--state", "state", "--policy", "policy.toml"]
        process = Forked(
            [*COMMAND, "host", "run", *given, *folders, *self._words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        lines: list[str] = []
        while not lines or not lines[-1].startswith("listens"):
            line = process.stdout.readline()
            assert line, (lines, process.communicate()[1])
            lines.append(line.rstrip("\n"))
        return process, lines

    def restart(self) -> None:
        """Another process in the same folder; the one before is over."""
        self.process.communicate()
        self.process, self.lines = self._start()

    def said(self, label: str) -> str:
        """What it said at its start under this label."""
        words = (line.split(maxsplit=1) for line in self.lines)
        return next((said for first, said in words if first == label), "")

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """`sterna host WORDS` for this host."""
        return sterna("host", *words, "--state", self.state)

    async def ask(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """The same, while a visit is followed."""
        return await asyncio.to_thread(self.command, *words)

    # -- what a home does ----------------------------------------------------------------------------------

    async def post(self, op: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer, read to its end."""
        port = int(self.said("listens").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /{op} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        raw = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        top, _, content = raw.partition(b"\r\n\r\n")
        return int(top.split()[1]), _whole(top, content)

    async def greet(self) -> tuple[int, bytes, Session | None]:
        host = Keyring(self.folder / "keys").read("host")
        greeting = Home(None, host, self.identity).greeting()  # type: ignore[arg-type]
        status, body = await self.post("hello", greeting.body)
        return status, body, greeting.finish(body, host.public) if status == 200 else None

    async def visit(self, **fields: Any) -> list[Came]:
        """All that comes of a visit."""
        _, _, session = await self.greet()
        assert session
        status, body = await self.post("order", seal_order(session.keys, session.ticket, send(**fields)))
        assert status == 200, body
        reader = StreamReader(session.keys.stream, max_bytes=1 << 30)
        came = list(reader.feed(body))
        reader.finish()
        return came


def _whole(top: bytes, content: bytes) -> bytes:
    if b"chunked" not in top.lower():
        return content
    pieces = []
    while content:
        size, _, content = content.partition(b"\r\n")
        pieces.append(content[: int(size, 16)])
        content = content[int(size, 16) + 2 :]
    return b"".join(pieces)


@contextmanager
def real_host(folder: Path, *words: str, policy: str = "", pages: int = 300) -> Iterator[RealHost]:
    """A host that runs; killed at the end if it still does."""
    host = RealHost(folder, *words, policy=policy, pages=pages)
    try:
        yield host
    finally:
        host.process.kill()
        host.process.communicate()
