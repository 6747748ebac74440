"""Paths made of URLs: inside the folder, one for each URL, and such as every disk takes."""

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.export.folder import file_path, take_path
from sterna.export.spill import Lookup
from sterna.web.urls import Canonical

canonical = Canonical(drop_params=())


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://a.org/", "a.org/index.md"),
        ("https://a.org:8443/", "a.org_8443/index.md"),
        ("https://a.org/docs/", "a.org/docs/index.md"),
        ("https://a.org/docs/page.html", "a.org/docs/page.md"),
        ("https://a.org/docs/page.XHTML", "a.org/docs/page.md"),
        ("https://a.org/Docs/b.pdf", "a.org/Docs/b.pdf.md"),
        ("https://a.org/%C3%A4/%E6%97%A5", "a.org/ä/日.md"),
        ("http://[::1]:80/", "[::1]_80/index.md"),
    ],
)
def test_plain_addresses_have_plain_paths(url: str, path: str) -> None:
    found = file_path(url)
    assert found == path.replace("[::1]", "___1_")


@pytest.mark.parametrize(
    ("path", "start"),
    [
        ("/a?b=1&c", "a_b=1_c-"),
        ("/%2e%2e%2fetc", "_.._etc-"),
        ("/.git/config", "_.git/config-"),
        ("/con", "_con-"),
        ("/AUX.html", "_AUX-"),
        ("/nul.txt/x", "_nul.txt/x-"),
        ("/a%00b", "a_b-"),
        ("/-rf", "_-rf-"),
        ("/a.", "a_-"),
        ("/x.md/y", "x.md_/y-"),
        ("//a", "a-"),
        ("/" + "x" * 300, "x" * 64 + "-"),
        ("/C:%5Cx", "C__x-"),
    ],
)
def test_dangerous_addresses_have_safe_paths(path: str, start: str) -> None:
    found = file_path(f"https://a.org{path}")
    assert found.startswith(f"a.org/{start}")


def test_names_that_differ_in_case_alone_are_told_apart(tmp_path: Path) -> None:
    urls = [f"https://a.org/{name}" for name in ("page", "Page", "PAGE", "page.html", "%C3%84", "%C3%A4")]
    urls.append("http://a.org/page")
    with Lookup(tmp_path / "taken") as taken:
        found = [take_path(url, taken) for url in urls]
    assert found[0] == "a.org/page.md"
    assert len({path.casefold() for path in found}) == len(urls)


RESERVED = {
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{name}{number}" for name in ("com", "lpt") for number in range(10)),
}
segment = st.one_of(
    st.sampled_from(
        ["..", ".", "", "%2e%2e", "%2F..", "con", "LPT1.x", ".git", "a.md", "A.MD", "x" * 90, "ﬁ.ｍｄ"]
    ),
    st.text(max_size=12),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(segment, max_size=14), st.text(max_size=20), st.text(max_size=20))
def test_any_address_stays_inside_and_is_taken_by_every_disk(
    segments: list[str], last: str, query: str
) -> None:
    url = canonical(f"https://a.org/{'/'.join(segments)}/{last}?{query}")
    if url is None:
        return
    path = file_path(url)
    parts = PurePosixPath(path).parts
    assert parts[0] == "a.org"
    assert path == "/".join(parts) == "/".join(PureWindowsPath(path).parts)
    assert path.endswith(".md")
    assert len(path.encode()) < 1_000
    for part in parts:
        assert part not in (".", "..")
        assert len(part.encode()) <= 90
        assert part[0] not in ".- "
        assert part[-1] not in ". "
        assert not set(part) & set('<>:"/\\|?*\0')
        assert all(sign.isprintable() for sign in part)
        assert part.split(".")[0].casefold() not in RESERVED
    assert not any(part.casefold().endswith(".md") for part in parts[:-1])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(segment, segment), min_size=2, max_size=12))
def test_no_two_addresses_share_a_file(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    urls = {url for first, second in pairs if (url := canonical(f"https://a.org/{first}/{second}"))}
    with Lookup(tmp_path_factory.mktemp("taken") / "taken") as taken:
        assert len({take_path(url, taken).casefold() for url in sorted(urls)}) == len(urls)
