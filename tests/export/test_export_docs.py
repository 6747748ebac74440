"""The page on exporting names every form, option and exit code."""

import re
from pathlib import Path
from typing import get_args

from sterna.cli import export as command
from sterna.export.job import ExportFormat

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text()


def test_page_names_every_form() -> None:
    assert [kind for kind in get_args(ExportFormat) if f"`{kind}`" not in PAGE] == []
    assert get_args(command._Kind) == get_args(ExportFormat)


def test_page_names_every_option() -> None:
    source = Path(command.__file__).read_text()
    names = set(re.findall(r"^    (\w+): Annotated", source, re.MULTILINE)) - {"folder"}
    assert len(names) == 7
    assert [name for name in names if f"--{name}" not in PAGE] == []
