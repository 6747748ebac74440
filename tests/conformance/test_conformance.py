"""What we say against what others' suites say; failures are expected by name, unexpected passes fail too."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conformance import encoding_cases, robots_cases, sitemap_cases, suites, tree_cases, url_cases
from tests.conformance.suites import Case

SUITES: dict[str, Callable[[Path], Iterator[Case]]] = {
    "google-robots": robots_cases.google,
    "crawler-commons-robots": robots_cases.crawler_commons,
    "crawler-commons-sitemaps": sitemap_cases.crawler_commons,
    "crawler-commons-urls": url_cases.crawler_commons,
    "wpt-urls": url_cases.wpt,
    "wpt-labels": encoding_cases.wpt_labels,
    "wpt-legacy-encodings": encoding_cases.wpt_legacy,
    "wpt-trees": tree_cases.wpt,
    "html5lib-encodings": encoding_cases.html5lib,
}
FOLDER = suites.folder()
if FOLDER is None:
    pytest.skip(
        f"{suites.VARIABLE} names no folder with others' suites: see tests/conformance/README.md",
        allow_module_level=True,
    )


@pytest.mark.parametrize("suite", SUITES)
def test_only_what_is_expected_fails(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert FOLDER
    cases = list(SUITES[suite](FOLDER))
    names = [case.name for case in cases]
    failed = {case.name: case for case in cases if not case.passes}
    expected = suites.expected_failures(suite)
    with capsys.disabled():
        total, bad = len(cases), len(failed)
        print(f"\n{suite}: {total - bad:,} of {total:,} pass, {len(expected)} expected failures")  # noqa: T201
    assert cases, "the suite has no case that is understood: did its files change?"
    surprising = [f"{case.name}: {case.got!r}, wanted {case.wanted!r}" for case in failed.values()]
    new = [line for name, line in zip(failed, surprising, strict=True) if name not in expected]
    assert not new, "these fail now; if they should, name them in expected.txt:\n" + "\n".join(new)
    passing = [name for name in expected if name in names and name not in failed]
    assert not passing, "these pass now: delete them in expected.txt:\n" + "\n".join(passing)
    gone = [name for name in expected if name not in names]
    assert not gone, "these are no cases of the suite:\n" + "\n".join(gone)
