"""What holds for a host behind every face: as a server (ASGI), as a WSGI application, as a CGI program."""

import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import pytest
from tests.crawl.running import COMMAND
from tests.host.knocking import NAME, SITE, Stream, send, write_site
from tests.host.test_asgi import Answered, request
from tests.host.test_cgi import Cgi, written_cgi

from sterna.host.calls import Reply
from sterna.host.config import SETTINGS
from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.host.wsgi import Application
from sterna.wire.discovery import WELL_KNOWN, decode_offer
from sterna.wire.orders import Look, open_report, seal_order


class Served(Cgi):
    """A host that a server answers for; its home asks over connections."""

    port = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lines: list[socket.socket] = []  # of streams that are not read

    def ask(self, method: str, path: str, body: bytes = b"", **environment: str) -> Answered:
        headers = {name.title(): value for name, value in environment.items()}
        with closing(self.connect(request(method, path, body, **headers))) as line:
            return Answered.of(b"".join(iter(lambda: line.recv(1 << 16), b"")))

    def connect(self, data: bytes) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        line.sendall(data)
        return line


def served_in(folder: Path) -> Served:
    """A site with settings, and a home that it allows."""
    face = Served(folder)
    write_site(folder / "site")
    (folder / "policy.toml").write_text("[load]\nmachine = 0\n")
    settings = {"site": SITE, "root": "site", "check": "never", "policy": "policy.toml", "state": "state"}
    lines = (f'{name} = "{value}"\n' for name, value in settings.items())
    (folder / SETTINGS).write_text("".join(lines))
    Keyring(folder / "keys").make("host")
    allow(folder / "keys" / ALLOWED, face.identity.public, NAME)
    return face


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None: ...


