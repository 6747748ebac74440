"""How the tests are shared out among processes: a file's tests stay together, and so do those of one port."""

import pytest

_SHARES_A_PORT = frozenset({"test_docs", "test_commands"})  # the demo's


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.path.stem
        item.add_marker(pytest.mark.xdist_group("demo" if name in _SHARES_A_PORT else name))
