"""Access logs: those that real web servers write, and lines of whatever bytes a stranger makes them write."""

import gzip
import random
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from tests.servers import apache, nginx

from sterna.errors import UsageError
from sterna.host.owner.access_log import MAX_LINE_BYTES, Hit, LogCount, parse, read_logs

COMMON = b'203.0.113.7 - - [16/Nov/2026:10:00:01 +0100] "GET /a HTTP/1.1" 200 1234'
COMBINED = COMMON + b' "https://www.example.org/" "Tern/1 (+mailto:ada@home.test)"'
TIME = 1_794_819_601.0  # 2026-11-16 09:00:01 UTC
NOW = TIME + 3600


def read(*paths: Path, now: float | None = None) -> tuple[list[Hit], LogCount]:
    hits: list[Hit] = []
    count = read_logs(list(paths), hits.append, now=now or time.time())
    return hits, count


# -- what servers write ------------------------------------------------------------------------------------


def test_common_and_combined_lines_are_read() -> None:
    assert parse(COMMON) == Hit("203.0.113.7", TIME, 200, 1234, None)
    agent = "Tern/1 (+mailto:ada@home.test)"
    assert parse(COMBINED) == Hit("203.0.113.7", TIME, 200, 1234, agent)
    assert parse(COMBINED + b"\r\n") == parse(COMBINED + b"\n") == parse(COMBINED)
    assert parse(COMBINED + b' "10.0.0.1" 0.003\n') == parse(COMBINED)  # as many add to it


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (COMMON.replace(b" 1234", b" -"), Hit("203.0.113.7", TIME, 200, 0, None)),
        (COMMON.replace(b"- -", b"- john smith"), Hit("203.0.113.7", TIME, 200, 1234, None)),
        (b"www.example.org:80 " + COMMON, Hit("203.0.113.7", TIME, 200, 1234, None)),
        (COMMON.replace(b"203.0.113.7", b"2001:db8::1"), Hit("2001:db8::1", TIME, 200, 1234, None)),
        (COMMON.replace(b"203.0.113.7", b"a.example.org"), Hit("a.example.org", TIME, 200, 1234, None)),
        (COMMON.replace(b"203.0.113.7", b"unix:"), Hit("unix:", TIME, 200, 1234, None)),
        (COMMON.replace(b"+0100", b"-0530"), Hit("203.0.113.7", TIME + 6.5 * 3600, 200, 1234, None)),
        (COMMON.replace(b'"GET /a HTTP/1.1"', b'""'), Hit("203.0.113.7", TIME, 200, 1234, None)),
        (
            COMMON.replace(b"/a HTTP", rb"/\"] \\ \x22 HTTP") + rb' "-" "say \"tern\""',
            Hit("203.0.113.7", TIME, 200, 1234, r"say \"tern\""),
        ),
        (COMMON + b' "-" "\xff\xfe"', Hit("203.0.113.7", TIME, 200, 1234, "\xff\xfe")),
    ],
)
def test_spellings_that_servers_have_are_read(line: bytes, expected: Hit) -> None:
    assert parse(line) == expected


@pytest.mark.parametrize(
    ("date", "is_one"),
    [
        (b"29/Feb/2024", True),
        (b"29/Feb/2026", False),
        (b"31/Dec/2025", True),
        (b"31/Apr/2026", False),
        (b"00/Jan/2026", False),
        (b"32/Jan/2026", False),
        (b"16/Nix/2026", False),
        (b"16/Nov/0000", False),
        (b"16/Nov/1969", False),
        (b"31/Dec/9998", True),
        (b"31/Dec/9999", False),
    ],
)
def test_only_days_that_there_are_count(date: bytes, is_one: bool) -> None:
    assert (parse(COMMON.replace(b"16/Nov/2026", date)) is not None) is is_one


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"\0" * 1000,
        b"\xff" * 1000,
        b"GET / HTTP/1.1",
        b'{"json": "log"}',
        COMMON[:60],
        COMMON.replace(b"10:00:01", b"24:00:01"),
        COMMON.replace(b"10:00:01", b"10:60:01"),
        COMMON.replace(b"10:00:01", b"10:00:61"),
        COMMON.replace(b"+0100", b"+9900"),
        COMMON.replace(b"+0100", b"0100"),
        COMMON.replace(b" 200 ", b" 2000 "),
        COMMON.replace(b" 200 ", b" OK "),
        COMMON.replace(b"1234", b"9" * 19),
        COMMON.replace(b"1234", b"9" * 5_000),
        COMMON.replace(b"1234", b"-5"),
        COMMON.replace(b"16/", "१६/".encode()),
        COMMON.replace(b'HTTP/1.1"', b"HTTP/1.1"),
        COMMON.replace(b"203.0.113.7 - - ", b""),
        COMMON.replace(b"203.0.113.7 - -", b"-"),
        COMMON + b"x" * (MAX_LINE_BYTES + 1),
    ],
)
def test_line_that_is_none_is_passed_over(line: bytes) -> None:
    assert parse(line) is None


