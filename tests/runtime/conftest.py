"""Tests of the runtime start and end readers of their own."""

import pytest


@pytest.fixture(autouse=True)
def _own_processes(own_processes: None) -> None: ...
