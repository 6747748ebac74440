"""A crawl at the site gives what anonymous HTTP gives from outside: the same URLs, statuses and digests.

"Outside" is a client whom the server takes for one at 198.51.100.7: nginx by its realip module, Apache by
mod_remoteip, both told so by a header that only this client sends. Every rule of the server goes by that
address, `allow 127.0.0.1` and `Require local` among them.
"""

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace
from tests import making
from tests.servers import apache, nginx
from tests.servers.apache import OUTSIDE_HEADER, open_folder

from sterna.host.config import HostConfig
from sterna.host.policy.policy import Policy
from sterna.host.site import source as source_module
from sterna.host.site.source import LoopbackResolver, open_source, resolver_of
from sterna.model import (
    Budget,
    Crawler,
    Ended,
    Etiquette,
    Keep,
    Parcel,
    Program,
    Scope,
    Target,
    Visit,
)
from sterna.runtime.access import RuntimeConfig
from sterna.runtime.readers import Readers
from sterna.runtime.runtime import open_runtime
from sterna.web.clock import SystemClock
from sterna.web.curl import CurlConfig, CurlFetcher
from sterna.web.document import Document, Fetched
from sterna.web.http import Fetcher, Request, Response
from sterna.web.politeness import NO_LIMITS
from sterna.web.urls import Canonical

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

HOSTNAME = "www.example.test"
OUTSIDER = "198.51.100.7"
SOURCES = ("http", "every", "judged", "folder")  # "judged" is "every" with small files judged too
OTHER_LANGUAGES = "/(?:manual/(?:[a-df-z]|es)|book/(?:[a-df-z]|en-[A-T]|e[a-mo-z]))"
Server = Literal["nginx", "apache"]
Found = dict[str, tuple[int, str, str]]  # path to status, error and digest


@dataclass(frozen=True, slots=True)
class Site:
    """A site that is served, the folder it lies in, and all that a test asks for there."""

    url: str
    root: Path
    aliases: tuple[tuple[str, Path], ...]
    paths: tuple[str, ...]
    log_path: Path

    def config(self, check: str, **policy: tuple[str, ...]) -> HostConfig:
        return HostConfig(
            site=self.url,
            root=None if check == "http" else self.root,
            aliases=() if check == "http" else self.aliases,
            check={"http": "", "judged": "every"}.get(check, check),
            policy=Policy(**policy),  # type: ignore[arg-type]
            state=self.root,
            keys=self.root,
        )

    def statuses(self) -> Counter[str]:
        """How often the server answered how."""
        return Counter(line.split('"')[2].split()[0] for line in self.log_path.read_text().splitlines())


@pytest.fixture(scope="module", autouse=True)
def _read_each_response_once() -> Iterator[None]:
    """A response that came before is not parsed again: these tests are about where responses come from."""
    read, documents = Readers.read, dict[Fetched, Document]()

    async def read_once(readers: Readers, fetched: Fetched) -> Document:
        if fetched not in documents:
            documents[fetched] = await read(readers, fetched)
        return documents[fetched]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Readers, "read", read_once)
        yield


class Outside:
    """Ordinary HTTP from outside."""

    def __init__(self, curl: CurlFetcher) -> None:
        self._curl = curl

    async def fetch(self, request: Request) -> Response:
        return await self._curl.fetch(
            replace(request, headers=(*request.headers, (OUTSIDE_HEADER, OUTSIDER)))
        )


@asynccontextmanager
async def outside() -> AsyncIterator[Fetcher]:
    curl = CurlFetcher(CurlConfig())
    try:
        yield Outside(curl)
    finally:
        await curl.close()


def crawl(site: Site, source: str, *, paths: tuple[str, ...] = (), **policy: tuple[str, ...]) -> Found:
    """Every page that a crawl from these paths finds, from "outside" or as the host reads the site."""

    async def main() -> Found:
        parcels: list[Parcel] = []

        async def deliver(parcel: Parcel) -> None:
            parcels.append(parcel)

        clock = SystemClock()
        config = site.config(source, **policy) if source != "outside" else None
        opened: AbstractAsyncContextManager[Fetcher] = open_source(config, clock) if config else outside()
        resolver = resolver_of(config) if config else LoopbackResolver(HOSTNAME, "127.0.0.1")
        runtime_config = RuntimeConfig(limits=NO_LIMITS, readers=1)
        async with (
            opened as fetcher,
            open_runtime(runtime_config, clock, fetcher=fetcher, resolver=resolver) as runtime,
        ):
            visit = visit_of(site.url, paths or site.paths)
            await runtime.carry_out(visit, deliver=deliver, stop=asyncio.Event())
        assert parcels[-1].ended is Ended.FINISHED
        return {
            page.url.removeprefix(site.url): (page.status, page.error, page.digest.hex())
            for parcel in parcels
            for page in parcel.pages
        }

    return asyncio.run(main())


