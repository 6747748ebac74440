"""Errors in configuration files are one short line, whatever the file contains."""

from pathlib import Path

import pytest

from sterna.errors import ConfigError
from sterna.host.policy.policy import read_policy
from sterna.storage.config import read_config

# Found by bench.fuzz.
ODD = {
    "a newline in a name": '[homes."\\n"]\nopen = 1\n',
    "a newline in a name of a home": '[homes]\n"a\\nb" = "ed25519:"\n',
    "an escape in a name": '[homes."\\u001b[2J"]\nopen = 1\n',
    "a long value": f'outside_hours = "{"x" * 5_000}"\n',
    "a long name": f"{'x' * 5_000} = 1\n",
    "a long probe": f'[load]\nprobe = "{"x" * 5_000}"\n',
}


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
@pytest.mark.parametrize("read", [read_policy, read_config], ids=["policy", "storage"])
def test_error_is_one_short_line_whatever_names_and_values_there_are(
    tmp_path: Path, read: object, content: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(content)
    assert callable(read)
    with pytest.raises(ConfigError) as error:
        read(path)
    words = str(error.value)
    assert words.startswith(str(path))
    assert words.isprintable()
    assert len(words) < 1_100
