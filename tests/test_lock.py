"""requirements.lock has a version of every package that pyproject.toml names, within its bounds."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCKED = [
    Requirement(line) for line in (ROOT / "requirements.lock").read_text().splitlines() if line[:1] != "#"
]


def wanted() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    lists = [project["build-system"]["requires"], project["project"]["dependencies"], *extras]
    return [Requirement(text) for texts in lists for text in texts]


def test_every_dependency_is_locked_within_its_bounds() -> None:
    for requirement in wanted():
        name = canonicalize_name(requirement.name)
        versions = [_version(locked) for locked in LOCKED if canonicalize_name(locked.name) == name]
        assert versions, f"{name} is not locked: run scripts/lock --upgrade-package {name}"
        assert all(version in requirement.specifier for version in versions), name


def test_lock_names_no_address() -> None:
    assert not re.search(r"://|--", (ROOT / "requirements.lock").read_text())


def _version(locked: Requirement) -> str:
    (pin,) = locked.specifier
    assert pin.operator == "=="
    return pin.version
