"""`storage.toml`: what is wrong is told with file, line and field; what is right comes back as it was."""

from pathlib import Path

import pytest

from sterna.errors import ConfigError
from sterna.storage.config import (
    CommandSpec,
    Config,
    ConfigFile,
    ConnectionSpec,
    RuleSpec,
    StoreSpec,
    as_toml,
    merged,
    read_config,
    write_config,
)

GOOD = """\
[connections.main]
url = "sqlite:///pages.db"

[commands.AddPage]
connection = "main"
sql = '''
INSERT INTO a VALUES (:url);
INSERT INTO b VALUES (:title)
'''

[rules.pages]
crawler = "health*"

[[rules.pages.store]]
query = "SELECT url, title FROM page"
commands = ["AddPage"]
"""


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "line", "field", "said"),
    [
        (changed('url = "sq', 'uri = "sq'), 2, "connections.main.uri", "unknown field"),
        (changed('"sqlite:///pages.db"', "7"), 2, "connections.main.url", "Expected `str`, got `int`"),
        (
            changed('connection = "main"', 'connection = "x"'),
            5,
            "commands.AddPage.connection",
            "no connection 'x'",
        ),
        (changed('connection = "main"', ""), 4, "commands.AddPage", "missing required field `connection`"),
        (
            changed("INSERT INTO a VALUES (:url);", "COMMIT;"),
            6,
            "commands.AddPage.sql",
            "a command may not COMMIT",
        ),
        (
            changed('connection = "main"', 'connection = "main"\ncall = "a:b"'),
            4,
            "commands.AddPage",
            "either sql or call",
        ),
        (
            changed('["AddPage"]', '["Add"]'),
            16,
            "rules.pages.store.0.commands",
            "no command 'Add' (defined: AddPage)",
        ),
        (changed('["AddPage"]', "[]"), 16, "rules.pages.store.0.commands", "at least one command"),
        (
            changed('"SELECT url, title FROM page"', '" "'),
            15,
            "rules.pages.store.0.query",
            "the query is empty",
        ),
        (changed('"health*"', '""'), 12, "rules.pages.crawler", "empty"),
        (changed("[[rules.pages.store]]", "[rules.pages.stores]"), 14, "rules.pages.stores", "unknown field"),
        (changed("[rules.pages]", '[rules."p q"]'), 11, "rules.p q", "missing required field `store`"),
        ("[connections.'a b']\nurl = 'x'\n", 1, "connections.a b", "letters, digits"),
        ("rules = 3\n", 1, "rules", "Expected `object`, got `int`"),
        ("other = 3\n", 1, "other", "unknown field"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, text: str, line: int, field: str, said: str
) -> None:
    path = tmp_path / "storage.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}, line {line}, {field}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", ["x", "a.b", "a:b:c", "a:b()", "os;a:b", "-x:y", "a:"])
def test_call_names_a_module_and_a_function(tmp_path: Path, call: str) -> None:
    path = tmp_path / "storage.toml"
    sql = GOOD[GOOD.index("sql =") : GOOD.index("[rules.pages]")]
    path.write_text(GOOD.replace(sql, f'call = "{call}"\n'))
    with pytest.raises(ConfigError, match="write it like my_storage:add_page"):
        read_config(path)


@pytest.mark.parametrize("content", [b"a = = 1", b"\xff", b"[a", b"x" * 5_000_000], ids=range(4))
def test_what_is_no_toml_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "storage.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"storage\.toml (is not valid TOML|is too large)"):
        read_config(path)


def test_what_is_written_reads_the_same(tmp_path: Path) -> None:
    texts = [
        "a 'quoted' \"one\"",
        "two\nlines",
        "ends with '\nquote'",
        "'''\nthree",
        "tab\t\x7f\x01",
        "back\\slash\n",
    ]
    config = Config(
        connections={"a": ConnectionSpec("x://${NAME}"), "b-2": ConnectionSpec(texts[0])},
        commands={
            **{f"c{number}": CommandSpec(connection="a", sql=each) for number, each in enumerate(texts)},
            "many": CommandSpec(connection="a", sql=("INSERT INTO a VALUES (1)" * 5, "SELECT 2")),
            "call": CommandSpec(connection="a", call="m:f", folder="/x"),
        },
        rules={
            "r": RuleSpec(crawler="x*", store=(StoreSpec(query=texts[1], commands=("call", "many")),) * 2)
        },
    )
    path = tmp_path / "storage.toml"
    write_config(path, config)
    assert read_config(path) == config
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(GOOD)
    assert as_toml(read_config(path)).startswith('[connections.main]\nurl = "sqlite:///pages.db"\n')


def test_merging_puts_the_new_in_place_of_the_old() -> None:
    old = Config(connections={"a": ConnectionSpec("1"), "b": ConnectionSpec("2")})
    new = Config(connections={"b": ConnectionSpec("3"), "c": ConnectionSpec("4")})
    assert {name: each.url for name, each in merged(old, new).connections.items()} == {
        "a": "1",
        "b": "3",
        "c": "4",
    }


def test_file_is_read_when_it_changes_and_a_broken_one_is_only_told(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "storage.toml")
    assert (file.look(), file.config, file.fault) == (False, Config(), "")
    file.path.write_text(GOOD)
    assert (file.look(), list(file.config.rules)) == (True, ["pages"])
    assert not file.look()
    file.path.write_text(GOOD + "x")
    assert (file.look(), list(file.config.rules)) == (True, ["pages"])
    assert "is not valid TOML" in file.fault
    file.path.unlink()
    assert (file.look(), file.config, file.fault) == (True, Config(), "")
