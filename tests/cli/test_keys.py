"""`sterna keys`: keys are made once, shown, renewed with the old one's word, and allowed by name."""

import re
from pathlib import Path

import pytest
from tests.crawl.running import sterna

from sterna.host.keyring import Keyring
from sterna.wire.keys import follows

KEY = re.compile(r"ed25519:[A-Za-z0-9_-]{43}")


def keys(folder: Path, *words: str) -> tuple[int, str, str]:
    result = sterna("keys", *words, "--keys", folder)
    return result.returncode, result.stdout, result.stderr


def test_new_key_is_private_and_shown(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "keys"
    code, out, _ = keys(folder, "new", "home")
    assert code == 0
    key = KEY.search(out)
    assert key
    assert keys(folder, "show", "home") == (0, f"{key[0]}\n", "")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "home.key").stat().st_mode & 0o777 == 0o600
    assert "secret" not in out
    keys(folder, "new", "host")
    assert [line.split()[0] for line in keys(folder, "show")[1].splitlines()] == ["home", "host"]


def test_key_is_never_overwritten(tmp_path: Path) -> None:
    keys(tmp_path, "new", "host")
    before = (tmp_path / "host.key").read_bytes()
    code, _, error = keys(tmp_path, "new", "host")
    assert code == 1
    assert "exists" in error
    assert (tmp_path / "host.key").read_bytes() == before


def test_renewed_key_is_signed_by_the_old_one(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    keys(tmp_path, "new", "host")
    found = [keyring.read("host").public]
    for _ in range(3):
        assert keys(tmp_path, "new", "host", "--replace")[0] == 0
        found.append(keyring.read("host").public)
    assert len(set(found)) == 4
    chain = keyring.successions("host")
    for pinned in found:
        assert follows(pinned, found[-1], chain)
    assert (tmp_path / "host.key").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host.key", "host.successions"]


def test_chain_leads_on_after_an_interrupted_renewal(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    first = keyring.make("host").public
    secret = (tmp_path / "host.key").read_bytes()
    keyring.replace("host")
    (tmp_path / "host.key").write_bytes(secret)  # the chain was written, the key was not
    now = keyring.replace("host").public
    assert follows(first, now, keyring.successions("host"))


def test_renewing_needs_a_key(tmp_path: Path) -> None:
    code, _, error = keys(tmp_path, "new", "home", "--replace")
    assert (code, len(error.splitlines())) == (1, 1)
    assert "no key" in error


def test_homes_are_allowed_and_listed(tmp_path: Path) -> None:
    assert "no home is allowed" in keys(tmp_path, "list")[1]
    home = Keyring(tmp_path / "other").make("home").public.text
    code, out, _ = keys(tmp_path, "allow", home, "--name", "ada")
    assert (code, out) == (0, "ada may send crawlers here\n")
    assert keys(tmp_path, "list")[1] == f"{home}  ada\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("allow", "ed25519:abc", "--name", "x"), "cannot allow"),
        (("allow", "ssh-ed25519", "--name", "x"), "cannot allow"),
        (("allow", "ed25519:" + "A" * 43, "--name", "a b"), "one word"),
        (("new", "station"), "neither home nor host"),
        (("show",), "create one with"),
        (("show", "home"), "no key"),
    ],
)
def test_wrong_words_are_answered_in_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    code, _, error = keys(tmp_path, *words)
    assert code in (1, 2)
    assert len(error.splitlines()) == 1
    assert said in error


def test_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_KEYS", str(tmp_path / "elsewhere"))
    assert sterna("keys", "new", "home").returncode == 0
    assert (tmp_path / "elsewhere" / "home.key").exists()
