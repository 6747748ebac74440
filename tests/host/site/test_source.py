"""A host's source answers for its own site alone, whatever a URL, a redirect or a name says."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests import making
from tests.servers.nginx import serve

from sterna.errors import ConfigError, FetchError
from sterna.host.config import HostConfig
from sterna.host.policy.policy import Policy
from sterna.host.site.closed import Closed
from sterna.host.site.source import (
    LoopbackResolver,
    ShieldedFetcher,
    SiteFetcher,
    check_source,
    open_source,
    resolver_of,
)
from sterna.model import Ended, Etiquette, Parcel, Target
from sterna.runtime.access import RuntimeConfig
from sterna.runtime.runtime import open_runtime
from sterna.web.clock import SystemClock
from sterna.web.http import Fetcher, Request, Response
from sterna.web.politeness import NO_LIMITS

SITE = "https://www.example.org"


class Unasked:
    """Fails the test if anybody asks."""

    async def fetch(self, request: Request) -> Response:
        raise AssertionError(f"{request.url} was asked for")


class Answering:
    """Gives an empty page for everything."""

    async def fetch(self, request: Request) -> Response:
        return Response(status=200, head=b"", body=b"", headers=(), seconds=0.0, wire_bytes=0)


def config_of(folder: Path, **fields: Any) -> HostConfig:
    given: dict[str, Any] = {"site": SITE, "state": folder, "keys": folder}
    return HostConfig(**(given | fields))


@pytest.mark.parametrize(
    "url",
    [
        "http://www.example.org/",
        "https://example.org/",
        "https://www.example.org:443/",
        "https://www.example.org:8443/",
        "https://www.example.org./",
        "https://www.example.org.evil.test/",
        "https://www.example.org@evil.test/",
        "https://user@www.example.org/",
        "https://user:secret@www.example.org/",
        "https://evil.test/https://www.example.org/",
        "https://evil.test#@www.example.org/",
        "https://www.example.org\\@evil.test/",
        "https://www.example.org",
        "https://www.example.org?x",
        "https://WWW.example.org/",
        "HTTPS://www.example.org/",
        "https://xn--www-example.org/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://0x7f.1/",
        "//www.example.org/",
        "/etc/passwd",
        "file:///etc/passwd",
        "gopher://www.example.org/",
        "https://www.example.org/a b",
        "https://www.example.org/a\r\nHost: evil.test",
        "https://www.example.org/ü",
        "",
    ],
)
async def test_only_the_site_itself_is_asked(url: str) -> None:
    fetcher = SiteFetcher(Unasked(), site=SITE, closed=Closed())

    with pytest.raises(FetchError) as raised:
        await fetcher.fetch(Request(url=url, address="127.0.0.1"))

    assert raised.value.kind == "refused"


@pytest.mark.parametrize("path", ["/server-status", "//Server-Status/?auto", "/drafts/1.html"])
async def test_closed_page_is_refused_unasked(path: str) -> None:
    fetcher = SiteFetcher(Unasked(), site=SITE, closed=Closed(("/drafts/",)))

    with pytest.raises(FetchError, match=r"refused: .* is closed"):
        await fetcher.fetch(Request(url=SITE + path))


@pytest.mark.parametrize("path", ["/", "/a?b=c", "/@evil.test/", "/http://evil.test/", "/:8080", "/%40"])
async def test_page_of_the_site_is_asked(path: str) -> None:
    fetcher = SiteFetcher(Answering(), site=SITE, closed=Closed())

    assert (await fetcher.fetch(Request(url=SITE + path))).status == 200


async def test_one_name_is_known() -> None:
    resolver = LoopbackResolver("www.example.org", "127.0.0.1")

    assert await resolver.resolve("www.example.org") == ("127.0.0.1",)
    for hostname in ("example.org", "www.example.org.", "localhost", "127.0.0.1", "evil.test", ""):
        with pytest.raises(FetchError, match="refused"):
            await resolver.resolve(hostname)


async def test_name_leads_to_the_upstream(tmp_path: Path) -> None:
    named = resolver_of(config_of(tmp_path, upstream="http://10.0.0.5:8080"))
    usual = resolver_of(config_of(tmp_path))

    assert await named.resolve("www.example.org") == ("10.0.0.5",)
    assert await usual.resolve("www.example.org") == ("127.0.0.1",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"site": "https://www.example.org/"}, "site"),
        ({"site": "https://WWW.example.org"}, "site"),
        ({"site": "https://www.example.org:443"}, "site"),
        ({"site": "www.example.org"}, "site"),
        ({"site": "https://a@www.example.org"}, "site"),
        ({"site": "ftp://www.example.org"}, "site"),
        ({"check": "sometimes"}, "check .*every, folder, never"),
        ({"upstream": "http://backend"}, "upstream"),
        ({"check": "never"}, "need a document root"),
        ({"aliases": (("/files", Path("/")),)}, "need a document root"),
        ({"root": Path("/nowhere/at/all")}, "not a folder"),
        ({"root": Path("/nowhere/at/all"), "check": "never"}, "not a folder"),
        ({"root": Path("/"), "aliases": (("files", Path("/")),)}, "alias"),
    ],
)
async def test_configuration_that_cannot_be_says_so(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        async with open_source(config_of(tmp_path, **fields), SystemClock()):
            pass


async def test_files_alone_are_read_where_there_is_no_server(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "index.html").write_text("start")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("more")
    config = config_of(
        tmp_path,
        root=tmp_path / "root",
        aliases=(("/more/", tmp_path / "more"),),
        check="never",
        policy=Policy(closed=("/drafts/",)),
    )

    async with open_source(config, SystemClock()) as fetcher:
        bodies = [(await fetcher.fetch(Request(url=SITE + path))).body for path in ("/", "/more/a.txt")]
        with pytest.raises(FetchError, match="refused"):
            await fetcher.fetch(Request(url=f"{SITE}/drafts/x"))

    assert bodies == [b"start", b"more"]


LINKS = {  # and where they lead
    "public/x.html": "../private/secret.html",
    "public/hidden.html": "../.git/config.html",
    "public/key.html": "../id_rsa",
    "public/copy.html": "../page.html~",
    "public/source.html": "../app.php",
    "public/chain.html": "x.html",
    "open": "private",
    "indexed/index.html": "../private/secret.html",
    "app2.php": "page.html",
}


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A root with links to what is closed, withheld or in another folder of the site."""
    root = tmp_path / "root"
    for name in ("private/secret.html", ".git/config.html", "id_rsa", "page.html~", "app.php", "page.html"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("page" if name == "page.html" else "secret")
    for name, target in LINKS.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(target)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x.html").symlink_to(root / "private" / "secret.html")
    return root


LINKED = (
    "/public/x.html", "/public/chain.html", "/open/secret.html", "/open/", "/open", "/files/x.html",
    "/indexed/",
)  # fmt: skip
ODDLY_SPELT = (
    "/open%2Fsecret.html",
    "/page/%2e%2e/open/secret.html",
    "/./open/secret.html",
    "/%6fpen//secret.html",
)
WITHHELD = (
    "/public/hidden.html",
    "/public/key.html",
    "/public/copy.html",
    "/public/source.html",
    "/app2.php",
)


async def ask(fetcher: Fetcher, path: str) -> str:
    try:
        answer = await fetcher.fetch(Request(url=SITE + path, address="127.0.0.1"))
    except FetchError as error:
        return error.kind
    return f"{answer.status} {answer.body.decode()}".rstrip()


async def test_link_to_a_closed_folder_is_closed_where_files_stand_alone(
    tmp_path: Path, linked: Path
) -> None:
    config = config_of(
        tmp_path,
        root=linked,
        check="never",
        aliases=(("/files", tmp_path / "files"),),
        policy=Policy(closed=("/private/",)),
    )

    async with open_source(config, SystemClock()) as fetcher:
        assert {path: await ask(fetcher, path) for path in LINKED} == dict.fromkeys(LINKED, "refused")
        assert {path: await ask(fetcher, path) for path in WITHHELD} == dict.fromkeys(WITHHELD, "404")
        assert await ask(fetcher, "/page.html") == "200 page"


async def test_link_to_what_is_closed_to_one_visit_is_closed_to_it(tmp_path: Path, linked: Path) -> None:
    """Also if it was closed after the host had started."""
    config = config_of(tmp_path, root=linked, check="never", aliases=(("/files", tmp_path / "files"),))
    closed = [""]

    async with open_source(config, SystemClock()) as source:
        visiting = ShieldedFetcher(source, lambda: tuple(filter(None, closed)))
        before = await ask(visiting, "/public/x.html")
        closed.append("/private/")
        after = {path: await ask(visiting, path) for path in LINKED}
        others = await ask(ShieldedFetcher(source, tuple), "/public/x.html")

    assert (before, others) == ("200 secret", "200 secret")
    assert after == dict.fromkeys(LINKED, "refused")


@pytest.mark.servers
@pytest.mark.parametrize("check", ["every", "folder"])
async def test_link_to_a_closed_folder_is_closed_although_the_server_shows_it(
    tmp_path: Path, linked: Path, check: str
) -> None:
    folders = {"/": linked, "/files": tmp_path / "files"}
    (linked / "private" / "index.html").write_text("secret")
    with serve(folders, folder=tmp_path / "nginx") as server:
        config = config_of(
            tmp_path,
            site=server.url,
            root=linked,
            check=check,
            aliases=(("/files", tmp_path / "files"),),
            policy=Policy(closed=("/private/",)),
        )
        async with open_source(config, SystemClock()) as fetcher:
            found = dict[str, str | int]()
            for path in (*LINKED, *ODDLY_SPELT, "/page.html"):
                try:
                    request = Request(url=server.url + path, address="127.0.0.1")
                    found[path] = (await fetcher.fetch(request)).status
                except FetchError as error:
                    found[path] = error.kind
        log = server.log_path.read_text()

    assert found == dict.fromkeys((*LINKED, *ODDLY_SPELT), "refused") | {"/page.html": 200}
    assert "open" not in log  # nobody asked
    assert "/public" not in log


async def test_folder_is_open_although_the_name_of_its_index_is_closed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("start")
    config = config_of(tmp_path, root=tmp_path, check="never", policy=Policy(closed=("/index",)))

    async with open_source(config, SystemClock()) as fetcher:
        assert await ask(fetcher, "/") == "200 start"
        assert await ask(fetcher, "/index.html") == "refused"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"check": "never", "kinds": ("js on",)}, r"kind 'js on' is invalid: write it as json"),
        ({"check": "never", "kinds": ("",)}, "kind '' is invalid"),
        ({"check": "never", "kinds": ("PHP",)}, "kind 'PHP' cannot be shown"),
        ({"check": "never", "kinds": ("tar.bak",)}, "cannot be shown"),
        ({"check": "every", "kinds": ("json",)}, "kinds need --check never"),
        ({"kinds": ("json",)}, "kinds need --check never"),
    ],
)
def test_kind_that_cannot_be_says_so(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_source(config_of(tmp_path, root=tmp_path, **fields))


async def test_kinds_of_the_owner_are_shown_too(tmp_path: Path) -> None:
    names = ("data.json", "data.csv", "all.tar.gz", "page.html")
    for name in names:
        (tmp_path / name).write_text(name)
    config = config_of(tmp_path, root=tmp_path, check="never", kinds=("json", ".TAR.gz"))

    async with open_source(config, SystemClock()) as fetcher:
        found = [
            await ask(fetcher, f"/{name}") for name in ("data.json", "data.csv", "all.tar.gz", "page.html")
        ]

    assert found == ["200 data.json", "404", "200 all.tar.gz", "200 page.html"]


@pytest.mark.servers
async def test_files_alone_beside_a_server_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(tmp_path, folder=tmp_path / "nginx") as server:
        config = config_of(tmp_path, root=tmp_path, check="never", upstream=server.url)
        async with open_source(config, SystemClock()):
            pass

    assert "its rules do not apply" in caplog.text


@pytest.mark.servers
@pytest.mark.parametrize("path", ["/robots.txt", "/page.html"])
async def test_redirect_leads_nowhere_else(tmp_path: Path, path: str) -> None:
    """Neither to the address of another server on this machine nor to a name that means it."""
    for name in ("site", "inner"):
        (tmp_path / name).mkdir()
    with serve(tmp_path / "inner", folder=tmp_path / "nginx-inner") as inner:
        port = inner.url.rpartition(":")[2]
        for target in (inner.url, f"http://localhost:{port}", f"http://www.example.org:{port}"):
            extra = f"location = {path} {{ return 302 {target}/robots.txt; }}"
            with serve(tmp_path / "site", folder=tmp_path / "nginx", extra=extra) as server:
                parcels = await visit(config_of(tmp_path, site="http://www.example.org", upstream=server.url))
            assert parcels[-1].ended is (Ended.DISQUALIFIED if path == "/robots.txt" else Ended.FINISHED)
        log = inner.log_path.read_text()

    assert log == ""


async def visit(config: HostConfig) -> list[Parcel]:
    parcels: list[Parcel] = []

    async def deliver(parcel: Parcel) -> None:
        parcels.append(parcel)

    clock = SystemClock()
    runtime_config = RuntimeConfig(limits=NO_LIMITS, readers=1)
    async with (
        open_source(config, clock) as fetcher,
        open_runtime(runtime_config, clock, fetcher=fetcher, resolver=resolver_of(config)) as runtime,
    ):
        made = making.visit(
            Target(f"{config.site}/page.html"),
            site=config.site,
            etiquette=Etiquette(delay_seconds=0.0, response_factor=0.0),
            may_be_private=True,
        )
        await runtime.carry_out(made, deliver=deliver, stop=asyncio.Event())
    return parcels
