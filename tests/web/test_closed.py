"""A list of closed paths that is too long is merged: it closes more then, never less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.web.closed import ClosedPaths, merged

SITE = "https://www.example.org"
ENOUGH = {"max_count": 100, "max_bytes": 500}

# Few names, so that paths have a beginning in common and URLs hit them.
SEGMENTS = st.sampled_from(
    [
        "a",
        "ab",
        "abc",
        "B",
        "ü",
        "%C3%BC",
        "%2561",
        "..",
        ".",
        "",
        "a;x",
        ".b",
        "..b",
        "%2e%2e",
        "a%3Fb",
        "\\",
        "Ā",
    ]
)
PATHS = st.lists(SEGMENTS, max_size=5).map(lambda segments: "/" + "/".join(segments))


@given(st.lists(PATHS, max_size=12), PATHS, st.integers(1, 4), st.integers(1, 12))
def test_what_is_closed_stays_closed(paths: list[str], asked: str, max_count: int, max_bytes: int) -> None:
    shorter = merged(paths, max_count=max_count, max_bytes=max_bytes)
    whole, fewer = ClosedPaths(paths), ClosedPaths(shorter)

    assert len(shorter) <= max_count
    assert all(path.startswith("/") and len(path.encode()) <= max_bytes for path in shorter)
    for path in (
        asked,
        *paths,
        *(f"{path}/{asked}" for path in paths),
        *(path + asked[1:] for path in paths),
    ):
        url = SITE + path
        assert url in fewer or url not in whole


def test_list_that_is_short_enough_stays_as_it_is() -> None:
    paths = ("/Übersicht/", "/b?x", "/a/../c", *(f"/folder-{number}/" for number in range(97)))

    assert merged(paths, **ENOUGH) == paths
    assert merged((*paths, "/b?x"), **ENOUGH) == paths  # which is named twice


def test_those_that_have_most_in_common_are_merged() -> None:
    paths = [f"/{name}/" for name in ("drafts", "intranet", "staff")]

    found = merged(
        [*paths, "/archive/2024/x", "/archive/2024/y", "/archive/2023"], max_count=5, max_bytes=500
    )

    assert found == ("/archive/2023", "/archive/2024/", "/drafts/", "/intranet/", "/staff/")


def test_long_path_is_cut_between_characters() -> None:
    (found,) = merged(["/ü/" + "x" * 600], **ENOUGH)

    assert len(found) == 500
    assert SITE + "/%C3%BC/" + "x" * 600 in ClosedPaths([found])
    assert merged(["/" + "ü" * 100], max_count=1, max_bytes=9) == ("/%E3%BC",)  # in lower case, byte by byte


@pytest.mark.parametrize("count", [101, 5_000])
def test_many_paths_leave_the_rest_of_the_site_open(count: int) -> None:
    closed = ClosedPaths(merged([f"/staff/{number}/" for number in range(count)], **ENOUGH))

    assert all(f"{SITE}/staff/{number}/page" in closed for number in range(count))
    assert SITE + "/docs/" not in closed
    assert SITE + "/staff/" not in closed
