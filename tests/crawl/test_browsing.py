"""Crawls of sites that expect a browser: cookies, secrets of their owner, pages that show nothing."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow.parquet import read_table
from tests.crawl.running import crawl_here, rows, sterna
from tests.odd.answers import CASES
from tests.odd.server import Answer, Asked, Case, serve

SECRETS = ("open-sesame", "jar-of-terns", "swordfish")
PASSWORD = "Basic bWU6c3dvcmRmaXNo"  # me:swordfish


def html(body: str, *lines: str, status: str = "200 OK") -> bytes:
    head = "\r\n".join((f"HTTP/1.1 {status}", "Content-Type: text/html", *lines))
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@contextmanager
def site(**answers: Answer) -> Iterator[str]:
    with serve({name: Case(name=name, answer=answer, shows="") for name, answer in answers.items()}) as url:
        yield url


@pytest.mark.parametrize("name", ["cookie-self", "cookie-two", "cookie-by-way"])
def test_site_that_redirects_until_its_cookie_comes_back_is_read(tmp_path: Path, name: str) -> None:
    with serve(CASES) as url:
        summary = crawl_here(tmp_path / "c", f"{url}/{name}")
    assert (summary.pages, summary.errors, summary.pending) == (1, {}, 0)
    found = rows(tmp_path / "c", "SELECT url, status FROM t")
    assert (f"{url}/{name}", 200) in found


def test_secrets_go_to_the_start_site_alone_and_are_stored_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: dict[str, list[Asked]] = {"own": [], "other": []}
    jar = tmp_path / "cookies.txt"
    jar.write_text(f"127.0.0.1\tFALSE\t/\tFALSE\t0\tsession\t{SECRETS[1]}\n")

    def take_note(where: str, answer: bytes) -> Answer:
        def answered(asked: Asked) -> bytes:
            seen[where].append(asked)
            return answer

        return answered

    with (
        site(end=take_note("other", html("<title>Other</title>other site"))) as other,
        site(
            start=take_note("own", html('<title>Own</title><a href="/out">out</a> own site')),
            out=take_note("own", html("", f"Location: {other}/end", status="302 Found")),
        ) as own,
    ):
        flags: list[str | Path] = [
            "--header",
            f"X-Token: {SECRETS[0]}",
            "--cookies",
            jar,
            "--auth",
            f"me:{SECRETS[2]}",
        ]
        done = sterna(
            "crawl", f"{own}/start", *flags, "--into", tmp_path / "c", "--delay", "0", "--warc", "--stay",
            "any", "--keep", "title,text,headers,links", "--allow-private", "--verbose",
        )  # fmt: skip
        crawl_here(tmp_path / "c", f"{own}/start", refresh=0.0)
    assert done.returncode == 0, done.stderr
    assert {asked.headers.get("x-token") for asked in seen["own"][:2]} == {SECRETS[0]}
    assert {asked.headers.get("authorization") for asked in seen["own"][:2]} == {PASSWORD}
    assert {asked.headers.get("cookie") for asked in seen["own"][:2]} == {f"session={SECRETS[1]}"}
    # Neither the site to which it redirects nor a later run has them.
    assert seen["other"] and len(seen["own"]) > 2
    assert not any("x-token" in asked.headers for asked in (*seen["own"][2:], *seen["other"]))
    assert not any({"authorization", "cookie"} & asked.headers.keys() for asked in seen["other"])
    told = [done.stdout, done.stderr, caplog.text, *everything_in(tmp_path / "c")]
    assert any("GET /start" in text for text in told)
    for secret in (*SECRETS, PASSWORD.split()[1]):
        assert not any(secret in text for text in told)


def test_secrets_go_to_the_sites_of_this_command_and_not_to_earlier_ones(tmp_path: Path) -> None:
    seen: dict[str, Asked] = {}

    def answered(asked: Asked) -> bytes:
        seen[asked.host] = asked
        return html("<title>Page</title>text")

    flags: list[str | Path] = ["--into", tmp_path / "c", "--delay", "0"]
    with site(start=answered) as first, site(start=answered) as second:
        sterna("crawl", f"{first}/start", *flags)
        sterna("crawl", f"{second}/start", *flags, "--refresh", "0", "--header", "X-Token: swordfish")
        tokens = [seen[url.partition("//")[2]].headers.get("x-token") for url in (first, second)]
    assert tokens == [None, "swordfish"]


def everything_in(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.suffix == ".gz":
            yield gzip.decompress(path.read_bytes()).decode("latin-1")
        elif path.suffix == ".parquet":
            yield str(read_table(path).to_pylist())
        elif path.is_file():
            yield path.read_bytes().decode("latin-1")


def test_report_tells_of_pages_that_show_nothing_and_what_to_do(tmp_path: Path) -> None:
    with site(
        start=html("".join(f'<a href="/{name}">{name}</a>' for name in ("app", "blank", "round"))),
        app=html('<title>App</title><div id="root"></div><script src="app.js"></script>'),
        blank=html("<html></html>"),
        round=html("", "Location: /round", status="302 Found"),
    ) as url:
        done = sterna("crawl", f"{url}/start", "--into", tmp_path / "c", "--delay", "0")
    lines = (done.stdout + done.stderr).splitlines()
    assert any(line.startswith("1 page showed nothing without scripts") for line in lines), lines
    assert any(line.startswith("1 page had neither text nor links") for line in lines)
    assert any(
        line.startswith("1 page only redirected in a circle") and "--cookies" in line for line in lines
    )
    notes = rows(tmp_path / "c", "SELECT url, note FROM t WHERE note IS NOT NULL")
    assert sorted(notes) == [(f"{url}/app", "scripts"), (f"{url}/blank", "empty")]


def test_languages_are_asked_for_as_the_user_says(tmp_path: Path) -> None:
    asked: list[Asked] = []

    def answer(request: Asked) -> bytes:
        asked.append(request)
        return html("<title>Page</title>text")

    with site(start=answer) as url:
        crawl_here(tmp_path / "any", f"{url}/start")
        for value in ("de,en;q=0.5", ""):
            crawl_here(tmp_path / f"c{value}", f"{url}/start", accept_language=value)
    assert [each.headers.get("accept-language") for each in asked] == ["*", "de,en;q=0.5", None]


def test_invalid_secret_is_refused_in_one_line_without_it(tmp_path: Path) -> None:
    done = sterna("crawl", "http://127.0.0.1:9/", "--header", "swordfish", "--into", tmp_path / "c")
    assert done.returncode == 2
    assert "--header is invalid" in done.stderr and "swordfish" not in done.stderr


def test_sites_that_redirect_to_each_other_in_a_circle_are_told(tmp_path: Path) -> None:
    places: dict[str, str] = {}

    def to(name: str) -> Answer:
        return lambda _: html("", f"Location: {places[name]}", status="302 Found")

    with site(login=to("check"), plain=to("end")) as one, site(check=to("login"), end=html("the end")) as two:
        places |= {"check": f"{two}/check", "login": f"{one}/login", "end": f"{two}/end"}
        done = sterna(
            "crawl", f"{one}/login", f"{one}/plain", f"{two}/", "--into", tmp_path / "c", "--delay", "0"
        )
    assert (
        "2 pages only redirected in a circle; if the site wants a login or consent: --cookies FILE"
        in done.stdout
    )
