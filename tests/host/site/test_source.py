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
from sterna.host.site.source import LoopbackResolver, SiteFetcher, open_source, resolver_of
from sterna.model import Ended, Etiquette, Parcel, Target
from sterna.runtime.access import RuntimeConfig
from sterna.runtime.runtime import open_runtime
from sterna.web.clock import SystemClock
from sterna.web.http import Request, Response
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
