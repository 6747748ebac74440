from pathlib import Path

import pytest
from tests.search.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An empty archive."""
    return Shelf(tmp_path)
