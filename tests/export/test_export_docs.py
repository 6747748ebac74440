"""The page on exporting names every form, option and exit code."""

import inspect
from pathlib import Path
from typing import get_args

from sterna.cli.export import export
from sterna.export.progress import ExportFormat

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text()


def test_page_names_every_form() -> None:
    assert [kind for kind in get_args(ExportFormat) if f"`{kind}`" not in PAGE] == []


def test_page_names_every_option() -> None:
    names = set(inspect.signature(export).parameters) - {"folder"}
    assert len(names) == 9
    assert [name for name in names if f"--{name.replace('_', '-')}" not in PAGE] == []
