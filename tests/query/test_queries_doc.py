"""The page on queries prints what it says, and names what there is."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.documents import ROOT, Document, copy_examples, demo_site

from sterna.query.tables import PAGE_COLUMNS

PAGE = "docs/queries.md"


@pytest.mark.servers
def test_page_on_queries_prints_what_it_says(tmp_path: Path) -> None:
    with demo_site(tmp_path) as ports:
        document = Document(PAGE, ports)
        assert len(document.examples()) >= 10
        copy_examples(tmp_path, ports)
        document.check(tmp_path)
        (script,) = document.blocks("python")
        command = [sys.executable, "-c", f"{script}\nprint(table.num_rows > 12)"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "True"


def test_page_on_queries_names_every_column_and_every_example() -> None:
    text = (ROOT / PAGE).read_text()
    assert [name for name in PAGE_COLUMNS if f"`{name}`" not in text] == []
    assert [path.name for path in (ROOT / "examples/queries").iterdir() if f"`{path.name}`" not in text] == []
