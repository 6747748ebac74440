"""The owner's file: what is wrong is named by line and field; a host that runs takes over what is right."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import ConfigError
from sterna.host.policy.policy import Policy, PolicyFile, read_policy
from sterna.host.policy.terms import AllowedHomes, terms_of
from sterna.toml import line_of
from sterna.wire.keys import Identity

KEY = Identity.new().public
FULL = f"""\
zone = "Europe/Vienna"
open = "allowed"
hours = ["daily 22:00-06:00"]
outside_hours = "refuse"
closed = ["/intranet/"]

[load]
machine = 0.5
latency_ms = 40

[budget]
pages = 1_000

[day]
pages = 5_000
visits = 3

[[priority]]
least = 3
budget = {{ pages = 2_000 }}

[[priority]]
least = 7
budget = {{ pages = 9_000, seconds = 60 }}

[homes.engine-a]
key = "{KEY.text}"
hours = ["Mon 00:00-04:00"]
outside_hours = "keep"
budget = {{ pages = 500 }}
day = {{ visits = 9 }}
load = {{ machine = 0.25 }}
closed = ["/drafts/"]
obey_robots = false

[homes.engine-c]
never = true
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def test_home_has_what_its_table_says_and_else_what_holds_for_all(tmp_path: Path) -> None:
    policy = read_policy(write(tmp_path, FULL))
    own = AllowedHomes(tmp_path, policy).terms(KEY)
    assert own
    assert (own.name, own.outside_hours, own.obey_robots, own.never) == ("engine-a", "keep", False, False)
    assert (own.caps.pages, own.caps.seconds) == (500, 3600.0)
    assert (own.day.visits, own.day.pages) == (9, 5_000)
    assert (own.load.machine, own.load.latency_ms) == (0.25, 40)
    assert own.closed == ("/intranet/", "/drafts/")
    assert str(own.zone) == "Europe/Vienna"
    other = terms_of(policy, "other")
    assert (other.caps.pages, other.day.visits, other.load.machine, other.closed) == (
        1000,
        3,
        0.5,
        ("/intranet/",),
    )


@pytest.mark.parametrize(
    ("offered", "pages", "seconds", "owed"),
    [
        (0, 1000, 3600.0, 0),
        (2, 1000, 3600.0, 0),
        (3, 2000, 3600.0, 3),
        (6, 2000, 3600.0, 3),
        (7, 9000, 60.0, 7),
        (10, 9000, 60.0, 7),
    ],
)
def test_promise_earns_the_budget_of_the_highest_that_it_reaches(
    tmp_path: Path, offered: int, pages: int, seconds: float, owed: int
) -> None:
    terms = terms_of(read_policy(write(tmp_path, FULL)), "other", priority=offered)
    assert (terms.caps.pages, terms.caps.seconds, terms.priority) == (pages, seconds, owed)


def test_what_is_said_of_a_home_holds_before_its_promise(tmp_path: Path) -> None:
    own = AllowedHomes(tmp_path, read_policy(write(tmp_path, FULL))).terms(KEY, priority=9)
    assert own
    assert (own.caps.pages, own.caps.seconds) == (500, 60.0)


def test_table_without_a_key_is_for_the_home_that_was_allowed_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "allowed").write_text(f"{KEY.text} engine-c\n")
    policy = read_policy(write(tmp_path, "[homes.engine-c]\nnever = true\n"))
    terms = AllowedHomes(tmp_path, policy).terms(KEY)
    assert terms
    assert terms.never
    assert AllowedHomes(tmp_path, policy).terms(Identity.new().public) is None


def test_open_to_everybody_takes_strangers_on_the_terms_of_all(tmp_path: Path) -> None:
    policy = read_policy(
        write(tmp_path, f"open = 'everybody'\n[homes.bad]\nkey = '{KEY.text}'\nnever = true\n")
    )
    homes = AllowedHomes(tmp_path, policy)
    stranger = Identity.new().public
    terms = homes.terms(stranger)
    assert terms
    assert (terms.name, terms.never) == (stranger.id, False)
    named = homes.terms(KEY)
    assert named
    assert named.never


