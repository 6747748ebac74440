import gzip
import http.client
import os
import re
import socket
import ssl
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import brotli
import pycurl
import pytest
import zstandard
from tests.servers import bombs, hostile
from tests.servers.hostile import GREETING, PAGES, STREAMS, HostileServer
from tests.servers.nginx import real_site, serve
from tests.servers.synthetic import SyntheticServer, SyntheticWeb

pytestmark = pytest.mark.servers


def get(url: str, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    try:
        target = url.partition(parts.netloc)[2]
        connection.request("GET", target, headers={name.replace("_", "-"): v for name, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def raw(server: HostileServer, target: str, *, limit: int = 1 << 22, timeout: float = 20) -> bytes:
    """The bytes that come until the server ends, `limit` is reached or nothing comes any more."""
    received = bytearray()
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        try:
            while len(received) < limit and (part := client.recv(1 << 16)):
                received += part
        except TimeoutError:
            pass
    return bytes(received)


def hrefs(body: bytes) -> list[str]:
    return re.findall(r'href="([^"]*)"', body.decode())


# Hostile


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer().run_in_thread() as running:
        yield running


def test_every_route_is_described_in_one_line() -> None:
    routes = {**PAGES, **STREAMS}
    assert all(re.fullmatch(r"/.*[^\n]: .+\.", route.__doc__ or "") for route in routes.values())


async def test_server_runs_on_the_loop_of_a_test() -> None:
    async with HostileServer() as running:
        assert running.port > 0


def test_log_tells_path_headers_address_and_time() -> None:
    with HostileServer(addresses=("127.0.0.1", "127.0.0.2")).run_in_thread() as running:
        before = time.monotonic()
        get(f"http://127.0.0.2:{running.port}/leaf/1?a=b", User_Agent="Me")
        (hit,) = running.log
    assert (hit.path, hit.headers["user-agent"], hit.address) == ("/leaf/1?a=b", "Me", "127.0.0.2")
    assert before <= hit.time <= time.monotonic()


def test_connection_is_kept_for_the_next_request(server: HostileServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.connect()
    assert connection.sock is not None
    name = connection.sock.getsockname()
    for target in ("/leaf/1", "/status/500", "/leaf/2"):
        connection.request("GET", target)
        connection.getresponse().read()
        assert connection.sock is not None
        assert connection.sock.getsockname() == name
    connection.close()


def test_robots_txt_is_what_the_test_says(server: HostileServer) -> None:
    assert get(f"{server.url}/robots.txt")[0] == 404
    server.robots = (503, {"Retry-After": "7"}, b"Disallow: /")
    status, headers, body = get(f"{server.url}/robots.txt")
    assert (status, headers["Retry-After"], body) == (503, "7", b"Disallow: /")


def test_robots_txt_can_be_truncated(server: HostileServer) -> None:
    server.robots = (200, {"Content-Length": "100"}, b"Disallow: /")
    with pytest.raises(http.client.IncompleteRead):
        get(f"{server.url}/robots.txt")


def test_index_links_to_what_the_test_says(server: HostileServer) -> None:
    server.links = ["/leaf/1", "http://a.test/?b=c&d"]
    assert hrefs(get(f"{server.url}/index")[2]) == ["/leaf/1", "http://a.test/?b=c&amp;d"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/loop/a", "/loop/b"),
        ("/loop/b", "/loop/a"),
        ("/chain/41", "/chain/42"),
        ("/redirect?to=http://a.test/%3Fb", "http://a.test/?b"),
    ],
)
def test_redirects_lead_where_they_say(server: HostileServer, target: str, expected: str) -> None:
    status, headers, _ = get(server.url + target)
    assert (status, headers["Location"]) == (302, expected)


def test_slow_says_nothing_for_a_while(server: HostileServer) -> None:
    assert raw(server, "/slow?seconds=5", timeout=0.2) == b""
    assert b"Leaf" in raw(server, "/slow?seconds=0.01")


def test_drip_sends_a_byte_at_a_time(server: HostileServer) -> None:
    assert raw(server, "/drip", timeout=0.3).endswith(b"\r\n1\r\nx\r\n")
    server.drip_seconds = 0.01
    assert len(raw(server, "/drip", limit=300)) >= 300


def test_endless_sends_as_much_as_is_taken(server: HostileServer) -> None:
    assert len(raw(server, "/endless", limit=1 << 24)) >= 1 << 24


def test_big_is_as_big_as_asked(server: HostileServer) -> None:
    _, headers, body = get(f"{server.url}/big?mb=3")
    assert headers["Content-Length"] == str(len(body)) == str(3 << 20)


def unpack(encoding: str, body: bytes) -> Iterator[bytes]:
    """A few megabytes at a time, as the bombs must never be unpacked at once."""
    if encoding == "gzip":
        with gzip.open(BytesIO(body)) as opened:
            yield from iter(lambda: opened.read(1 << 22), b"")
    elif encoding == "br":
        decompressor = brotli.Decompressor()
        yield decompressor.process(body, output_buffer_limit=1 << 22)
        while not decompressor.is_finished():
            yield decompressor.process(b"", output_buffer_limit=1 << 22)
    else:
        yield from zstandard.ZstdDecompressor().read_to_iter(body)


@pytest.mark.parametrize("name", ["gz", "br", "zst"])
def test_bomb_is_small_and_holds_a_quarter_of_a_gigabyte(server: HostileServer, name: str) -> None:
    _, headers, body = get(f"{server.url}/bomb.{name}")
    assert len(body) < 500_000
    assert sum(map(len, unpack(headers["Content-Encoding"], body))) == bombs.SIZE


def test_gzip_bomb_is_one_member(server: HostileServer) -> None:
    # A client that reads one member only must meet all of it.
    decompressor = zlib.decompressobj(wbits=31)
    size, rest = 0, bombs.gzip_bomb()
    while rest:
        size += len(decompressor.decompress(rest, 1 << 24))
        rest = decompressor.unconsumed_tail
    assert decompressor.eof
    assert size == bombs.SIZE


def test_nested_gzip_is_gzip_twice(server: HostileServer) -> None:
    _, headers, body = get(f"{server.url}/nested-gzip")
    assert headers["Content-Encoding"] == "gzip, gzip"
    assert b"Leaf" in gzip.decompress(gzip.decompress(body))


def test_cut_ends_too_early(server: HostileServer) -> None:
    with pytest.raises(http.client.IncompleteRead):
        get(f"{server.url}/cut")


def test_garbage_is_not_http(server: HostileServer) -> None:
    with pytest.raises(http.client.BadStatusLine):
        get(f"{server.url}/garbage")


def test_reset_resets(server: HostileServer) -> None:
    with pytest.raises(ConnectionResetError):
        raw(server, "/reset")


def test_empty_sends_nothing(server: HostileServer) -> None:
    assert raw(server, "/empty") == b""


def test_badheaders_are_a_megabyte(server: HostileServer) -> None:
    assert raw(server, "/badheaders", timeout=0.5).index(b"\r\n\r\n") > 1 << 20


def test_lies_are_lies(server: HostileServer) -> None:
    _, headers, body = get(f"{server.url}/lie-gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert not body.startswith(b"\x1f\x8b")
    _, headers, body = get(f"{server.url}/lie-type")
    assert headers["Content-Type"].startswith("text/html")
    assert body.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/calendar/2024/12", ["/calendar/2024/11", "/calendar/2025/01"]),
        ("/calendar/2024/01", ["/calendar/2023/12", "/calendar/2024/02"]),
        ("/trap/a/a", ["/trap/a/a/a"]),
        ("/manylinks?n=2", ["/leaf/0", "/leaf/1"]),
    ],
)
def test_pages_link_where_they_say(server: HostileServer, target: str, expected: list[str]) -> None:
    assert hrefs(get(server.url + target)[2]) == expected


def test_longlinks_are_long(server: HostileServer) -> None:
    assert [len(link) > 100_000 for link in hrefs(get(f"{server.url}/longlinks")[2])] == [True] * 3 + [False]


def test_deep_is_deep(server: HostileServer) -> None:
    assert get(f"{server.url}/deep")[2].count(b"<div>") == 100_000


def test_session_never_repeats_itself(server: HostileServer) -> None:
    links = [link for _ in range(3) for link in hrefs(get(f"{server.url}/session?sid=1")[2])]
    assert len(set(links)) == 6


@pytest.mark.parametrize("status", [201, 404, 418, 599, 999])
def test_status_is_the_one_asked_for(server: HostileServer, status: int) -> None:
    assert get(f"{server.url}/status/{status}")[0] == status


def test_429_tells_when_to_come_again(server: HostileServer) -> None:
    assert get(f"{server.url}/429?after=120")[1]["Retry-After"] == "120"
    assert "Retry-After" not in get(f"{server.url}/429")[1]


def test_429_then_ok_relents_for_each_path_by_itself(server: HostileServer) -> None:
    targets = ["/429-then-ok/a"] * 3 + ["/429-then-ok/b"]
    assert [get(server.url + target)[0] for target in targets] == [429, 429, 200, 429]


def test_503_date_is_a_date_to_come(server: HostileServer) -> None:
    status, headers, _ = get(f"{server.url}/503-date?seconds=60")
    assert status == 503
    assert 50 < parsedate_to_datetime(headers["Retry-After"]).timestamp() - time.time() < 62


def test_etag_answers_304_until_the_content_changes(server: HostileServer) -> None:
    url = f"{server.url}/etag"
    _, first, _ = get(url)
    assert get(url, If_None_Match=first["ETag"])[0] == 304
    assert get(url, If_Modified_Since=first["Last-Modified"])[0] == 304
    assert get(url, If_None_Match='"x"', If_Modified_Since=first["Last-Modified"])[0] == 200
    server.content = b"<title>Second</title>"
    status, _, body = get(url, If_None_Match=first["ETag"])
    assert (status, body) == (200, server.content)


@pytest.mark.parametrize("name", ["utf-8", "utf-16", "windows-1251", "shift_jis", "iso-8859-1"])
def test_charset_is_what_the_header_says(server: HostileServer, name: str) -> None:
    _, headers, body = get(f"{server.url}/charset/{name}")
    assert headers.get_content_charset() == name
    assert GREETING[:1] in body.decode(name) or "&#" in body.decode(name)


def test_cookie_is_set_and_shown(server: HostileServer) -> None:
    assert "crumb=1" in get(f"{server.url}/cookie-set")[1]["Set-Cookie"]
    assert b"crumb=2" in get(f"{server.url}/cookie-set", Cookie="crumb=2")[2]


def test_unknown_route_is_not_found(server: HostileServer) -> None:
    assert get(f"{server.url}/nothing-here")[0] == 404


def test_server_serves_another_process(server: HostileServer) -> None:
    program = f"import urllib.request as u; print(u.urlopen('{server.url}/leaf/1').read().decode())"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert hostile._LEAF.decode() in output.stdout


def test_server_ends_in_the_middle_of_an_endless_answer() -> None:
    with HostileServer().run_in_thread() as running:
        client = socket.create_connection(("127.0.0.1", running.port), timeout=20)
        client.sendall(b"GET /endless HTTP/1.1\r\n\r\n")
        assert client.recv(100)
    client.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", running.port), timeout=20)


# Synthetic


def crawl(server: SyntheticServer, site: int, *, host: str = "") -> set[str]:
    """Follow the links within one site, from its page 0."""
    start = server.url(site)
    connection = http.client.HTTPConnection(host or server.web.host(site), server.port, timeout=20)
    found, waiting = {start}, ["/"]
    while waiting:
        connection.request("GET", waiting.pop(), headers={"Host": urlsplit(start).netloc})
        for link in hrefs(connection.getresponse().read()):
            url = start.rstrip("/") + link
            if link.startswith("/") and url not in found:
                found.add(url)
                waiting.append(link)
    connection.close()
    return found


@pytest.mark.parametrize("has_names", [False, True])
def test_every_page_of_a_site_is_reached_from_its_first(has_names: bool) -> None:
    web = SyntheticWeb(sites=3, pages_per_site=50, has_names=has_names)
    with SyntheticServer(web).run_in_thread() as running:
        for site in range(3):
            host = "127.0.0.1" if has_names else ""
            assert crawl(running, site, host=host) == running.expected_urls(site)
        assert len(running.log) == 150


def test_same_seed_makes_the_same_web_and_another_makes_another() -> None:
    first, second, other = (SyntheticWeb(sites=5, pages_per_site=9, seed=seed) for seed in (1, 1, 2))
    assert first.page(3, 4, port=80) == second.page(3, 4, port=80)
    assert first.page(3, 4, port=80) != other.page(3, 4, port=80)


@pytest.mark.parametrize("has_names", [False, True])
def test_host_and_site_name_each_other(has_names: bool) -> None:
    web = SyntheticWeb(sites=1_000, pages_per_site=1, has_names=has_names)
    hosts = [web.host(site) for site in range(1_000)]
    assert len(set(hosts)) == 1_000
    assert [web.site(host) for host in hosts] == list(range(1_000))


def test_statistics_are_those_stated() -> None:
    web = SyntheticWeb(sites=40, pages_per_site=100, mean_degree=6, external_share=0.25, bytes_per_page=9_000)
    links = [
        (site, target) for site in range(40) for page in range(100) for target, _ in web.links(site, page)
    ]
    external = sum(site != target for site, target in links)
    assert len(links) / 4_000 == pytest.approx(6, rel=0.05)
    assert external / len(links) == pytest.approx(0.25, rel=0.05)
    assert len(web.page(1, 1, port=80)) == 9_000


def test_site_sizes_can_follow_a_power_law() -> None:
    web = SyntheticWeb(sites=2_000, pages_per_site=100, size_exponent=2.5)
    sizes = sorted(web.size(site) for site in range(2_000))
    assert sum(sizes) / 2_000 == pytest.approx(100, rel=0.2)
    assert sizes[1_000] < 70
    assert sizes[-1] > 1_000
    # A Pareto tail: ten times the size is 10 ** 1.5 times as rare.
    over = [sum(size >= limit for size in sizes) for limit in (40, 400)]
    assert over[0] / over[1] == pytest.approx(10**1.5, rel=0.3)


@pytest.mark.parametrize("target", ["/robots.txt", "/5.html", "/0.html", "/x", "/-1.html", "/1"])
def test_what_is_no_page_is_not_found(target: str) -> None:
    with SyntheticServer(SyntheticWeb(sites=1, pages_per_site=5)).run_in_thread() as running:
        assert get(running.url(0).rstrip("/") + target)[0] == 404


def test_log_tells_how_many_connections_a_site_had() -> None:
    web = SyntheticWeb(sites=2, pages_per_site=5)
    with SyntheticServer(web, latency_seconds=0.3).run_in_thread() as running:
        clients = [http.client.HTTPConnection(web.host(site), running.port, timeout=20) for site in (0, 0, 1)]
        for client in clients:
            client.request("GET", "/")
        for client in clients:
            client.getresponse().read()
            client.close()
        deadline = time.monotonic() + 20
        while not running.log[3:] or running.log[-1].connections > 1:  # until the server saw them leave
            assert time.monotonic() < deadline
            get(running.url(0))
    counts = sorted((hit.site, hit.connections, hit.under_way) for hit in running.log[:3])
    assert counts == [(0, 1, 1), (0, 2, 2), (1, 1, 1)]
    assert running.log[0].time <= running.log[-1].time
    assert running.log[-1].under_way == 1


# nginx

needs_nginx = pytest.mark.servers


@needs_nginx
@pytest.mark.parametrize(
    ("name", "start", "pages"),
    [
        ("sqlite3-doc", "/index.html", 700),
        ("apache2-doc", "/en/index.html", 2_500),
        ("debian-handbook", "/en-US/index.html", 3_000),
    ],
)
def test_real_site_is_served(tmp_path: Path, name: str, start: str, pages: int) -> None:
    root = real_site(name)
    assert sum(1 for _ in root.rglob("*.html")) >= pages
    with serve(root, folder=tmp_path) as nginx:
        status, headers, body = get(nginx.url + start)
    assert status == 200
    assert headers["Content-Type"] == "text/html"
    assert b"<a " in body


def test_missing_site_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.servers.nginx._SITES", {"sqlite3-doc": tmp_path / "nothing"})
    with pytest.raises(FileNotFoundError, match="apt-get install sqlite3-doc"):
        real_site("sqlite3-doc")


@needs_nginx
def test_nginx_serves_paths_and_names_logs_and_ends(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(f"<title>{name}</title>" + " " * 2_000)
    roots = {"/": tmp_path / "a", "/b/": tmp_path / "b", "c.test": tmp_path / "c"}
    with serve(roots, folder=tmp_path / "run", extra="location /gone { return 410; }") as nginx:
        os.kill(nginx.pid, 0)
        assert b"<title>a<" in get(f"{nginx.url}/")[2]
        assert b"<title>b<" in get(f"{nginx.url}/b/")[2]
        assert b"<title>c<" in get(f"{nginx.url}/", Host="c.test")[2]
        assert get(f"{nginx.url}/gone")[0] == 410
        _, headers, body = get(f"{nginx.url}/", Accept_Encoding="gzip")
        assert headers["Content-Encoding"] == "gzip"
        assert b"<title>a<" in gzip.decompress(body)
    lines = nginx.log_path.read_text().splitlines()
    assert len(lines) == 5
    assert re.fullmatch(r'\d+\.\d{3} 127\.0\.0\.1 "GET /gone HTTP/1\.1" 410 \d+', lines[3])
    with pytest.raises(ProcessLookupError):
        os.kill(nginx.pid, 0)


@needs_nginx
def test_nginx_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"unknown directive .nonsense."),
        serve(tmp_path, folder=tmp_path, extra="nonsense;"),
    ):
        pass


@needs_nginx
def test_nginx_speaks_http_2_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>safe</title>")
    with serve(tmp_path, folder=tmp_path / "run", http2_tls=True) as nginx:
        curl = pycurl.Curl()
        curl.setopt(pycurl.URL, f"{nginx.tls_url}/index.html")
        curl.setopt(pycurl.CAINFO, str(nginx.ca_path))
        curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        curl.setopt(pycurl.TIMEOUT, 20)
        body = BytesIO()
        curl.setopt(pycurl.WRITEDATA, body)
        curl.perform()
        version = curl.getinfo(pycurl.INFO_HTTP_VERSION)
        curl.close()
        with (
            socket.create_connection(("127.0.0.1", urlsplit(nginx.tls_url).port or 0)) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")
    assert body.getvalue() == b"<title>safe</title>"
    assert version == pycurl.CURL_HTTP_VERSION_2_0
