"""The site's web server is asked at its own address alone, in the site's name and as by an outsider."""

import asyncio
import socket
from pathlib import Path

import pytest
from tests.servers.nginx import serve

from sterna.errors import ConfigError
from sterna.host.site.upstream import OUTSIDER, Upstream, UpstreamFetcher
from sterna.web.curl import CurlConfig, CurlFetcher
from sterna.web.http import Request, Response

HTTPS = "https://www.example.org"


class Recorder:
    """Takes requests, and gives one answer."""

    def __init__(self, answer: Response | None = None) -> None:
        self.requests: list[Request] = []
        self._answer = answer or answering(200)

    async def fetch(self, request: Request) -> Response:
        self.requests.append(request)
        return self._answer


def answering(status: int, location: str = "") -> Response:
    fields = (("location", location),) if location else ()
    head = f"HTTP/1.1 {status} Fake\r\nLocation: {location}\r\n\r\n".encode()
    return Response(status=status, head=head, body=b"", headers=fields, seconds=0.0, wire_bytes=0)


def ask(
    site: str, upstream: str, request: Request, answer: Response | None = None
) -> tuple[Request, Response]:
    recorder = Recorder(answer)
    fetcher = UpstreamFetcher(recorder, site=site, upstream=Upstream.of(site, upstream))
    response = asyncio.run(fetcher.fetch(request))
    return recorder.requests[0], response


@pytest.mark.parametrize(
    ("site", "written", "upstream"),
    [
        (HTTPS, "", Upstream("https", "127.0.0.1", 443)),
        ("http://a.test:8080", "", Upstream("http", "127.0.0.1", 8080)),
        ("http://10.1.2.3", "", Upstream("http", "10.1.2.3", 80)),
        ("http://[::1]:8080", "", Upstream("http", "::1", 8080)),
        (HTTPS, "http://127.0.0.1:8080", Upstream("http", "127.0.0.1", 8080)),
        (HTTPS, "http://localhost:8080/", Upstream("http", "127.0.0.1", 8080)),
        (HTTPS, "https://[::1]:8443", Upstream("https", "::1", 8443)),
        (HTTPS, "http://10.0.0.5", Upstream("http", "10.0.0.5", 80)),
    ],
)
def test_upstream_is_the_site_here_or_what_was_named(site: str, written: str, upstream: Upstream) -> None:
    assert Upstream.of(site, written) == upstream


@pytest.mark.parametrize(
    "written",
    [
        "http://backend:8080", "http://127.1:8080", "http://0x7f000001", "ftp://127.0.0.1", "127.0.0.1:8080",
        "http://127.0.0.1:8080/app", "http://a@127.0.0.1:8080", "http://127.0.0.1:99999", "http://[::1", "http://",
        "http://127.0.0.1:0", "http://127.0.0.1?x",
    ],
)  # fmt: skip
def test_upstream_that_cannot_be_says_so(written: str) -> None:
    with pytest.raises(ConfigError, match=r"upstream .*(no IP address|not an origin|invalid)"):
        Upstream.of(HTTPS, written)


def test_request_goes_to_the_upstream_in_the_name_of_the_site() -> None:
    request = Request(
        url=f"{HTTPS}/a?b=c",
        address="93.184.215.14",
        headers=(("User-Agent", "Sterna"), ("Accept-Encoding", "gzip"), ("Accept", "*/*")),
        max_bytes=77,
    )

    asked, _ = ask(HTTPS, "http://127.0.0.1:8080", request)

    assert (asked.url, asked.address, asked.max_bytes) == (
        "http://www.example.org:8080/a?b=c",
        "127.0.0.1",
        77,
    )
    assert asked.headers == (
        ("User-Agent", "Sterna"),
        ("Accept", "*/*"),
        ("Host", "www.example.org"),
        ("X-Forwarded-For", OUTSIDER),
        ("X-Forwarded-Proto", "https"),
    )


def test_site_that_is_asked_by_its_own_scheme_is_told_no_other() -> None:
    asked, _ = ask("http://a.test:81", "", Request(url="http://a.test:81/"))

    assert asked.url == "http://a.test:81/"
    assert dict(asked.headers)["Host"] == "a.test:81"
    assert "X-Forwarded-Proto" not in dict(asked.headers)


@pytest.mark.parametrize(
    ("location", "becomes"),
    [
        ("http://www.example.org:8080/docs/", f"{HTTPS}/docs/"),
        ("http://127.0.0.1:8080/docs/?a=b", f"{HTTPS}/docs/?a=b"),
        ("http://localhost:8080", HTTPS),
        ("http://localhost:80801/", "http://localhost:80801/"),
        ("http://www.example.org/docs/", "http://www.example.org/docs/"),
        ("https://other.test/", "https://other.test/"),
        ("/docs/", "/docs/"),
    ],
)
def test_redirect_to_the_upstream_itself_means_the_site(location: str, becomes: str) -> None:
    request = Request(url=f"{HTTPS}/docs")

    _, response = ask(HTTPS, "http://127.0.0.1:8080", request, answering(301, location))

    assert response.location() == becomes
    assert f"Location: {becomes}\r\n".encode() in response.head


async def test_server_that_is_not_there_is_told_from_one_that_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert await Upstream("http", "127.0.0.1", port).is_there()
    assert not await Upstream("http", "127.0.0.1", port).is_there()


@pytest.mark.servers
async def test_tls_goes_by_the_name_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<p>over TLS")
    extra = 'location = /who { return 200 "$ssl_server_name $http_host $http_x_forwarded_proto"; }'
    with serve(tmp_path / "site", folder=tmp_path / "nginx", http2_tls=True, extra=extra) as server:
        curl = CurlFetcher(CurlConfig(ca_file=str(server.ca_path)))
        try:
            upstream = Upstream.of("https://localhost", server.tls_url)
            fetcher = UpstreamFetcher(curl, site="https://localhost", upstream=upstream)
            page = await fetcher.fetch(Request(url="https://localhost/"))
            who = await fetcher.fetch(Request(url="https://localhost/who"))
        finally:
            await curl.close()

    assert page.body == b"<p>over TLS"
    assert who.body == b"localhost localhost "


@pytest.mark.servers
async def test_folder_redirect_of_a_real_server_leads_to_the_site(tmp_path: Path) -> None:
    (tmp_path / "site" / "docs").mkdir(parents=True)
    with serve(tmp_path / "site", folder=tmp_path / "nginx") as server:
        curl = CurlFetcher(CurlConfig())
        try:
            fetcher = UpstreamFetcher(curl, site=HTTPS, upstream=Upstream.of(HTTPS, server.url))
            response = await fetcher.fetch(Request(url=f"{HTTPS}/docs"))
        finally:
            await curl.close()

    assert (response.status, response.location()) == (301, f"{HTTPS}/docs/")