def test_any_bytes_are_read_in_time() -> None:
    chance = random.Random(7)
    began = time.monotonic()
    for _ in range(3_000):
        line = bytearray(chance.choice((COMMON, COMBINED)))
        for _ in range(chance.choice((1, 3, 20))):
            at = chance.randrange(len(line))
            line[at : at + chance.choice((0, 1, 5))] = chance.choice(
                (b'"', b"\\", b" [", b"] ", b"\0", b"9" * 30, chance.randbytes(3), b'\\"' * 50)
            )
        parse(bytes(line))
    for evil in (b'\\"', b'"', b"\\", b" [", b"] ", b' "'):
        parse(COMMON[:60] + evil * (MAX_LINE_BYTES // len(evil) - 100))
        parse(COMMON + b" " + evil * (MAX_LINE_BYTES // len(evil) - 100))
    assert time.monotonic() - began < 10


# -- files -------------------------------------------------------------------------------------------------


def test_plain_and_gzipped_logs_are_read_one_after_the_other(tmp_path: Path) -> None:
    old, new = tmp_path / "access.log.2.gz", tmp_path / "access.log"
    old.write_bytes(gzip.compress((COMBINED + b"\n") * 3))
    new.write_bytes((COMMON + b"\n") * 2 + b"rubbish\n\n" + COMMON)  # the last one has no end yet
    hits, count = read(old, new, now=NOW)
    assert [hit.agent is None for hit in hits] == [False] * 3 + [True] * 3
    assert count == LogCount(8, 2)


def test_gzip_is_told_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(gzip.compress(COMMON) + gzip.compress(b"\n" + COMMON))  # as rotation may join them
    assert len(read(path, now=NOW)[0]) == 2


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-20], lambda data: data[:60] + b"\xff" * 40 + data[100:]]
)
def test_damaged_gzip_counts_up_to_there(tmp_path: Path, spoil: "type[bytes]") -> None:
    chance = random.Random(1)
    lines = b"".join(COMMON.replace(b"/a", chance.randbytes(8).hex().encode()) + b"\n" for _ in range(500))
    path = tmp_path / "access.log.gz"
    path.write_bytes(spoil(gzip.compress(lines)))
    hits, count = read(path, now=NOW)
    assert len(hits) < 500
    assert len(count.broken) == 1
    assert str(path) in count.broken[0]


def test_times_that_no_log_of_this_site_has_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    dates = (b"16/Nov/2026", b"17/Nov/2026", b"19/Nov/2026", b"01/Jan/9998", b"01/Jan/1980")
    path.write_bytes(b"".join(COMMON.replace(dates[0], date) + b"\n" for date in dates))
    hits, count = read(path, now=NOW)
    assert ([hit.time for hit in hits], count.bad_lines) == ([TIME, TIME + 86_400], 3)


def test_endless_line_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(COMMON + b"\n" + b"x" * (5 * MAX_LINE_BYTES) + b"\n" + COMMON + b"\n" + b"y" * 200_000)
    hits, count = read(path, now=NOW)
    assert (len(hits), count.lines, count.bad_lines) == (2, 4, 2)


def test_log_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UsageError, match="cannot read log"):
            read(path)


