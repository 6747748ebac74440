"""`sterna host init`: files for a site that the programs take, and commands that can be pasted."""

import getpass
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.crawl.running import call

from sterna.cli import host_init
from sterna.host.config import SETTINGS, HostFile, read_host_file
from sterna.host.owner.rehearsal import rehearse
from sterna.host.owner.setup import UNIT, Server, Setup, configuration_of
from sterna.host.policy.policy import Policy

SITE = "https://www.example.org"


def setup_in(folder: Path, *, root: str = "", keys: Path | None = None, server: Server = "nginx") -> Setup:
    settings = HostFile(site=SITE, root=root, policy="policy.toml", keys=str(keys or ""))
    return Setup(
        settings=settings,
        folder=folder,
        keys=keys or folder / "keys",
        server=server,
        user="sterna",
        program=Path("/opt/sterna/bin/sterna"),
        listen="127.0.0.1:9470",
    )


def unit_of(setup: Setup) -> dict[str, str]:
    lines = setup.files()[UNIT].splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


# -- the files ---------------------------------------------------------------------------------------------


def test_unit_starts_the_host_of_the_folder_as_its_user() -> None:
    unit = unit_of(setup_in(Path("/var/lib/sterna/www.example.org")))

    folder = "/var/lib/sterna/www.example.org"
    command = f"/opt/sterna/bin/sterna host run --sites {folder} --listen 127.0.0.1:9470"
    assert unit["ExecStart"] == command
    assert unit["User"] == "sterna"
    assert unit["StateDirectory"] == "sterna"
    assert unit["ProtectHome"] == "yes"
    assert "ReadWritePaths" not in unit


def test_unit_may_write_where_the_host_writes_and_read_what_lies_in_home() -> None:
    unit = unit_of(setup_in(Path("/srv/sterna/a"), keys=Path("/etc/sterna keys"), root="/home/ada/www"))

    assert unit["ReadWritePaths"] == '/srv/sterna/a "/etc/sterna keys"'
    assert unit["ProtectHome"] == "read-only"
    assert "StateDirectory" not in unit


def test_unit_may_read_an_interpreter_in_home_and_names_no_documentation() -> None:
    setup = setup_in(Path("/srv/sterna/a"))
    assert unit_of(setup)["ProtectHome"] == "yes"
    unit = unit_of(replace(setup, interpreter=Path("/home/ada/.pyenv/bin/python3.12")))

    assert unit["ProtectHome"] == "read-only"
    assert "Documentation" not in unit


def test_words_of_a_unit_are_quoted() -> None:
    unit = unit_of(setup_in(Path('/srv/50% "off" $x')))

    assert '--sites "/srv/50%% \\"off\\" $$x" ' in unit["ExecStart"]


def test_snippets_forward_to_where_the_host_listens(tmp_path: Path) -> None:
    for server in ("nginx", "apache"):
        setup = setup_in(tmp_path, server=server)
        text = setup.files()[setup.snippet.name]
        assert "http://127.0.0.1:9470" in text
        assert "8470" not in text


# -- the commands ------------------------------------------------------------------------------------------


def commands(setup: Setup, **fields: object) -> list[str]:
    given = {"is_root": True, "has_user": True, "has_systemd": True, "configuration": None}
    return setup.commands(**given | fields)  # type: ignore[arg-type]


def test_commands_of_root_are_four_and_end_with_letting_a_home_in() -> None:
    conf = Path("/etc/nginx/sites-enabled/www")
    folder = "/var/lib/sterna/www"
    assert commands(setup_in(Path(folder)), configuration=conf) == [
        f"cp {folder}/sterna-host.service /etc/systemd/system/ && systemctl enable --now sterna-host.service",
        f"sed -i '/server_name .*www\\.example\\.org/a include {folder}/sterna-nginx.conf;' {conf}"
        " && nginx -t && nginx -s reload",
        f"curl {SITE}/.well-known/sterna",
        f"runuser -u sterna -- /opt/sterna/bin/sterna keys allow KEY --name NAME --keys {folder}/keys",
    ]


def test_missing_user_is_made_first_and_others_than_root_use_sudo() -> None:
    first, *rest = commands(setup_in(Path("/srv/x y")), is_root=False, has_user=False, has_systemd=False)

    assert first.startswith("sudo useradd ")
    assert first.endswith(" && sudo chown -R sterna: '/srv/x y'")
    assert rest[0] == "/opt/sterna/bin/sterna host run --sites '/srv/x y' --listen 127.0.0.1:9470 &"
    assert rest[1] == '# in the server block of www.example.org: include "/srv/x y/sterna-nginx.conf";'
    assert rest[2] == "sudo nginx -t && sudo nginx -s reload"