def visit_of(site: str, paths: tuple[str, ...]) -> Visit:
    return making.visit(
        *(Target(Canonical()(site + path) or "") for path in paths),
        site=site,
        crawler=Crawler(
            scope=Scope(exclude=(OTHER_LANGUAGES,)), program=Program(keep=Keep(fields=()), needs=())
        ),
        etiquette=Etiquette(delay_seconds=0.0, response_factor=0.0, connections=4),
        budget=Budget(pages=5_000),
        may_be_private=True,
    )


# -- a site with everything that a source could get wrong -------------------------------------------------

NGINX_RULES = """
    set_real_ip_from 127.0.0.1; real_ip_header {header};
    location = /nginx_status {{ stub_status; allow 127.0.0.1; deny all; }}
    location /status-of-staff/ {{ alias {root}/docs/; index index.html; }}
    location /guarded/ {{
        alias {root}/guarded/; auth_basic "staff"; auth_basic_user_file {root}/../passwords;
    }}
    location /staff/ {{ alias {root}/staff/; allow 127.0.0.1; deny all; }}
    location /nolinks/ {{ alias {root}/nolinks/; disable_symlinks on; }}
    location ~ /\\.(?!well-known) {{ deny all; }}
    location ~ \\.(php|inc)$ {{ return 200 "made by a program"; }}
    location = /moved.html {{ return 301 /plain.html; }}
    location = /away.html {{ return 302 http://elsewhere.test/x.html; }}
    location = /inner.html {{ return 302 http://169.254.169.254/latest/; }}
    location = /rewritten.html {{ rewrite ^ /docs/index.html last; }}
    location = /withdrawn.html {{ return 410; }}
"""
APACHE_RULES = """
<Location /server-status>
    SetHandler server-status
    Require local
</Location>
<Location /server-info>
    SetHandler server-info
    Require local
</Location>
<Location /staff>
    Require local
</Location>
<Directory {root}/guarded>
    AuthType Basic
    AuthName staff
    AuthUserFile {root}/../passwords
    Require valid-user
</Directory>
<Directory {root}/nolinks>
    Options -FollowSymLinks
</Directory>
<Directory {root}/scripts>
    Options +ExecCGI
    AddHandler cgi-script .cgi
</Directory>
<DirectoryMatch "/\\.git">
    Require all denied
</DirectoryMatch>
<FilesMatch "\\.(php|inc)$">
    Require all denied
</FilesMatch>
Redirect 301 /moved.html /plain.html
Redirect 302 /away.html http://elsewhere.test/x.html
Redirect 302 /inner.html http://169.254.169.254/latest/
RewriteEngine on
RewriteRule ^/rewritten\\.html$ /docs/index.html [PT]
RewriteRule ^/withdrawn\\.html$ - [G]
"""
HTACCESS = """
Redirect 301 /rules/old.html /plain.html
<Files shut.html>
    Require all denied
</Files>
<Files odd.html>
    ForceType text/plain
</Files>
Header set X-Robots-Tag noindex
"""
FILES = {
    "index.html": "<title>Start</title><a href='found.html'>x</a> <a href='docs'>docs</a>",
    "found.html": "<p>found by a link of the start page",
    "plain.html": "<title>Plain</title><p>" + "plain " * 400 + "<a href='linked.html'>x</a>",
    "linked.html": "<p>found by a link alone",
    "long.html": "<p>" + "long " * 40_000,
    "note.txt": "a note",
    "noext": "what is this?",
    "empty.html": "",
    "space in name.html": "<p>space",
    "\u00fcml\u00e4ut.html": "<p>umlaut",
    "semi;colon.html": "<p>;",
    "UPPER.HTML": "<p>upper",
    "plain.html~": "<p>an editor's copy",
    "plain.html.bak": "<p>an older one",
    "docs/index.html": "<p>docs <a href='deep/page.html'>deep</a>",
    "docs/deep/page.html": "<p>deep",
    "disallowed/secret.html": "<p>no robot reads this",
    "guarded/secret.html": "<p>with a password only",
    "staff/secret.html": "<p>on this machine only",
    "rules/open.html": "<p>open",
    "rules/shut.html": "<p>shut by .htaccess",
    "rules/odd.html": "<p>no HTML <a href='/never-linked.html'>x</a>",
    "rules/below/page.html": "<p>below",
    "scripts/app.php": "<?php $password = 'source';",
    "scripts/lib.inc": "<?php $password = 'source';",
    "scripts/hello.cgi": "#!/bin/sh\nprintf 'Content-Type: text/html\\n\\n<p>made by a program'\n",
    "scripts/tool.py": "print('a program to download')",
    ".git/config": "[core]",
    ".hidden.html": "<p>hidden",
    ".well-known/security.txt": "Contact: mailto:staff@example.test",
    "private.html": "<p>the owner's alone",
    "private/page.html": "<p>the owner's alone",
    "robots.txt": "User-agent: *\nDisallow: /disallowed/\n",
}
ODD_PATHS = (
    "/", "/docs", "/docs/", "/docs?x=1", "/status-of-staff/", "/nothing/", "/gone.html", "/empty-folder/",
    "/empty-folder", "/plain.html?x=1", "/plain.html/", "/plain.html/info", "//plain.html",
    "/docs//index.html", "/docs/deep%2Fpage.html", "/moved.html", "/away.html", "/inner.html",
    "/rewritten.html", "/withdrawn.html", "/rules/old.html", "/rules/.htaccess", "/links/in.html",
    "/links/out.html", "/links/absolute.html", "/links/docs/index.html", "/links/above.html",
    "/links/round.html", "/nolinks/in.html", "/nolinks/out.html", "/outside/", "/large.bin",
    "/server-status", "/server-status?auto", "/%73erver-status", "//server-status", "/server-status/x",
    "/server-info", "/nginx_status", "/plain.html%00.txt", "/..%2fsecret.html", "/%2e%2e%2fsecret.html",
    "/pl%61in.html", "/%C3%BC",
)  # fmt: skip
SECRET = "<p>outside of the root"


