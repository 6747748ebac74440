"""A link in a document root is judged by where it leads as well as by its own name."""

import os
from pathlib import Path

import pytest
from tests.web.test_document_root import SITE, count_open, get, swapping

from sterna.errors import FetchError
from sterna.web.closed import ClosedPaths
from sterna.web.document_root import MAX_LINKS, DocumentRoot, PathKind
from sterna.web.http import Request
from sterna.web.root_fetcher import RootFetcher

CLOSED = ("/private/", "/notes.html")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("public", "private/deep", ".git", "rules"):
        (root / name).mkdir(parents=True)
    for name in (
        "page.html",
        "notes.html",
        "private/index.html",
        "private/secret.html",
        "private/deep/a.html",
    ):
        (root / name).write_text("page" if name == "page.html" else "secret")
    for name in (".git/config.html", "rules/page.html", "app.php", "page.html.bak", "id_rsa", "run.html"):
        (root / name).write_text("secret")
    (root / "rules" / ".htaccess").touch()
    (root / "run.html").chmod(0o755)
    return root


def link(root: Path, name: str, target: str) -> None:
    (root / name).symlink_to(target.format(root=root))


@pytest.mark.parametrize(
    ("name", "target", "path"),
    [
        ("public/x.html", "../private/secret.html", "/public/x.html"),
        ("public/x.html", "{root}/private/secret.html", "/public/x.html"),
        ("public/x.html", "../notes.html", "/public/x.html"),
        ("public/x.html", "../public/../private/deep/../secret.html", "/public/x.html"),
        ("open", "private", "/open/secret.html"),
        ("open", "{root}/private", "/open/deep/a.html"),
        ("open", "private", "/open/"),
        ("open", "private", "/open"),
        ("open", "private/deep", "/open/a.html"),
        ("open", "private", "/open/index.html?x=1"),
        ("open", "private", "//open//secret.html"),
        ("open", "private", "/open/gone.html"),
        ("all", ".", "/all/private/secret.html"),
        ("public/index.html", "../private/index.html", "/public/"),
        ("public/index.htm", "../private/index.html", "/public/"),
    ],
)
def test_link_to_what_is_closed_is_refused(root: Path, name: str, target: str, path: str) -> None:
    link(root, name, target)

    assert get(root, path).status in (200, 301, 404)  # as long as nothing is closed
    with pytest.raises(FetchError, match=r"refused: .* leads to a path that is closed"):
        get(root, path, closed=CLOSED)


def test_refusal_does_not_tell_where_the_link_leads(root: Path) -> None:
    link(root, "public/x.html", "../private/secret.html")

    with pytest.raises(FetchError) as raised:
        get(root, "/public/x.html", closed=CLOSED)

    assert "private" not in str(raised.value)


def test_closed_in_another_spelling_is_closed_behind_a_link(root: Path) -> None:
    (root / "Übersicht").mkdir()
    (root / "Übersicht" / "100%25 a.html").write_text("secret")
    link(root, "public/x.html", "../Übersicht/100%25 a.html")

    for closed in ("/Übersicht/", "/%C3%9Cbersicht", "/Übersicht/100%2525%20A.html"):
        with pytest.raises(FetchError, match="closed"):
            get(root, "/public/x.html", closed=(closed,))


def test_link_to_what_is_open_is_followed(root: Path) -> None:
    link(root, "public/x.html", "../page.html")
    link(root, "privately.html", "page.html")

    assert get(root, "/public/x.html", closed=CLOSED).body == b"page"
    assert get(root, "/privately.html", closed=CLOSED).body == b"page"


def test_chain_of_links_is_judged_by_its_end(root: Path) -> None:
    link(root, "a.html", "public/b.html")
    link(root, "public/b.html", "{root}/way/secret.html")
    link(root, "way", "way2")
    link(root, "way2", "private")

    assert get(root, "/a.html").body == b"secret"
    with pytest.raises(FetchError, match="closed"):
        get(root, "/a.html", closed=CLOSED)


def test_links_in_a_circle_lead_nowhere(root: Path) -> None:
    link(root, "a.html", "b.html")
    link(root, "b.html", "a.html")
    link(root, "self", "self/x")
    (root / "link0.html").write_text("end")
    for number in range(MAX_LINKS + 1):
        link(root, f"link{number + 1}.html", f"link{number}.html")

    assert [get(root, path, closed=CLOSED).status for path in ("/a.html", "/self/", "/self")] == [404] * 3
    assert get(root, f"/link{MAX_LINKS}.html", closed=CLOSED).body == b"end"
    assert get(root, f"/link{MAX_LINKS + 1}.html", closed=CLOSED).status == 404


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (".git/config.html", 404),
        ("{root}/.git/config.html", 404),
        ("app.php", 404),
        ("page.html.bak", 404),
        ("run.html", 404),
        ("id_rsa", 404),
        ("rules/page.html", 403),
        ("{root}/rules/page.html", 403),
        ("/etc/hostname", 404),
        ("../root/page.html", 404),
    ],
)
def test_link_shows_nothing_that_its_target_would_not(root: Path, target: str, status: int) -> None:
    link(root, "x.html", "y.html")
    link(root, "y.html", target)

    for path in ("/x.html", "/y.html"):
        response = get(root, path)
        assert (response.status, response.body) == (status, b"")