def test_edit_of_the_configuration_adds_the_line_to_the_block_of_the_site(tmp_path: Path) -> None:
    sites = tmp_path / "nginx/sites-enabled"
    sites.mkdir(parents=True)
    text = "server {{\n    server_name {};\n}}\n"
    (sites / "www").write_text(text.format("www.example.org example.org"))
    (sites / "other").write_text(text.format("other.example.org www.example.organic"))
    conf = configuration_of("www.example.org", "nginx", etc=tmp_path)
    assert conf == sites / "www"

    edit = next(each for each in commands(setup_in(tmp_path), configuration=conf) if each.startswith("sed"))
    subprocess.run(shlex.split(edit.partition(" && ")[0]), check=True)

    assert f"example.org;\ninclude {tmp_path}/sterna-nginx.conf;\n}}" in (sites / "www").read_text()
    assert (sites / "other").read_text().count("include") == 0


def test_site_in_two_files_is_left_to_the_owner(tmp_path: Path) -> None:
    folder = tmp_path / "apache2/sites-enabled"
    folder.mkdir(parents=True)
    for name in ("one", "two"):
        (folder / name).write_text("<VirtualHost *>\n  ServerName www.example.org\n</VirtualHost>\n")

    assert configuration_of("www.example.org", "apache", etc=tmp_path) is None


# -- the command -------------------------------------------------------------------------------------------


def init(folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    site = folder / "www"
    site.mkdir(exist_ok=True)
    made = folder / "made"
    return call(["host", "init", "--site", SITE, "--root", str(site), "--into", str(made), *more])


@pytest.fixture(autouse=True)
def _no_keys_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STERNA_KEYS", raising=False)
    monkeypatch.setattr(host_init, "CLOSED_TO_UNITS", ())  # the interpreter of these tests may lie in a home


@pytest.mark.servers
@pytest.mark.parametrize("server", ["nginx", "apache"])
def test_all_files_are_ones_that_the_programs_take(tmp_path: Path, server: str) -> None:
    done = init(tmp_path, "--server", server)

    assert (done.returncode, done.stderr) == (0, "")
    checked = [line for line in done.stdout.splitlines() if line.startswith("checked")]
    programs = ["sterna", "systemd-analyze", "nginx" if server == "nginx" else "apache2"]
    assert [line.rpartition("(")[2].rstrip(")") for line in checked] == programs
    config = read_host_file(tmp_path / "made" / SETTINGS)
    assert (config.site, config.root, config.state) == (SITE, tmp_path / "www", tmp_path / "made")
    assert config.policy == Policy()
    assert "# Who: homes that are named below" in (tmp_path / "made/policy.toml").read_text()


@pytest.mark.servers
@pytest.mark.parametrize("name", ["policy.toml", UNIT, "sterna-nginx.conf", "sterna-apache.conf"])
def test_fault_in_a_file_is_found(tmp_path: Path, name: str) -> None:
    server: Server = "apache" if "apache" in name else "nginx"
    assert init(tmp_path, "--server", server).returncode == 0
    path = tmp_path / "made" / name
    fault = "[Service]\nExecStart=/no/such/program\n" if name == UNIT else "broken {\n"
    path.write_text(path.read_text() + fault)

    tried = rehearse(path.parent, server, path.parent / f"sterna-{server}.conf")

    assert len([each for each in tried if each.fault]) == 1
    assert "\n" not in "".join(each.fault for each in tried)


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "policy.toml").write_text("# mine\n")

    done = init(tmp_path, "--server", "nginx")

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "policy.toml exists: nothing was written; --force replaces it" in done.stderr
    assert [path.name for path in made.iterdir()] == ["policy.toml"]
    assert init(tmp_path, "--server", "nginx", "--force").returncode == 0
    assert "# mine" not in (made / "policy.toml").read_text()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--server", "iis"), "--server iis is invalid: it is nginx or apache"),
        (("--site", "ftp://x"), "is not an origin"),
        (("--root", "/no/such"), "root /no/such is not a folder"),
    ],
)
def test_invalid_flag_is_one_line_and_nothing_is_written(
    tmp_path: Path, given: tuple[str, ...], told: str
) -> None:
    done = init(tmp_path, *given)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr
    assert not (tmp_path / "made").exists()


def test_program_that_the_user_of_the_host_cannot_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = Path(sys.executable).resolve()
    monkeypatch.setattr(host_init, "CLOSED_TO_UNITS", (str(interpreter.parent),))

    done = init(tmp_path, "--user", "www-data")

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"the user www-data cannot run {interpreter}" in done.stderr
    assert not (tmp_path / "made").exists()
    assert init(tmp_path, "--user", getpass.getuser(), "--server", "nginx").returncode == 0


def test_files_belong_to_the_user_of_the_host(tmp_path: Path) -> None:
    user = "nobody" if os.geteuid() == 0 else getpass.getuser()  # only root gives files away
    assert init(tmp_path, "--user", user, "--server", "nginx").returncode == 0

    made = tmp_path / "made"
    assert {path.owner() for path in (made, *made.iterdir())} == {user}
