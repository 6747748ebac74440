"""The settings of a crawl: described once, and the same wherever they appear."""

from pathlib import Path

import msgspec
import pytest

from sterna.crawler.spec import CrawlOptions, Spec
from sterna.errors import UsageError
from sterna.home.options import Options
from sterna.home.settings import SETTINGS, default_text, flag_of

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
INNER = {"readers"}  # how many processes read pages is for measuring


def rows() -> list[str]:
    """The table of settings in docs/reference.md."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Options)}
    return [row(name, defaults[name]) for name in SETTINGS if name not in INNER]


def row(name: str, default: object) -> str:
    setting = SETTINGS[name]
    flag = ""
    if setting.is_flag:
        words = flag_of(name), setting.metavar.replace("|", "\\|")
        flag = f"`{' '.join(filter(None, words))}`"
        if isinstance(default, bool):
            flag += f", `{setting.negation or flag_of(name).replace('--', '--no-')}`"
    shown = default_text(name, default).replace("|", "\\|")
    return f"| {flag} | {shown} | {setting.help} | `{name}` |"


def test_every_option_is_described() -> None:
    assert set(SETTINGS) == set(Options.__struct_fields__) - {"seeds"}


def test_reference_has_the_table_of_settings() -> None:
    assert "\n".join(rows()) in REFERENCE


def test_spec_sets_options_of_a_crawl() -> None:
    assert issubclass(Options, CrawlOptions)
    assert Options(**Spec(name="x").options()) == Options()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name, each in SETTINGS.items() if each.allowed])
def test_value_outside_its_limits_is_refused_in_the_words_of_the_setting(name: str) -> None:
    setting = SETTINGS[name]
    wrong = "nonsense" if setting.choices else setting.least - 1
    with pytest.raises(UsageError) as refused:
        msgspec.structs.replace(Options(), **{name: wrong}).check()
    assert str(refused.value) == f"{flag_of(name)} {wrong} is invalid: {setting.allowed}"
