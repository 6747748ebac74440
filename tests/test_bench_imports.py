"""The measurements can be started: nothing that they import has moved away."""

from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("*.py") if path.stem != "__init__"))
def test_measurement_imports(name: str) -> None:
    assert import_module(f"bench.{name}")