def build(folder: Path) -> Path:
    """Makes the site in a new folder of this one."""
    root = folder / "root"
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "secret.html").write_text(SECRET)
    (root / "empty-folder").mkdir()
    for links in (root / "links", root / "nolinks"):
        links.mkdir()
        (links / "in.html").symlink_to("../plain.html")
        (links / "out.html").symlink_to(folder / "secret.html")
    (root / "links" / "absolute.html").symlink_to(root / "plain.html")
    (root / "links" / "above.html").symlink_to("../../secret.html")
    (root / "links" / "round.html").symlink_to("round.html")
    (root / "links" / "docs").symlink_to("../docs")
    (root / "outside").symlink_to(folder)
    (root / "rules" / ".htaccess").write_text(HTACCESS)
    (root / "scripts" / "hello.cgi").chmod(0o755)
    (root / "private.html").chmod(0o600)
    (root / "private").chmod(0o700)
    with (root / "large.bin").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    subprocess.run(["htpasswd", "-bc", str(folder / "passwords"), "a", "b"], check=True, capture_output=True)
    return root


@contextmanager
def serve(
    kind: Server, root: Path, *, folder: Path, rules: str, aliases: dict[str, Path]
) -> Iterator[tuple[str, Path]]:
    """The site's URL and the server's log."""
    if kind == "nginx":
        paths = {"/": root, **aliases}
        with nginx.serve(
            paths, folder=folder, extra=rules.format(root=root, header=OUTSIDE_HEADER)
        ) as server:
            yield server.url.replace("127.0.0.1", HOSTNAME), server.log_path
    else:
        with apache.serve(root, folder=folder, aliases=aliases, extra=rules.format(root=root)) as server:
            yield server.url.replace("127.0.0.1", HOSTNAME), server.log_path


@pytest.fixture(scope="module", params=["nginx", "apache"])
def odd_site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """The site of all traps."""
    kind: Server = request.param
    rules = NGINX_RULES if kind == "nginx" else APACHE_RULES
    with open_folder() as folder:
        root = build(folder)
        paths = (*(f"/{name}" for name in FILES), *ODD_PATHS)
        with serve(kind, root, folder=folder / kind, rules=rules, aliases={"/files": folder}) as (url, log):
            yield Site(url, root, (("/files", folder),), (*paths, "/files/secret.html"), log)


@pytest.fixture(scope="module")
def seen_outside(odd_site: Site) -> Found:
    return crawl(odd_site, "outside")


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "judged":
        monkeypatch.setattr(source_module, "WORTH_BYTES", 0)
    return str(request.param)


def test_odd_site_is_the_same_from_inside(odd_site: Site, seen_outside: Found, source: str) -> None:
    inside = crawl(odd_site, source, closed=("/staff/",))

    refused = {path for path, (_, error, _) in inside.items() if error == "refused"}
    assert without(inside, refused) == without(seen_outside, refused)
    assert all(seen_outside[path][0] >= 400 for path in refused)
    assert refused >= {"/server-status", "/server-info", "/nginx_status", "/staff/secret.html"}


def without(found: Found, paths: set[str]) -> Found:
    return {path: what for path, what in found.items() if path not in paths}