# -- what is wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "wrong", "field", "words"),
    [
        (1, 'zone = "Vienna"', "zone", "unknown zone"),
        (2, 'open = "all"', "open", "Invalid enum value"),
        (3, 'hours = ["Mon"]', "hours", "malformed hours"),
        (3, "hours = [1]", "hours.0", "Expected `str`, got `int`"),
        (4, 'outside_hours = "wait"', "outside_hours", "Invalid enum value"),
        (8, "machine = 1.5", "load.machine", "0 to 1"),
        (8, "machin = 0.5", "load.machin", "unknown field"),
        (9, "latency_ms = -1", "load.latency_ms", "0 to 60000"),
        (9, 'probe = "x"', "load.probe", "a path of the site"),
        (12, "pages = -5", "budget.pages", "0 (no limit) or more"),
        (12, "pages = nan", "budget.pages", "Expected `int`, got `float`"),
        (12, "seconds = nan", "budget.seconds", "0 (no limit) or more"),
        (15, "pages = 'all'", "day.pages", "Expected `int`, got `str`"),
        (19, "least = 11", "priority.0.least", "1 to 10"),
        (24, "budget = { pages = -9 }", "priority.1.budget.pages", "0 (no limit) or more"),
        (24, "budget = { page = 9 }", "priority.1.budget.page", "unknown field"),
        (27, 'key = "ed25519:short"', "homes.engine-a.key", "the key of engine-a is invalid"),
        (28, 'hours = ["Noday 00:00-04:00"]', "homes.engine-a.hours", "is not a day"),
        (30, "budget = { pages = -1 }", "homes.engine-a.budget.pages", "0 (no limit) or more"),
        (33, 'closed = ["drafts"]', "homes.engine-a.closed", "does not begin with /"),
        (33, 'crawlers = ["health"]', "homes.engine-a.crawlers", "neither the digest of a program nor a key"),
        (34, "obey_robot = false", "homes.engine-a.obey_robot", "unknown field"),
        (37, "never = 1", "homes.engine-c.never", "Expected `bool`, got `int`"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_field(
    tmp_path: Path, line: int, wrong: str, field: str, words: str
) -> None:
    lines = FULL.splitlines()
    lines[line - 1] = wrong
    path = write(tmp_path, "\n".join(lines))
    with pytest.raises(ConfigError) as caught:
        read_policy(path)
    said = str(caught.value)
    assert said.startswith(f"{path}, line {line}, {field}: ")
    assert words in said
    assert "\n" not in said


def test_number_of_too_many_digits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"policy\.toml is not valid TOML: a number in it has too many digits"
    ):
        read_policy(write(tmp_path, f"connections = {'9' * 5_000}\n"))


@pytest.mark.parametrize(
    "text",
    [
        '"a\\nb" = 1\n',
        '[homes."\\u001b[2J"]\nx = 1\n',
        f"robots_name = '{'x' * 5_000}'\n",
        f"[{'b.' * 900}b]\n" * 2,
    ],
)
def test_complaint_is_one_line_whatever_the_file_says(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_policy(write(tmp_path, text))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2_100


def test_what_is_no_toml_is_said_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.toml is not valid TOML: .*line 2"):
        read_policy(write(tmp_path, "zone = 'UTC'\nhours = [}\n"))


def test_one_key_is_one_home(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 3, homes\.b: has the same key as a"):
        read_policy(write(tmp_path, f"[homes]\na = '{KEY.text}'\nb = '{KEY.text}'\n"))


@given(st.text(max_size=300))
def test_any_text_is_a_policy_or_a_sentence(text: str) -> None:
    with TemporaryDirectory() as folder:  # a fixture is not made anew for each text
        path = Path(folder) / "policy.toml"
        path.write_text(text, errors="surrogatepass")
        try:
            read_policy(path)
        except ConfigError as error:
            assert str(error).startswith(str(path))


def test_line_of_a_value_in_no_line_is_none() -> None:
    assert line_of("a = 1\n", ("b", "c")) == 0
    assert line_of("", ()) == 0


# -- while a host runs -------------------------------------------------------------------------------------


class Ticking:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 10.0
        return self.time


def change(path: Path, text: str) -> None:
    path.write_text(text)
    stamp = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(stamp, stamp))  # however coarse the times of this file system are


def test_change_is_taken_over_once(tmp_path: Path) -> None:
    path = write(tmp_path, "connections = 2\n")
    file = PolicyFile(path, read_policy(path), now=Ticking())
    assert (file.look(), file.look()) == ("", "")
    change(path, "connections = 3\n")
    assert (file.look(), file.policy.connections) == ("changed", 3)
    assert file.look() == ""


def test_broken_file_keeps_the_policy_and_is_told_once(tmp_path: Path) -> None:
    path = write(tmp_path, "connections = 2\n")
    file = PolicyFile(path, read_policy(path), now=Ticking())
    change(path, "connections = 99\n")
    assert (file.look(), file.policy.connections) == ("broken", 2)
    assert "line 1, connections: 99 is out of range" in file.fault
    os.utime(path)
    assert file.look() == ""  # the same fault again
    change(path, "connections = [\n")
    assert file.look() == "broken"
    change(path, "connections = 2\n")
    assert (file.look(), file.fault) == ("changed", "")


def test_file_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "connections = 2\n")
    file = PolicyFile(path, read_policy(path), now=Ticking())
    assert file.look() == ""
    path.unlink()
    assert (file.look(), file.policy.connections) == ("broken", 2)
    assert "cannot read" in file.fault


def test_file_is_not_looked_at_more_than_once_a_second(tmp_path: Path) -> None:
    path = write(tmp_path, "connections = 2\n")
    now = [100.0]
    file = PolicyFile(path, read_policy(path), now=lambda: now[0])
    assert file.look() == ""
    change(path, "connections = 3\n")
    now[0] += 0.9
    assert file.look() == ""
    now[0] += 0.2
    assert file.look() == "changed"


def test_policy_without_a_file_stays(tmp_path: Path) -> None:
    assert PolicyFile(None, Policy(), now=Ticking()).look() == ""
