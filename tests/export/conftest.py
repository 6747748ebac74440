"""A real site, crawled once for all tests of a worker."""

from pathlib import Path

import pytest
from tests.export.exported import crawl_real_site


@pytest.fixture(scope="session")
def real_collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crawl_real_site(tmp_path_factory.mktemp("exported"))