# -- real servers ------------------------------------------------------------------------------------------


def ask(url: str, **headers: str) -> None:
    request = urllib.request.Request(
        url, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        answer.read()


def ask_rudely(url: str, request: bytes) -> None:
    """Whatever a stranger sends."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(request)
        while line.recv(65_536):
            pass


RUDE = (
    b'GET /"quoted"?a=] HTTP/1.1\r\nHost: x\r\nUser-Agent: "tern" \\ \xff\x01\r\nConnection: close\r\n\r\n',
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"GET /" + b"a" * 7_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
)


def wait_for_lines(path: Path, count: int) -> None:
    """Servers write a line after the answer has gone."""
    deadline = time.monotonic() + 20
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def write_page(folder: Path) -> Path:
    folder.mkdir()
    (folder / "index.html").write_text("<title>Front</title>" + "tern " * 100)
    folder.chmod(0o755)
    return folder


def test_log_of_a_real_nginx_is_read(tmp_path: Path) -> None:
    extra = (
        f"access_log {tmp_path}/combined.log combined; set_real_ip_from 127.0.0.1; real_ip_header X-Outside;"
    )
    began = time.time()
    with nginx.serve(write_page(tmp_path / "site"), folder=tmp_path / "nginx", extra=extra) as server:
        ask(f"{server.url}/", User_Agent="Tern/1 (+mailto:ada@home.test)", X_Outside="203.0.113.7")
        ask(f"{server.url}/", User_Agent="Tern/1", X_Outside="2001:db8::1", Referer="http://a.test/?q=[x]")
        for request in RUDE:
            ask_rudely(server.url, request)
        wait_for_lines(tmp_path / "combined.log", 2 + len(RUDE))
    hits, count = read(tmp_path / "combined.log")
    assert (count.bad_lines, count.lines) == (0, 2 + len(RUDE))
    assert [hit.client for hit in hits[:2]] == ["203.0.113.7", "2001:db8::1"]
    assert hits[0].agent == "Tern/1 (+mailto:ada@home.test)"
    assert [hit.status for hit in hits[:2]] == [200, 200]
    assert hits[0].size_bytes == len((tmp_path / "site" / "index.html").read_bytes())
    assert all(began - 2 <= hit.time <= time.time() for hit in hits)


def test_logs_of_a_real_apache_are_read() -> None:
    with apache.open_folder() as folder:
        extra = f"""
LogFormat "%h %l %u %t \\"%r\\" %>s %b" common
LogFormat "%h %l %u %t \\"%r\\" %>s %O \\"%{{Referer}}i\\" \\"%{{User-Agent}}i\\"" combined
LogFormat "%v:%p %h %l %u %t \\"%r\\" %>s %O \\"%{{Referer}}i\\" \\"%{{User-Agent}}i\\"" vhost_combined
CustomLog {folder}/common.log common
CustomLog {folder}/combined.log combined
CustomLog {folder}/vhosts.log vhost_combined
"""
        began = time.time()
        with apache.serve(write_page(folder / "site"), folder=folder / "apache", extra=extra) as server:
            ask(f"{server.url}/", User_Agent="Tern/1 (+mailto:ada@home.test)", X_Outside="203.0.113.7")
            wait_for_lines(folder / "vhosts.log", 1)  # its processes do not wait for each other
            for request in RUDE:
                ask_rudely(server.url, request)
            for name in ("common", "combined", "vhosts"):
                wait_for_lines(folder / f"{name}.log", 1 + len(RUDE))
        for name, has_agent in (("common", False), ("combined", True), ("vhosts", True)):
            hits, count = read(folder / f"{name}.log")
            assert (count.bad_lines, count.lines) == (0, 1 + len(RUDE)), name
            assert (hits[0].client, hits[0].status) == ("203.0.113.7", 200)
            assert hits[0].agent == ("Tern/1 (+mailto:ada@home.test)" if has_agent else None)
            assert hits[0].size_bytes >= len((folder / "site" / "index.html").read_bytes())
            assert all(began - 2 <= hit.time <= time.time() for hit in hits)