@contextmanager
def in_wsgi(folder: Path, *, keeps_visits: bool = False, policy: str = "") -> Iterator[Served]:
    face = served_in(folder)
    (folder / "policy.toml").write_text(f"{policy}\n[load]\nmachine = 0\n")
    application = Application(folder / SETTINGS, keeps_visits=keeps_visits)
    with closing(application), _Server(("127.0.0.1", 0), _Silent) as server:
        server.set_app(application)
        face.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield face
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def in_asgi(folder: Path) -> Iterator[Served]:
    face = served_in(folder)
    command = [*COMMAND, "host", "run", "--sites", str(folder), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        while not (line := process.stdout.readline()).startswith("listens"):
            assert line, "it ended"
        face.port = int(line.rpartition(":")[2])
        try:
            yield face
        finally:
            process.terminate()
            process.communicate(timeout=30)


@pytest.fixture(params=["cgi", "wsgi", "wsgi that keeps visits", "asgi"])
def face(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cgi]:
    if request.param == "cgi":
        yield written_cgi(tmp_path)
    elif request.param == "asgi":
        with in_asgi(tmp_path) as served:
            yield served
    else:
        with in_wsgi(tmp_path, keeps_visits=request.param != "wsgi") as served:
            yield served


@pytest.mark.parametrize("path", [WELL_KNOWN, "", "/"])
def test_offer_is_found(face: Cgi, path: str) -> None:
    offered = face.ask("GET", path or "/")
    assert (offered.status, offered.headers["content-type"]) == (200, "application/json")
    assert decode_offer(offered.body, SITE).public_key == face.host.public


async def test_whole_visit_comes_as_a_stream(face: Cgi) -> None:
    reply, session = face.order(send())

    async def once() -> AsyncIterator[bytes]:
        yield reply.body

    stream = Stream(Reply(reply.status, "", (), once()), session)
    await stream.read()
    assert reply.headers["content-type"] == "application/vnd.sterna"
    assert reply.headers["x-accel-buffering"] == "no"
    assert len(stream.pages) == 13
    assert stream.ending.ended == "finished"


def test_visit_is_kept_where_the_offer_says_so(face: Cgi) -> None:
    is_live_only = decode_offer(face.ask("GET", "/").body, SITE).is_live_only
    face.order(send())

    reply, session = face.order(Look("v1"))

    if is_live_only:
        assert reply.problem.name == "gone"
    else:
        assert open_report(session.keys, reply.body).state == "finished"


def test_greeting_is_good_once(face: Cgi) -> None:
    session = face.greet()
    body = seal_order(session.keys, session.ticket, send())
    assert [face.ask("POST", "/order", body).status for _ in range(3)] == [200, 409, 409]


@pytest.mark.parametrize(
    ("method", "path", "body", "environment", "status"),
    [
        ("POST", "/hello", b"", {}, 400),
        ("POST", "/hello", b"\xc1" * 50, {}, 400),
        ("POST", "/hello", b"x", {"CONTENT_LENGTH": "-5"}, 400),
        ("POST", "/hello", b"x", {"CONTENT_LENGTH": "many"}, 400),
        ("POST", "/hello", b"x" * 100_000, {}, 413),
        ("POST", "/order", b"x" * 64, {}, 410),
        ("GET", "/order", b"", {}, 405),
        ("PUT", "/hello", b"", {}, 405),
        ("GET", "/../../etc/passwd", b"", {}, 404),
        ("GET", "/sitemap.xml", b"", {}, 404),
    ],
)
def test_wrong_request_gets_an_error_and_the_host_goes_on(
    face: Cgi, method: str, path: str, body: bytes, environment: dict[str, str], status: int
) -> None:
    reply = face.ask(method, path, body, **environment)
    assert reply.status == status
    assert face.ask("GET", "/").status == 200


# -- WSGI --------------------------------------------------------------------------------------------------


def test_visit_without_a_stream_is_over_and_its_place_is_free(tmp_path: Path) -> None:
    policy = "delay_seconds = 1\n[limits]\ncrawlers_at_once = 1"
    with in_wsgi(tmp_path, policy=policy) as face:
        assert begin(face, "v1", leaves=False) == 200
        assert begin(face, "v2") == 503  # the only place is taken
        face.lines.pop().close()

        number = 3
        while begin(face, f"v{number}") != 200:  # until the server has noticed
            number += 1


def begin(face: Served, visit: str, *, leaves: bool = True) -> int:
    """Sends a crawler whose stream is not read to its end, and gives the status."""
    session = face.greet()
    order = seal_order(session.keys, session.ticket, send(visit=visit))
    line = face.connect(request("POST", "/order", order))
    status = int(line.recv(12, socket.MSG_WAITALL).split()[1])
    if leaves:
        line.close()
    else:
        face.lines.append(line)
    return status


def test_second_process_cannot_keep_visits_and_tells_the_owner_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with in_wsgi(tmp_path, keeps_visits=True) as face:
        assert face.ask("GET", "/").status == 200
        second = Application(tmp_path / SETTINGS, keeps_visits=True)
        told: list[str] = []
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "wsgi.input": None}
        body = b"".join(second(environ, lambda status, _: told.append(status)))
    assert told == ["500 Internal Server Error"]
    assert str(tmp_path).encode() not in body
    assert "give the server one process with threads" in caplog.text


FORKING = """
import os
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from sterna.host.wsgi import Application
server = WSGIServer(("127.0.0.1", 0), WSGIRequestHandler)
server.set_app(Application("host.toml"))
print(server.server_port, flush=True)
if os.fork() and os.fork():
    os.wait(), os.wait()
else:
    server.handle_request()
    server.handle_request()
    os._exit(0)
"""


def test_processes_that_a_server_forked_answer_from_one_state(tmp_path: Path) -> None:
    face = served_in(tmp_path)
    given: dict[str, Any] = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", FORKING], text=True, **given) as process:
        assert process.stdout
        face.port = int(process.stdout.readline())
        # Greeting and order may reach different processes.
        assert [face.order(send(visit=f"v{number}"))[0].status for number in range(2)] == [200, 200]
        assert process.wait(60) == 0


def test_application_that_could_not_start_starts_once_it_can(tmp_path: Path) -> None:
    with in_wsgi(tmp_path, keeps_visits=True) as face:
        key = tmp_path / "keys" / "host.key"
        beside = key.rename(tmp_path / "aside")
        assert face.ask("GET", "/").status == 500
        beside.rename(key)
        assert face.ask("GET", "/").status == 200


def test_closed_application_serves_again(tmp_path: Path) -> None:
    served_in(tmp_path)
    application = Application(tmp_path / SETTINGS, keeps_visits=True)
    told: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "wsgi.input": None}
    for _ in range(2):
        b"".join(application(environ, lambda status, _: told.append(status)))
        application.close()
    assert told == ["200 OK", "200 OK"]
