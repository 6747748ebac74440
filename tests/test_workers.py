"""Tests in several processes report as in one, and a process that dies is a failure."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFTEST = """
from tests.workers import Workers

def pytest_configure(config):
    config.pluginmanager.register(Workers(2))
"""


def run(folder: Path, **files: str) -> tuple[int, str]:
    """The exit code of pytest in two processes, and what it printed."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


def test_results_of_all_processes_are_counted(tmp_path: Path) -> None:
    one = "import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('no reason')\n"
    two = "import warnings\ndef test_c(): warnings.warn('odd')\ndef test_d(): assert 1 == 2\n"
    code, printed = run(tmp_path, one=one, two=two)
    assert code == 1
    for words in ("1 failed, 2 passed, 1 skipped, 1 warning", "assert 1 == 2", "no reason", "odd"):
        assert words in printed


def test_test_whose_process_dies_has_failed_and_the_others_are_run(tmp_path: Path) -> None:
    code, printed = run(tmp_path, bad="import os\ndef test_a(): os._exit(3)\n", good="def test_b(): pass\n")
    assert code == 1
    assert "1 failed, 1 passed" in printed
    assert "the worker ended with status 3" in printed
