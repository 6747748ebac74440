"""A real nginx on a free loopback port, and real sites for it: documentation that Debian packages hold."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_SITES = {
    "sqlite3-doc": Path("/usr/share/doc/sqlite3"),
    "apache2-doc": Path("/usr/share/doc/apache2-doc/manual"),
    "debian-handbook": Path("/usr/share/doc/debian-handbook/html"),
}
_START_SECONDS = 10.0
_TRIES = 5  # for a port that is taken between the moment it is found free and nginx's start

_TYPES = """
    types {
        text/html html htm; text/css css; text/javascript js; text/plain txt; text/xml xml;
        image/png png; image/gif gif; image/jpeg jpg jpeg; image/svg+xml svg;
        application/json json; application/pdf pdf; application/gzip gz;
    }
    default_type application/octet-stream;
"""


@dataclass(frozen=True, slots=True)
class NginxServer:
    """A running nginx; `tls_url` and `ca_path` are empty unless it was asked to serve TLS."""

    url: str
    log_path: Path
    pid: int
    tls_url: str = ""
    ca_path: Path | None = None


class PortTaken(Exception):
    """Somebody else was quicker."""


def real_site(name: str) -> Path:
    """The folder of a real site; a few of its files are compressed by Debian, some are symbolic links.

    The handbook has no page at its top: start at /en-US/index.html.
    """
    folder = _SITES[name]
    if not folder.is_dir():
        raise FileNotFoundError(f"the site of package {name!r} is not here: run `apt-get install {name}`")
    return folder


@contextmanager
def serve(
    root: Path | Mapping[str, Path], *, folder: Path, extra: str = "", http2_tls: bool = False
) -> Iterator[NginxServer]:
    """Serve a folder, or one for each path (`/docs/`) or host name (`a.test`), until the block ends.

    nginx writes only into `folder`; `extra` goes into each server block of its configuration.
    """
    roots = {"/": root} if isinstance(root, Path) else dict(root)
    folder.mkdir(parents=True, exist_ok=True)
    if http2_tls:
        make_certificate(folder)
    for attempt in range(_TRIES):
        ports = free_ports(2 if http2_tls else 1)
        conf = folder / "nginx.conf"
        conf.write_text(_configure(roots, ports, folder=folder, extra=extra))
        try:
            log, pid = folder / "error.log", folder / "nginx.pid"
            command = ["nginx", "-p", str(folder), "-e", str(log), "-c", str(conf)]
            process = start_server(command, log=log, pid=pid, port=ports[0])
            break
        except PortTaken:
            if attempt == _TRIES - 1:
                raise
    try:
        yield NginxServer(
            url=f"http://127.0.0.1:{ports[0]}",
            log_path=folder / "access.log",
            pid=process.pid,
            tls_url=f"https://127.0.0.1:{ports[1]}" if http2_tls else "",
            ca_path=folder / "ca.pem" if http2_tls else None,
        )
    finally:
        stop_server(process)


def _configure(roots: Mapping[str, Path], ports: list[int], *, folder: Path, extra: str) -> str:
    paths = {key: path for key, path in roots.items() if key.startswith("/")}
    names = {key: path for key, path in roots.items() if not key.startswith("/")}
    listen = f"listen 127.0.0.1:{ports[0]};"
    if len(ports) > 1:
        listen += f" listen 127.0.0.1:{ports[1]} ssl http2;"
    # The first block answers every host name that has none of its own.
    blocks = [_server(listen, paths, name="_", extra=extra)]
    blocks += [_server(listen, {"/": path}, name=name, extra=extra) for name, path in names.items()]
    temporary = "\n".join(
        f"    {kind}_temp_path {folder}/temp-{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    certificate = f"ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;"
    return f"""\
daemon off;
worker_processes 1;
{"user root;" if os.geteuid() == 0 else ""}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
    log_format hits '$msec $remote_addr "$request" $status $body_bytes_sent';
    access_log {folder}/access.log hits;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000;
    gzip on;
    gzip_vary on;
    {certificate if len(ports) > 1 else ""}
{temporary}
{_TYPES}
{"".join(blocks)}
}}
"""


def _server(listen: str, paths: Mapping[str, Path], *, name: str, extra: str) -> str:
    places = "\n".join(
        f"        location {key} {{ alias {str(path).rstrip('/')}/; index index.html; }}"
        for key, path in ((f"/{key.strip('/')}/".replace("//", "/"), path) for key, path in paths.items())
    )
    return f"    server {{\n        {listen}\n        server_name {name};\n{places}\n{extra}\n    }}\n"


def start_server(command: list[str], *, log: Path, pid: Path, port: int) -> subprocess.Popen[bytes]:
    """The running server, once it has its port; PortTaken if somebody else has it."""
    pid.unlink(missing_ok=True)
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors, start_new_session=True)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        # It writes its pid when it has the port: before that, somebody else may answer there.
        if pid.exists() and _is_open(port):
            return process
        time.sleep(0.01)
    stop_server(process)
    text = log.read_text(errors="replace").strip()
    if "Address already in use" in text:
        raise PortTaken(text)
    reason = text or "it said nothing"
    raise RuntimeError(f"{command[0]} did not start within {_START_SECONDS:.0f} s: {reason}")


def stop_server(process: subprocess.Popen[bytes]) -> None:
    """Ends a server with all its processes."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        # The session is the server's own: this ends its workers with it.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(5)


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def make_certificate(folder: Path) -> None:
    """A throw-away authority (ca.pem) and its certificate for 127.0.0.1 and localhost (server.pem)."""
    (folder / "names.cnf").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    for command in (
        f"req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=throw-away",
        f"req {key} -keyout server.key -out server.csr -subj /CN=localhost",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
        " -extfile names.cnf -out server.pem",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
