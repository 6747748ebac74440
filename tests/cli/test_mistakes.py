"""Forty typical mistakes: each gets one line that says what to do, and exit code 2 or 5."""

import shlex
from pathlib import Path

import pytest
from tests.crawl.running import call, crawl_here
from tests.servers.pages import PageServer

URL = "https://www.example.org/"
A = "127.0.5.1"

# What is typed, with `{c}` for a collection, and words of the line that answers.
MISTAKES = {
    # the command
    "craw https://www.example.org/": "did you mean 'sterna crawl'?",
    "https://www.example.org/": "to crawl it: sterna crawl https://www.example.org/",
    "fetch https://www.example.org/": "'sterna --help' lists them",
    "--verbose crawl https://www.example.org/": "No such option: --verbose",
    "host strat": "did you mean 'sterna host status'?",
    # where to start
    "crawl": "no URL to start from: sterna crawl https://www.example.org/",
    "crawl example": "'example' is not a web address: write it like https://www.example.org/",
    "crawl https://": "'https://' is not a web address",
    "crawl ftp://example.org/": "'ftp://example.org/' is not a web address",
    "crawl http//www.example.org/": "'http//www.example.org/' is not a web address",
    "crawl '\"https://www.example.org/\"'": "is not a web address: write it like https://www.example.org/",
    "crawl http://ada:sesame@www.example.org/": "http://www.example.org/: no start URL has a login: give",
    "crawl spec.yaml": "there is no file spec.yaml, and no site is called so: a spec ends in .toml",
    "crawl heatlh.toml": "there is no file heatlh.toml: did you mean health.toml?",
    "crawl health.tml": "did you mean health.toml?",
    "crawl urls.list": "urls.list is a file, but not a crawler",
    "crawl none.crawler": "cannot read none.crawler: No such file or directory",
    "crawl health.toml other.toml": "one crawler at a time: health.toml or other.toml",
    "crawl crawls/www.example.org": "to continue it: sterna crawl --into crawls/www.example.org",
    # options of a crawl
    "crawl --max-pages many URL": "--max-pages many is invalid: a whole number, 1 or more",
    "crawl --max-pages 0 URL": "--max-pages 0 is invalid: 1 or more",
    "crawl --max-page 10 URL": "--max-pages",
    "crawl --delay=-1 URL": "--delay -1 is invalid: seconds, 0 to 86400",
    "crawl --depth 2 URL": "No such option: --depth",
    "crawl --stay here URL": "--stay here is invalid: site, domain or any",
    "crawl --include [ URL": "--include",
    "crawl --include '*.html' URL": "it is a regular expression: write \\.html$",
    "crawl --exclude '*/print/*' URL": "it is a regular expression: write /print/",
    "crawl --contact me URL": "--contact me is invalid: an email address, or a URL with https://",
    "crawl --proxy foo URL": "--proxy foo is invalid: a URL, such as http://127.0.0.1:3128",
    "crawl --proxy ftp://ada:sesame@foo:1 URL": "--proxy foo:1 is invalid",
    "crawl --refresh 7 URL": "--refresh 7 has no unit: write 7d for days, 7h, 7m or 7s",
    "crawl --subtree docs URL": "--subtree docs is invalid: write the beginning of a path, such as /docs/",
    "crawl --refresh tomorrow URL": "--refresh tomorrow is not an age: write it like 90m, 12h or 7d",
    "crawl --max-seconds 0 URL": "--max-seconds 0.0 is invalid: seconds, more than 0",
    "crawl --keep titel URL": "--keep titel is invalid: use all, links, or some of",
    "crawl --block https:// URL": "is not a hostname or domain: write it like ads.example.org",
    "crawl --here --require-host URL": "exclude each other: choose one",
    "crawl --config none.toml URL": "cannot read none.toml",
    "crawl -o pages.xlsx URL": "write FILE.jsonl, FILE.csv or FILE.parquet, or FOLDER/ for Markdown",
    "crawl -o none/pages.csv URL": "the folder none does not exist, make it first",
    "crawl --into": "Option '--into' requires an argument: see 'sterna crawl --help'",
    "host run --site": "Option '--site' requires an argument: see 'sterna host run --help'",
    # collections
    "status nothing": "nothing is not a collection: name a folder that 'sterna crawl' made",
    "query crawls 'SELECT url FROM page'": "crawls is not a collection",
    "list nothing": "nothing is not a folder: name one that contains collections",
    "query {c}": "give the query either as SQL or by --file FILE",
    "query {c} 'SELECT 1' --memory lots": "--memory lots is invalid: a size such as 500MB or 2GB",
    "query {c} 'DELETE FROM page'": "only SELECT and its like are allowed",
    "query 'SELECT 1'": 'name the collection first: sterna query DIR "SELECT 1"',
    "query {c} 'SELECT url FROM page WHERE title = \"Home\"'": "a text goes in single quotes: 'Home'",
    "ask 'SELECT url FROM page WHERE title = \"Home\"' URL": "a text goes in single quotes: 'Home'",
    "search clinic": "clinic is not a collection: name one before the words: sterna search DIR clinic",
    "host run --site foo": "site 'foo' is not an origin: write it as https://www.example.org",
    "search {c}": "give words to search for, such as: sterna search",
    "serve {c} --listen eighty": "--listen eighty is invalid: write it as 127.0.0.1:8600",
    "export {c}": "Missing option '--to'",
    "export {c} --to xlsx": "'xlsx' is not one of 'jsonl', 'parquet', 'csv'",
    "export {c} --to csv --main-content": "--main-content goes with --to markdown, not with --to csv",
    "export {c} --to csv --out health.toml": "health.toml exists: name another file with --out",
    "ask 'SELECT url FROM pages' URL": "pages",
    "ask 'SELECT url FROM page'": "Missing argument 'URL'",
    "keys alow ed25519:abc": "Did you mean 'allow'?",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    for name in ("health.toml", "other.toml"):
        (place / name).write_text(f'name = "health"\nseeds = ["{URL}"]\n')
    (place / "urls.list").write_text(URL)
    with PageServer({A: {"/": "<title>Start</title>"}}).run_in_thread() as server:
        crawl_here(place / "crawls/www.example.org", server.url(A))
    return place


def test_there_are_forty_of_them() -> None:
    assert len(MISTAKES) >= 40


@pytest.mark.parametrize("typed", MISTAKES)
def test_mistake_gets_one_line_that_says_what_to_do(
    typed: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.chdir(place)
    before = sorted(place.iterdir())
    words = [{"URL": URL, "{c}": "crawls/www.example.org"}.get(word, word) for word in shlex.split(typed)]
    result = call(words)
    assert result.returncode in (2, 5), result.stdout
    assert result.stdout == ""
    line, *place_in_query = result.stderr.splitlines()
    assert len(place_in_query) in (0, 2)
    assert "sesame" not in line
    assert line.startswith("sterna: ")
    assert MISTAKES[typed] in line
    assert sorted(place.iterdir()) == before, "nothing is made by mistake"
