"""The CGI program that `sterna host cgi` writes, run as a web server runs it: a process for each request."""

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.crawl.running import sterna
from tests.host.knocking import NAME, SITE, Stream, send, write_site
from tests.host.test_asgi import Answered
from tests.killing import children_of

from sterna.host.calls import Reply
from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.model import Budget
from sterna.web.clock import SystemClock
from sterna.wire.discovery import decode_offer
from sterna.wire.handshake import Greeting, Session
from sterna.wire.keys import Identity
from sterna.wire.orders import Look, Order, seal_acknowledgement, seal_order

STARTS_WITHIN_SECONDS = 0.4
TRIES = 5

Process: TypeAlias = "subprocess.Popen[bytes]"


class Cgi:
    """The program, and the home that it knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "cgi-bin" / "sterna"
        self.identity = Identity.new()

    @property
    def host(self) -> Identity:
        return Keyring(self.folder / "keys").read("host")

    def start(
        self, method: str, path: str, body: bytes = b"", **environment: str
    ) -> "subprocess.Popen[bytes]":
        """The program at work, as mod_cgi starts it: no environment but the request's."""
        given = {"REQUEST_METHOD": method, "PATH_INFO": path, "GATEWAY_INTERFACE": "CGI/1.1"}
        given |= {"CONTENT_LENGTH": str(len(body))} if method == "POST" else {}
        process = subprocess.Popen(
            [self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=given | environment,
            cwd=self.program.parent,
        )
        assert process.stdin
        process.stdin.write(body)
        process.stdin.flush()  # and left open, as a web server may
        return process

    def ask(self, method: str, path: str, body: bytes = b"", **environment: str) -> Answered:
        process = self.start(method, path, body, **environment)
        out, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (0, b"")
        return answered(out)

    def greet(self) -> Session:
        greeting = Greeting.begin(
            self.identity, home=NAME, audience=SITE, wants=Budget(), now=SystemClock().now()
        )
        reply = self.ask("POST", "/hello", greeting.body)
        assert reply.status == 200, reply.body
        return greeting.finish(reply.body, self.host.public)

    def order(self, order: Order) -> tuple[Answered, Session]:
        session = self.greet()
        return self.ask("POST", "/order", seal_order(session.keys, session.ticket, order)), session


def answered(out: bytes) -> Answered:
    """RFC 3875 6: Status and the headers, an empty line, the body."""
    assert out.startswith(b"Status: ")
    return Answered.of(b"HTTP/1.1 " + out.removeprefix(b"Status: "))


def written_cgi(folder: Path, policy: str = "") -> Cgi:
    """The program in `folder`, and a home that it knows."""
    found = Cgi(folder)
    write_site(folder / "site")
    found.program.parent.mkdir()
    allow(folder / "keys" / ALLOWED, found.identity.public, NAME)
    (folder / "policy.toml").write_text(f"{policy}[load]\nmachine = 0\n")  # other tests are busy
    given = ("--site", SITE, "--check", "never", "--policy", folder / "policy.toml")
    folders = ("--root", folder / "site", "--keys", folder / "keys", "--state", folder / "state")
    written = sterna("host", "cgi", found.program, *given, *folders)
    assert written.returncode == 0, written.stderr
    return found


@pytest.fixture
def cgi(tmp_path: Path) -> Cgi:
    return written_cgi(tmp_path)


def test_program_is_a_few_lines_and_says_that_it_keeps_nothing(cgi: Cgi) -> None:
    assert len(cgi.program.read_text().splitlines()) <= 5
    offered = cgi.ask("GET", "")
    assert (offered.status, offered.headers["content-type"]) == (200, "application/json")
    offer = decode_offer(offered.body, SITE)
    assert offer.is_live_only
    assert offer.endpoint == f"{SITE}/cgi-bin/sterna"
    assert offer.public_key == cgi.host.public


async def test_visit_runs_inside_the_process(cgi: Cgi) -> None:
    reply, session = cgi.order(send())

    async def once() -> AsyncIterator[bytes]:
        yield reply.body

    stream = Stream(Reply(reply.status, "", (), once()), session)
    await stream.read()
    assert reply.headers["content-type"] == "application/vnd.sterna"
    assert len(stream.pages) == 13
    assert stream.ending.ended == "finished"
    assert not list(cgi.folder.glob("state/live-*"))


def test_nothing_is_kept(cgi: Cgi) -> None:
    reply, session = cgi.order(Look("v1"))
    assert reply.problem.name == "gone"
    gone = cgi.ask("POST", "/acknowledge", seal_acknowledgement(session.keys, "v1", 1))
    assert gone.problem.name == "gone"


def test_ticket_is_good_for_one_process(cgi: Cgi) -> None:
    session = cgi.greet()
    body = seal_order(session.keys, session.ticket, send())
    running = [cgi.start("POST", "/order", body) for _ in range(6)]
    replies = [answered(process.communicate(timeout=60)[0]) for process in running]
    assert sorted(reply.status for reply in replies) == [200, *[409] * 5]
    greeting = Greeting.begin(cgi.identity, home=NAME, audience=SITE, wants=Budget(), now=SystemClock().now())
    assert cgi.ask("POST", "/hello", greeting.body).status == 200
    assert cgi.ask("POST", "/hello", greeting.body).problem.name == "replayed"


@pytest.mark.parametrize(
    ("method", "path", "body", "environment", "status"),
    [
        ("POST", "/hello", b"", {}, 400),
        ("POST", "/hello", b"\xc1" * 50, {}, 400),
        ("POST", "/hello", b"x", {"CONTENT_LENGTH": "999999999"}, 413),
        ("POST", "/hello", b"x", {"CONTENT_LENGTH": "-5"}, 400),
        ("POST", "/hello", b"x", {"CONTENT_LENGTH": "many"}, 400),
        ("POST", "/order", b"x" * 64, {}, 410),
        ("GET", "/order", b"", {}, 405),
        ("PUT", "", b"", {}, 405),
        ("GET", "/../../etc/passwd", b"", {}, 404),
    ],
)
def test_wrong_request_gets_a_problem(
    cgi: Cgi, method: str, path: str, body: bytes, environment: dict[str, str], status: int
) -> None:
    reply = cgi.ask(method, path, body, **environment)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")


def test_host_that_cannot_answer_tells_nobody_why(cgi: Cgi) -> None:
    (cgi.folder / "keys" / "host.key").unlink()
    process = cgi.start("GET", "")
    out, error = process.communicate(timeout=30)
    assert answered(out).problem.name == "internal"
    assert b"host.key" not in out
    assert b"host.key" in error


def begin_endless_visit(cgi: Cgi) -> Process:
    """A visit whose stream has begun and will not end soon."""
    (cgi.folder / "policy.toml").write_text("delay_seconds = 30\n[load]\nmachine = 0\n")
    session = cgi.greet()
    process = cgi.start("POST", "/order", seal_order(session.keys, session.ticket, send()))
    assert process.stdout
    while not process.stdout.readline().isspace():  # the headers came at once, unbuffered
        pass
    assert os.read(process.stdout.fileno(), 1)  # and so does the stream
    return process


def wait_for_readers(process: Process) -> list[int]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if len(children := children_of(process.pid)) >= 2:
            return children
        time.sleep(0.02)
    raise AssertionError("no reader was started")


@pytest.mark.parametrize("way", ["the web server ends it", "the client leaves"])
def test_visit_ends_with_its_process(cgi: Cgi, way: str) -> None:
    process = begin_endless_visit(cgi)
    children = wait_for_readers(process)
    if way == "the client leaves":
        assert process.stdout
        process.stdout.close()  # the next sign of life finds nobody
    else:
        process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(cgi.folder.glob("state/live-*/*"))
    session = cgi.greet()  # the place is free again
    other = cgi.start("POST", "/order", seal_order(session.keys, session.ticket, send(visit="v2")))
    assert other.stdout
    assert other.stdout.readline() == b"Status: 200 OK\r\n"
    other.terminate()
    other.communicate(timeout=30)


def test_answer_starts_within_its_time(cgi: Cgi) -> None:
    """In CPU time, in one of a few tries: what a busy machine adds is not the program's."""

    def seconds(method: str, path: str, body: bytes = b"") -> float:
        process = cgi.start(method, path, body)
        assert process.stdout
        assert process.stdout.readline() == b"Status: 200 OK\r\n"
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0
        process.returncode = 0
        process.communicate()
        return usage.ru_utime + usage.ru_stime

    def hello() -> bytes:
        now = SystemClock().now()
        return Greeting.begin(cgi.identity, home=NAME, audience=SITE, wants=Budget(), now=now).body

    assert any(seconds("GET", "") < STARTS_WITHIN_SECONDS for _ in range(TRIES))
    assert any(seconds("POST", "/hello", hello()) < STARTS_WITHIN_SECONDS for _ in range(TRIES))


def test_sessions_are_private(cgi: Cgi) -> None:
    cgi.greet()
    files = [path for path in (cgi.folder / "state").rglob("*") if path.is_file()]
    assert files
    assert {path.stat().st_mode & 0o077 for path in files} == {0}
