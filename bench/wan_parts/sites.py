"""The three real sites: documentation from Debian's packages, closed under its links, and nginx for them.

Each site is served under several ports, so that no run needs another configuration than the one before:
plain, with gzip, and once for each kind of host beside it.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from bench.wan_parts.places import SITE_ADDRESS, Place, running

# Hosts are announced at all but the first two.
PORTS = ("plain", "gzip", "http", "root", "root-folder", "http-stored", "root-stored", "root-any")
START_SECONDS = 10.0
GZIP_LEVEL = 6  # nginx's own default of 1 would make gzip crawling look worse than it is: 4.74 for 4.15 MB
START_PAGE = "index.html"


@dataclass(frozen=True, slots=True)
class Documents:
    """A Debian package with HTML pages in one folder."""

    package: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Site:
    """A real site: its pages lie in a copy that a run may change."""

    name: str
    number: int
    root: Path

    def file(self, path: str) -> Path:
        """Where the page of a URL's path lies."""
        file = self.root / unquote(path).lstrip("/")
        return file / START_PAGE if file.is_dir() else file

    def port(self, kind: str) -> int:
        return 8000 + 10 * self.number + PORTS.index(kind)

    def host_port(self, kind: str) -> int:
        return 1000 + self.port(kind)

    def origin(self, kind: str) -> str:
        return f"http://{SITE_ADDRESS}:{self.port(kind)}"

    def start(self, kind: str) -> str:
        return f"{self.origin(kind)}/{START_PAGE}"


OCTAVE = Documents("octave-doc", Path("/usr/share/doc/octave/octave.html"))
POSTGRESQL = Documents("postgresql-doc-15", Path("/usr/share/doc/postgresql-doc-15/html"))
CMAKE = Documents("cmake-doc", Path("/usr/share/doc/cmake-data/html"))
HANDBOOK = Documents("debian-handbook", Path("/usr/share/doc/debian-handbook/html/en-US"))

# The third is a server with two works, behind a page that names them: 2,064 pages.
SMALL, MIDDLE, LARGE = "octave", "postgresql", "cmake and handbook"
WORKS: Mapping[str, Mapping[str, Documents]] = {
    SMALL: {"": OCTAVE},
    MIDDLE: {"": POSTGRESQL},
    LARGE: {"cmake": CMAKE, "handbook": HANDBOOK},
}


def install() -> None:
    """The packages that are not here yet, by Debian's own client."""
    all_of_them = [documents for works in WORKS.values() for documents in works.values()]
    missing = [documents.package for documents in all_of_them if not documents.folder.is_dir()]
    if missing:
        subprocess.run(["apt-get", "install", "-y", "-qq", *missing], check=True)


def make_sites(folder: Path) -> dict[str, Site]:
    """Copies of all sites, files with the times that they have."""
    return {name: _make(name, number, folder / f"site-{number}") for number, name in enumerate(WORKS)}


def _make(name: str, number: int, root: Path) -> Site:
    works = WORKS[name]
    for path, documents in works.items():
        shutil.copytree(documents.folder, root / path)
    if "" not in works:
        links = "\n".join(f'<li><a href="/{path}/{START_PAGE}">{path}</a></li>' for path in works)
        page = f"<!DOCTYPE html>\n<title>Documentation</title>\n<ul>\n{links}\n</ul>\n"
        (root / START_PAGE).write_text(page)
    return Site(name, number, root)


@contextmanager
def served(sites: Mapping[str, Site], place: Place, *, folder: Path) -> Iterator[Path]:
    """nginx for all sites at a place; gives the path of its log."""
    folder.mkdir(parents=True, exist_ok=True)
    conf, pid = folder / "nginx.conf", folder / "nginx.pid"
    pid.unlink(missing_ok=True)
    conf.write_text(_configure(sites, folder))
    error_log = folder / "error.log"
    command = ["nginx", "-p", str(folder), "-e", str(error_log), "-c", str(conf)]
    with running(place.start(command)) as process:
        deadline = time.monotonic() + START_SECONDS
        while not pid.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"nginx did not start: {error_log.read_text(errors='replace')}")
            time.sleep(0.01)
        yield folder / "access.log"


def _configure(sites: Mapping[str, Site], folder: Path) -> str:
    temporary = "\n".join(
        f"    {kind}_temp_path {folder}/temp-{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    blocks = "".join(_server(site, kind) for site in sites.values() for kind in PORTS)
    return f"""\
daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
    log_format hits '$server_port "$request" $status $body_bytes_sent';
    access_log {folder}/access.log hits;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000;
    gzip_comp_level {GZIP_LEVEL};
    gzip_min_length 256;
    types {{ text/html html; text/css css; text/javascript js; text/plain txt; image/png png; }}
    default_type application/octet-stream;
{temporary}
{blocks}}}
"""


def _server(site: Site, kind: str) -> str:
    gzip = "off" if kind == "plain" else "on"
    is_host = kind not in ("plain", "gzip")
    return f"""\
    server {{
        listen {site.port(kind)};
        root {site.root};
        index {START_PAGE};
        gzip {gzip};
{_host_places(site.host_port(kind)) if is_host else ""}    }}
"""


def _host_places(port: int) -> str:
    """The host's calls go on to it as they come, and its stream is not kept back."""
    return f"""\
        location = /.well-known/sterna {{ proxy_pass http://127.0.0.1:{port}; }}
        location /sterna/ {{
            proxy_pass http://127.0.0.1:{port};
            proxy_http_version 1.1;
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 60s;
            client_max_body_size 64m;
        }}
"""
