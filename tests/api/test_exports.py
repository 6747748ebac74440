"""The public names: their list, their documentation, and the examples in it."""

import re
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest

import sterna
from sterna.cli.demo import PORT, served

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
NAMES = [
    "Budget",
    "Collection",
    "Collections",
    "Css",
    "Keep",
    "Page",
    "Politeness",
    "Scope",
    "Select",
    "Spec",
    "SternaError",
    "Summary",
    "__version__",
    "acrawl",
    "ask",
    "crawl",
    "pages",
]


def test_exported_members() -> None:
    assert sterna.__all__ == NAMES == sorted(NAMES)
    assert all(getattr(sterna, name) is not None for name in NAMES)
    assert set(NAMES) <= set(dir(sterna))
    with pytest.raises(AttributeError, match="no attribute 'craw'"):
        sterna.craw  # noqa: B018


def test_every_name_is_documented_and_used_in_an_example() -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    assert [name for name in NAMES if f"sterna.{name}" not in code] == []
    methods = [name for name in vars(sterna.Collection) if not name.startswith("_")]
    assert [name for name in methods if f"collection.{name}" not in code] == []
    assert [name for name in NAMES if f"{name}`" not in PAGE] == []


def test_importing_the_package_loads_no_library() -> None:
    libraries = ("msgspec", "duckdb", "pyarrow", "typer")
    program = f"import sys, sterna; print([name for name in {libraries} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize("name", ["crawl", "Collection", "ask"])
def test_missing_extra_is_named(name: str) -> None:
    program = f"import sys; sys.modules['pyarrow'] = None; from sterna import {name}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last == f"ModuleNotFoundError: sterna.{name} needs the extra 'home': scripts/install home"


def test_types_are_shipped() -> None:
    assert (files("sterna") / "py.typed").is_file()


def test_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with as_file(files("sterna.cli") / "demo_site") as root, served(root, port=0) as url:
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block.replace(f"http://127.0.0.1:{PORT}/", url), "docs/api.md", "exec"), names)
    summary, found, rows = names["summary"], names["found"], names["rows"]
    assert summary.ended == "finished"
    assert 0 < summary.kept <= summary.pages
    assert {"url": f"{url}", "title": names["collection"].search("tern").hits[0].title}.keys() == rows[
        0
    ].keys()
    assert len(rows) == 2
    assert found.hits
    assert len(names["created"]) == summary.kept
    assert names["made"].places == (Path("pages.csv"),)
    assert names["status"].counts.pages == summary.pages
    assert names["table"].num_rows >= 1
    assert "is not a collection" in capsys.readouterr().out
