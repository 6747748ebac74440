"""The page on queries prints what it says, and names what there is."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_docs import ROOT, check, demo_site, examples

from sterna.query.tables import PAGE_COLUMNS

pytestmark = pytest.mark.alone  # the demo site's port is the same for all

PAGE = "docs/queries.md"


@pytest.mark.servers
def test_page_on_queries_prints_what_it_says(tmp_path: Path) -> None:
    assert len(examples(PAGE)) >= 10
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with demo_site():
        check(PAGE, tmp_path)
        (script,) = re.findall(r"```python\n(.*?)```", (ROOT / PAGE).read_text(), re.DOTALL)
        command = [sys.executable, "-c", f"{script}\nprint(table.num_rows > 12)"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "True"


def test_page_on_queries_names_every_column_and_every_example() -> None:
    text = (ROOT / PAGE).read_text()
    assert [name for name in PAGE_COLUMNS if f"`{name}`" not in text] == []
    assert [path.name for path in (ROOT / "examples/queries").iterdir() if f"`{path.name}`" not in text] == []
