"""What an owner allows: his file, his list, and what a home is granted."""

from pathlib import Path

import pytest

from sterna.errors import ConfigError
from sterna.host.keyring import ALLOWED, allow, read_allowed
from sterna.host.policy.policy import Caps, Policy, read_policy
from sterna.host.policy.terms import AllowedHomes, granted
from sterna.model import Budget
from sterna.wire.keys import Identity, PublicKey


def key() -> PublicKey:
    return Identity.new().public


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def test_policy_names_homes_by_key_with_rules_of_their_own(tmp_path: Path) -> None:
    ada, bob = key(), key()
    text = f"""
        connections = 2
        delay_seconds = 0.5
        closed = ["/intern/"]
        [budget]
        pages = 500
        [homes]
        ada = "{ada.text}"
        [homes.bob]
        key = "{bob.text}"
        obey_robots = false
        budget = {{ pages = 9 }}
    """
    policy = read_policy(write(tmp_path, text))
    homes = AllowedHomes(tmp_path, policy)
    assert (policy.connections, policy.delay_seconds, policy.closed) == (2, 0.5, ("/intern/",))
    of_ada, of_bob = homes.terms(ada), homes.terms(bob)
    assert of_ada
    assert (of_ada.name, of_ada.obey_robots, of_ada.caps.pages) == ("ada", True, 500)
    assert of_bob
    assert (of_bob.name, of_bob.obey_robots, of_bob.caps.pages) == ("bob", False, 9)
    assert homes.terms(key()) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("connections = 0", "1 to 64"),
        ("connections = 'many'", "int"),
        ("delay_seconds = -1", "0 to 3600"),
        ("delay_seconds = nan", "0 to 3600"),
        ("closed = ['intern']", "does not begin with /"),
        ("pages = 3", "unknown field"),
        ("[homes]\nada = 'ed25519:short'", "the key of ada"),
        ("[homes]\n'a b' = 'ed25519:x'", "one word"),
        ("[budget]\npages = -1", "0 (no limit) or more"),
        ("[", "policy.toml"),
        ("closed = ['\udc00']".encode("utf-8", "surrogatepass").decode("latin-1"), "policy.toml"),
    ],
)
def test_policy_that_cannot_be_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        read_policy(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_policy_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml"):
        read_policy(tmp_path / "none.toml")


def test_nobody_is_allowed_before_a_key_is(tmp_path: Path) -> None:
    homes = AllowedHomes(tmp_path, Policy())
    assert homes.terms(key()) is None
    assert homes.names() == {}


def test_allowing_a_home_needs_no_restart(tmp_path: Path) -> None:
    ada, bob = key(), key()
    homes = AllowedHomes(tmp_path, Policy())
    assert homes.terms(ada) is None
    allow(tmp_path / ALLOWED, ada, "ada")
    assert homes.terms(ada)
    allow(tmp_path / ALLOWED, bob, "bob")
    assert homes.names() == {ada.text: "ada", bob.text: "bob"}
    (tmp_path / ALLOWED).unlink()
    assert homes.terms(ada) is None


def test_list_is_private_and_a_home_stands_in_it_once(tmp_path: Path) -> None:
    ada = key()
    path = tmp_path / "new" / ALLOWED
    allow(path, ada, "ada")
    allow(path, ada, "countess")
    assert read_allowed(path) == {ada.text: "countess"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_line_that_is_no_key_allows_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ada = key()
    path = tmp_path / ALLOWED
    path.write_text(f"# mine\n\n{ada.text} ada\ned25519:zzz mallory\n\x00\xff\n*\n{ada.text[:-1]} eve\n")
    assert read_allowed(path) == {ada.text: "ada"}
    assert "allowed:4: not a key" in caplog.text


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a\nb", "\x1b[31m"])
def test_name_must_fit_in_a_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a name for a home"):
        allow(tmp_path / ALLOWED, key(), name)


def test_home_is_granted_the_lesser_of_its_wish_and_the_cap() -> None:
    asked = Budget(pages=10, seconds=1e9, depth=0, requests=0, cpu_seconds=5.0, patience_seconds=1e9)
    caps = Caps(pages=100, seconds=60.0, requests=7, cpu_seconds=0.0, memory_bytes=0, facts=3)
    found = granted(asked, caps)
    assert (found.pages, found.seconds, found.depth) == (10, 60.0, 0)
    assert (found.requests, found.cpu_seconds, found.memory_bytes, found.facts) == (7, 5.0, 0, 3)
    assert found.patience_seconds == 60.0