def test_every_file_is_asked_for_once_and_a_large_one_comes_from_the_disk(odd_site: Site) -> None:
    before = odd_site.statuses().total()

    found = crawl(odd_site, "every", paths=("/docs/", "/long.html"))

    lines = odd_site.log_path.read_text().splitlines()[before:]
    assert {path for path, (status, _, _) in found.items() if status == 200} == {
        "/docs/", "/docs/deep/page.html", "/long.html"
    }  # fmt: skip
    assert sorted(line.split('"')[1].split()[1] for line in lines) == [
        "/docs/", "/docs/deep/page.html", "/long.html", "/robots.txt"
    ]  # fmt: skip
    assert [line.split('"')[1].split()[1] for line in lines if '" 206 ' in line] == ["/long.html"]


def test_server_that_goes_by_forwarded_addresses_refuses_what_is_local(tmp_path: Path) -> None:
    with open_folder() as folder:
        root = build(folder)
        rules = "RemoteIPHeader X-Forwarded-For" + APACHE_RULES
        with serve("apache", root, folder=folder / "apache", rules=rules, aliases={}) as (url, log):
            site = Site(url, root, (), ("/staff/secret.html",), log)

            assert crawl(site, "every")["/staff/secret.html"][:2] == (403, "")


def test_rule_for_one_file_is_seen_where_every_file_is_judged(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<a href='shut.html'>x</a>")
    (tmp_path / "shut.html").write_text("<p>shut")
    rules = "location = /shut.html {{ deny all; }}"
    with serve("nginx", tmp_path, folder=tmp_path / "nginx", rules=rules, aliases={}) as (url, log):
        site = Site(url, tmp_path, (), ("/a.html",), log)
        every, folder = crawl(site, "every"), crawl(site, "folder")
        closed = crawl(site, "folder", closed=("/shut.html",))

    assert every["/shut.html"][0] == 403
    assert folder["/shut.html"][0] == 200  # what this way cannot know, as the documentation says
    assert closed["/shut.html"][:2] == (0, "refused")


# -- real sites -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["nginx", "apache"])
def real_site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Documentation as Debian has it, one package as the root and two beside it."""
    kind: Server = request.param
    root = nginx.real_site("sqlite3-doc")
    aliases = {"/manual/": nginx.real_site("apache2-doc"), "/book/": nginx.real_site("debian-handbook")}
    rules = f"set_real_ip_from 127.0.0.1; real_ip_header {OUTSIDE_HEADER};" if kind == "nginx" else ""
    with open_folder() as folder:
        opened = serve(kind, root, folder=folder, rules=rules, aliases=with_slashes(kind, aliases))
        with opened as (url, log):
            starts = ("/index.html", "/manual/en/index.html", "/manual/en", "/book/en-US/", "/gone.html")
            yield Site(url, root, tuple(aliases.items()), starts, log)


def with_slashes(kind: Server, aliases: dict[str, Path]) -> dict[str, Path]:
    """Apache's Alias matches whole names, with or without a slash behind both."""
    return aliases if kind == "nginx" else {path.rstrip("/"): folder for path, folder in aliases.items()}


@pytest.fixture(scope="module")
def real_outside(real_site: Site) -> Found:
    return crawl(real_site, "outside")


def test_real_site_is_the_same_from_inside(real_site: Site, real_outside: Found, source: str) -> None:
    before = real_site.statuses()

    inside = crawl(real_site, source)

    asked = real_site.statuses() - before
    pages = sum(status == 200 for status, _, _ in inside.values())
    assert inside == real_outside
    assert pages > 1_000
    assert any(status == 301 for status, _, _ in inside.values())
    if source == "folder":
        assert asked["200"] + asked["206"] < pages / 20
    else:
        assert asked["200"] + asked["206"] >= pages
        share = {"http": 0.0, "every": 0.02, "judged": 1.0}[source]
        assert asked["206"] / pages == pytest.approx(share, abs=0.019)


def test_files_alone_give_the_pages_that_a_server_gives(real_site: Site, real_outside: Found) -> None:
    inside = crawl(real_site, "never")

    assert {path: status for path, (status, _, _) in inside.items()} == {
        path: status for path, (status, _, _) in real_outside.items()
    }
    pages = {path for path, (status, _, _) in inside.items() if status == 200}
    assert {path: inside[path] for path in pages} == {path: real_outside[path] for path in pages}


def test_files_alone_show_less_than_a_server_and_nothing_else(odd_site: Site, seen_outside: Found) -> None:
    inside = crawl(odd_site, "never")

    shown = {path for path, (status, _, _) in inside.items() if status == 200}
    kept_back = {path for path, (status, _, _) in seen_outside.items() if status == 200} - shown
    # What only the rules of a server kept back, which is not asked here.
    ruled = {"/guarded/secret.html", "/staff/secret.html", "/nolinks/in.html"}
    assert all(seen_outside[path] == inside[path] for path in shown - ruled)
    assert not any(path.startswith("/rules/") for path in shown)
    assert kept_back >= {"/plain.html~", "/plain.html.bak", "/scripts/tool.py", "/links/out.html", "/noext"}
