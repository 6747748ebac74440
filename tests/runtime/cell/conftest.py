"""Where the cells of tests come from; and that none is left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.cell.obeying import OBEDIENT, children


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where entries lie that the tests write; the forker looks where we look."""
    (tmp_path / "obedient.py").write_text(OBEDIENT)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def processes() -> Iterator[None]:
    """At the end there are no more children than before, dead ones included."""
    before = children()
    yield
    assert children() <= before
