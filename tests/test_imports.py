"""The table of imports in docs/architecture.md holds, type-only imports included."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sterna"
EVERYONE = {"errors", "model", "toml", "__init__"}


def table() -> dict[str, set[str]]:
    """Package to the packages it may import, as the architecture page says."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", allowed)) for name, allowed in rows}


def imported(path: Path) -> set[str]:
    """The packages of ours that a module imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
        else:
            continue
        found |= {(name + ".__init__").split(".")[1] for name in names if name.split(".")[0] == "sterna"}
    return found


def packages() -> list[str]:
    return sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def test_table_names_every_package() -> None:
    assert sorted(table()) == packages()


@pytest.mark.parametrize("package", packages())
def test_imports_point_one_way(package: str) -> None:
    allowed = table()[package] | EVERYONE | {package}
    for path in (SOURCE / package).rglob("*.py"):
        assert imported(path) <= allowed, f"{path.relative_to(ROOT)} imports {imported(path) - allowed}"


def test_table_has_no_cycle() -> None:
    allowed = table()
    done: set[str] = set()
    while len(done) < len(allowed):
        free = {name for name, needs in allowed.items() if name not in done and needs <= done}
        assert free, f"a cycle among {set(allowed) - done}"
        done |= free


def test_errors_and_model_import_nothing_of_ours() -> None:
    assert imported(SOURCE / "errors.py") | imported(SOURCE / "model.py") == set()
    assert imported(SOURCE / "toml.py") == {"errors"}
