"""Where no web server decides, only files of kinds that sites publish are shown."""

from pathlib import Path

import pytest
from tests.web.test_document_root import get

from sterna.web.http import Request
from sterna.web.kinds import PUBLISHED, Kinds, is_withheld
from sterna.web.root_fetcher import RootFetcher

SECRET = (
    "id_rsa", "id_ed25519", "id_rsa.pub", "known_hosts", "server.key", "server.pem", "server.crt",
    "server.p12", "dump.sql", "dump.sql.gz", "site.db", "site.sqlite", "data.sqlite3", ".env", "env",
    "prod.env", "wp-config.php~", "wp-config.php", "wp-config.txt.bak", "backup.zip", "backup.tar.gz",
    "backup.tgz", "backup.7z", "page.html.gz", "users.csv", "users.xlsx", "config.json", "composer.json",
    "package.json", "config.yml", "config.yaml", "settings.ini", "settings.toml", "web.config", "access.log",
    "core", "Dockerfile", "Makefile", "app.js.map", "main.go", "main.ts", "passwd", "shadow", "x.", "html",
    "txt",
)  # fmt: skip
PUBLIC = (
    "index.html", "INDEX.HTM", "robots.txt", "llms.txt", "sitemap.xml", "sitemap.xml.gz", "feed.atom",
    "news.rss", "read.me.md", "paper.pdf", "talk.odp", "letter.docx", "style.css", "app.js", "logo.svg",
    "photo.JPG", "film.webm", "font.woff2", "a b.html", "page.de.html", "v1.2.html",
)  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_file_of_another_kind_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("secret")

    response = get(tmp_path, f"/{name}")

    assert (response.status, response.body) == (404, b"")


@pytest.mark.parametrize("name", PUBLIC)
def test_file_of_a_published_kind_is_shown(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("page")

    assert get(tmp_path, "/" + name.replace(" ", "%20")).body == b"page"


@pytest.mark.parametrize("target", ["id_rsa", "server.key", "dump.sql", "backup.zip"])
def test_link_makes_no_page_of_a_file_of_another_kind(tmp_path: Path, target: str) -> None:
    (tmp_path / target).write_text("secret")
    (tmp_path / "page.html").symlink_to(target)
    (tmp_path / "chain.html").symlink_to("page.html")
    (tmp_path / ".well-known").mkdir()
    (tmp_path / ".well-known" / "page").symlink_to(f"../{target}")

    for path in ("/page.html", "/chain.html", "/.well-known/page"):
        assert get(tmp_path, path).status == 404


def test_index_of_another_kind_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text("secret")
    (tmp_path / "index.html").symlink_to("id_rsa")

    assert get(tmp_path, "/").status == 404


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("security.txt", 200),
        ("apple-app-site-association", 200),
        ("acme-challenge/aB3_x", 200),
        ("assetlinks.json", 200),
        ("server.key", 404),
        ("dump.sql", 404),
    ],
)
def test_what_is_well_known_may_have_no_kind(tmp_path: Path, name: str, status: int) -> None:
    for folder in (".well-known", "well-known"):
        (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text("known")

    assert get(tmp_path, f"/.well-known/{name}").status == status
    assert get(tmp_path, f"/well-known/{name}").status == (200 if name.endswith(".txt") else 404)


def test_link_to_what_is_well_known_needs_a_kind_by_no_name(tmp_path: Path) -> None:
    (tmp_path / ".well-known").mkdir()
    (tmp_path / ".well-known" / "id").write_text("known")
    (tmp_path / "id.html").symlink_to(".well-known/id")

    assert get(tmp_path, "/id.html").body == b"known"


def test_owner_adds_kinds(tmp_path: Path) -> None:
    for name in ("a.json", "a.tar.gz", "a.gz", "a.html"):
        (tmp_path / name).write_text("page")

    def statuses(*kinds: str) -> list[int]:
        return [
            get(tmp_path, path, kinds=kinds).status for path in ("/a.json", "/a.tar.gz", "/a.gz", "/a.html")
        ]

    assert statuses() == [404, 404, 404, 200]
    assert statuses("JSON", ".tar.gz") == [200, 200, 404, 200]
    assert statuses("gz") == [404, 200, 200, 200]


async def test_owner_is_told_of_each_kind_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.json", "b.json", "key", "page.html"):
        (tmp_path / name).write_text("x")
    fetcher = RootFetcher(tmp_path)

    for name in ("a.json", "b.json", "key", "page.html", "a.json", "gone.sql"):
        await fetcher.fetch(Request(url=f"https://a.test/{name}"))

    assert [record.getMessage() for record in caplog.records] == [
        "/a.json is withheld: 'json' is not a kind of file that sites publish; --kind adds one",
        "/key is withheld: it is, or a link to it is, a file without an extension",
    ]


def test_no_published_kind_is_run_by_servers() -> None:
    assert not [kind for kind in PUBLISHED if is_withheld(f"name.{kind}".encode())]
    assert all(Kinds().have(f"name.{kind}".encode()) for kind in PUBLISHED)
