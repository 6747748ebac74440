"""The page on specs: its examples compile, and it names every field."""

import re
from pathlib import Path

import pytest

from sterna.crawler.compiler import compile_spec, gather_of
from sterna.crawler.spec import Spec, load_spec
from sterna.crawler.spec_fields import names_of
from sterna.errors import SpecError

PAGE = (Path(__file__).parent.parent.parent / "docs" / "spec.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of rules that the page shows; each begins with its name."""
    for block in blocks("clips"):
        name = re.match(r"; (\S+\.clp)\n", block)
        assert name
        (tmp_path / name[1]).write_text(block)
    return tmp_path


@pytest.mark.parametrize("block", blocks("toml"))
def test_example_of_the_page_compiles(folder: Path, block: str) -> None:
    path = folder / "example.toml"
    path.write_text(block if "name = " in block else f'name = "example"\n{block}')
    spec = load_spec(path)
    assert compile_spec(spec, folder).name == spec.name
    assert len(gather_of(spec, folder)) == len(spec.gather)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_of_the_page_runs(block: str) -> None:
    names: dict[str, object] = {}
    exec(block, names)
    assert isinstance(names["spec"], Spec)


def test_page_shows_enough_examples() -> None:
    assert (len(blocks("toml")) >= 8, len(blocks("clips")) >= 2, len(blocks("python")) >= 1) == (
        True,
        True,
        True,
    )


def test_page_names_every_field() -> None:
    tables = {"scope", "select", "keep", "politeness", "budget"}
    missing = [name for name in names_of(Spec) if name not in tables and f"`{name}`" not in PAGE]
    assert missing == []


def test_errors_of_the_page_are_what_is_said(tmp_path: Path) -> None:
    (tmp_path / "health.toml").write_text('name = "h"\n[scope]\n\n\n\n\nstay = "planet"\n')
    with pytest.raises(SpecError) as first:
        load_spec(tmp_path / "health.toml")
    (tmp_path / "health.toml").write_text('name = "h"\n[select]\n\n\n\n\n\n\nkeyword_any = []\n')
    with pytest.raises(SpecError) as second:
        load_spec(tmp_path / "health.toml")
    said = "".join(str(error.value).replace(f"{tmp_path}/", "") + "\n" for error in (first, second))
    assert said in blocks("text")