@pytest.mark.parametrize("name", ["app2.php", "x.cgi", "x.html~", "x.bak", "id_ed25519", "x.key"])
def test_name_of_a_link_counts_as_well_as_that_of_its_target(root: Path, name: str) -> None:
    link(root, name, "page.html")
    link(root, "chain.html", name)

    assert get(root, f"/{name}").status == 404
    assert get(root, "/chain.html").status == 404


def test_folder_behind_a_link_may_have_any_name(root: Path) -> None:
    link(root, "v1.py", "public")
    (root / "public" / "a.html").write_text("a")

    assert get(root, "/v1.py/a.html").body == b"a"


# -- aliases -------------------------------------------------------------------------------------------------


def paths_of(root: DocumentRoot, *names: bytes) -> set[str]:
    with root.find(names) as entry:
        return set(entry.paths)


def test_file_is_known_by_every_path_that_stands_for_it(root: Path, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "back.html").symlink_to(root / "private" / "secret.html")
    (tmp_path / "files" / "up").symlink_to("../root")
    (root / "out").symlink_to(tmp_path / "files")
    site = DocumentRoot(root, [("/files", tmp_path / "files"), ("/shown", root / "private")])

    assert paths_of(site, b"page.html") == {"/page.html"}
    assert paths_of(site, b"shown", b"secret.html") == {"/private/secret.html", "/shown/secret.html"}
    assert paths_of(site, b"files", b"back.html") == {"/private/secret.html", "/shown/secret.html"}
    assert paths_of(site, b"files", b"up", b"page.html") == {"/page.html"}
    assert paths_of(site, b"out", b"a b.html") == {"/files/a%20b.html"}
    assert paths_of(site, b"private", b"..", b"..") == set()


def test_link_out_of_an_alias_is_followed_by_no_one_here(root: Path, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "back.html").symlink_to(root / "private" / "secret.html")
    aliases = (("/files", tmp_path / "files"),)

    assert get(root, "/files/back.html", aliases=aliases).status == 404
    with pytest.raises(FetchError, match="closed"):
        get(root, "/files/back.html", aliases=aliases, closed=CLOSED)


def test_alias_of_a_closed_folder_is_closed(root: Path) -> None:
    aliases = (("/shown", root / "private"),)

    assert get(root, "/shown/secret.html", aliases=aliases).body == b"secret"
    for closed in (CLOSED, ("/shown/",)):
        for path in ("/shown/secret.html", "/private/secret.html"):
            with pytest.raises(FetchError, match="closed"):
                get(root, path, aliases=aliases, closed=closed)


@pytest.mark.parametrize("folder", ["", "private"])
def test_rules_above_an_alias_in_the_root_guard_it(root: Path, tmp_path: Path, folder: str) -> None:
    aliases = (("/shown", root / "private" / "deep"), ("/more", root / "public"))
    (tmp_path / ".htaccess").touch()  # above everything: not the site's
    assert get(root, "/shown/a.html", aliases=aliases).status == 200

    (root / folder / ".htaccess").touch()

    assert get(root, "/shown/a.html", aliases=aliases).status == 403


# -- while somebody exchanges links --------------------------------------------------------------------------


async def ask_until(wanted: set[bytes | str], root: Path, path: str) -> set[bytes | str]:
    """Asks until the answers were all of these, and some hundred times at least; returns what was seen."""
    fetcher, request = RootFetcher(root), Request(url=SITE + path, closed=(ClosedPaths(CLOSED),))
    seen = set[bytes | str]()
    for number in range(50_000):
        try:
            seen.add((await fetcher.fetch(request)).body)
        except FetchError as error:
            seen.add(error.kind)
        if number > 500 and seen >= wanted:
            break
    return seen


async def test_exchanged_link_shows_nothing_closed(root: Path) -> None:
    """What is judged is what is read, whatever the name means before and afterwards."""
    link(root, "way.html", "page.html")
    link(root, "other.html", "private/secret.html")
    open_before = count_open()

    with swapping(root / "way.html", root / "other.html"):
        seen = await ask_until({b"page", "refused"}, root, "/way.html")

    assert seen - {b""} == {b"page", "refused"}
    assert count_open() == open_before


async def test_folder_exchanged_for_a_link_shows_nothing_closed(root: Path) -> None:
    (root / "public" / "secret.html").write_text("page")
    link(root, "way", "private")

    with swapping(root / "public", root / "way"):
        seen = await ask_until({b"page", "refused"}, root, "/public/secret.html")

    assert seen - {b""} == {b"page", "refused"}


@pytest.mark.parametrize("trap", ["link", "file"])
def test_file_exchanged_between_look_and_open_is_not_there(
    root: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    link(root, "way.html", "page.html")
    if trap == "link":
        link(root, "trap.html", "private/secret.html")
    else:
        (root / "trap.html").write_text("secret")
    open_file, traps = os.open, [root / "trap.html"]

    def open_later(path: bytes, flags: int, **given: int) -> int:
        if path == b"page.html" and not flags & os.O_PATH:
            traps.pop().rename(root / "page.html")
        return open_file(path, flags, **given)

    monkeypatch.setattr(os, "open", open_later)
    response = get(root, "/way.html", closed=CLOSED)

    assert (response.status, response.body, traps) == (404, b"", [])


def test_file_of_a_root_that_is_exchanged_keeps_its_path(root: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(root)
    site = DocumentRoot(tmp_path / "current")
    assert paths_of(site, b"private", b"secret.html") == {"/private/secret.html"}

    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.html").write_text("new")
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").rename(tmp_path / "current")

    with site.find([b"a.html"]) as entry:
        assert (entry.kind, entry.paths) == (PathKind.FILE, ("/a.html",))
