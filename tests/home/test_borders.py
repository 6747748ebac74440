"""Which sites a crawl may enter."""

import pytest

from sterna.home.dispatch import Borders
from sterna.model import Stay, Target

SEED = "https://www.example.org"


@pytest.mark.parametrize(
    ("stay", "url", "is_admitted"),
    [
        ("site", f"{SEED}/x", True),
        ("site", "http://www.example.org/", False),
        ("site", "https://docs.example.org/", False),
        ("domain", "https://docs.example.org/", True),
        ("domain", "https://example.com/", False),
        ("domain", "https://notexample.org/", False),
        ("any", "https://example.com/", True),
    ],
)
def test_stay_decides_between_sites(stay: Stay, url: str, is_admitted: bool) -> None:
    borders = Borders(stay, seed_sites=[SEED], blocked=[])
    assert borders.admits(Target(url, 1)) is is_admitted


def test_start_page_that_moved_takes_its_scope_along() -> None:
    borders = Borders("site", seed_sites=["http://example.org"], blocked=[])
    assert not borders.admits(Target(f"{SEED}/a", 1))
    assert borders.admits(Target(f"{SEED}/", 0))
    assert borders.admits(Target(f"{SEED}/a", 1))


def test_blocked_name_covers_its_subdomains_and_nothing_else() -> None:
    borders = Borders("any", seed_sites=[SEED], blocked=["bad.example", "one.host.example"])
    for name in ("bad.example", "bad.example.", "www.bad.example", "one.host.example"):
        assert not borders.may_visit(f"https://{name}")
    for name in ("host.example", "notbad.example"):
        assert borders.may_visit(f"https://{name}")


def test_blocked_site_is_not_admitted_even_if_a_start_page_moved_there() -> None:
    borders = Borders("any", seed_sites=[SEED], blocked=["bad.example"])
    assert not borders.admits(Target("https://bad.example/", 0))
