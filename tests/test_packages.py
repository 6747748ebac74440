"""What the scripts install works: a checkout, a host in a folder, a wheel, a Debian package, units."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.documents import ROOT, free_port
from tests.servers.hostile import HostileServer
from tests.wheelhouse import make_wheels

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(1200)]

WHAT_PIP_NEEDS = ("sterna", "hatchling", "editables")
PYTHON = f"{sys.base_prefix}/bin/python3"


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which pip installs what is installed here, and nothing else."""
    wheels = make_wheels(tmp_path_factory.mktemp("wheels"), *WHAT_PIP_NEEDS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return kept | wheels | {"PYTHON": PYTHON, "PYTHONDONTWRITEBYTECODE": "1"}


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=environment or None
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_checkout(folder: Path) -> Path:
    """The files of the project as a clone has them, changed ones as they are."""
    listed = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def test_install_without_extras_makes_a_host_and_a_moved_folder_is_mended(
    tmp_path: Path, offline: dict[str, str]
) -> None:
    checkout = copy_checkout(tmp_path / "first")
    run(checkout / "scripts/install", **offline)
    moved = checkout.rename(tmp_path / "second")

    run(moved / "scripts/install", **offline)

    sterna = moved / ".venv/bin/sterna"
    assert "is valid" in run(sterna, "host", "check", moved / "deploy/policy.toml")
    assert run(sterna, "keys", "new", "host", "--keys", tmp_path / "keys").startswith("host  ed25519:")
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<title>tern</title>")
    given = (
        "--site",
        "http://127.0.0.1:9",
        "--root",
        site,
        "--check",
        "never",
        "--state",
        tmp_path / "state",
    )
    assert run(sterna, "host", "index", *given).startswith("1 page ")
    assert not list((moved / ".venv").glob("lib/*/site-packages/duckdb"))


def test_host_in_a_folder_is_what_its_units_call(tmp_path: Path, offline: dict[str, str]) -> None:
    prefix = tmp_path / "opt/sterna"

    said = run(ROOT / "scripts/install-host", prefix, **offline)

    assert f"{prefix}/bin/sterna host init --site" in said
    deploy = prefix / "share/doc/sterna/deploy"
    assert {path.name for path in deploy.iterdir()} == {path.name for path in (ROOT / "deploy").iterdir()}
    for name in ("sterna-host.service", "sterna-index.service"):
        (command,) = re.findall(r"^ExecStart=(\S+)", (deploy / name).read_text(), re.MULTILINE)
        assert command == f"{prefix}/bin/sterna"
    units = [deploy / name for name in ("sterna-host.service", "sterna-index.service", "sterna-index.timer")]
    run("systemd-analyze", "verify", "--man=no", *units)
    assert (run(prefix / "bin/sterna", "host", "check", deploy / "policy.toml")).startswith(str(deploy))


@pytest.mark.parametrize(
    ("prefix", "told"),
    [
        ("relative", "is not an absolute path"),
        ("full", "has other files in it"),
        ("/proc/none", "not writable"),
    ],
)
def test_unusable_folder_is_refused_in_one_line(tmp_path: Path, prefix: str, told: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    given = str(tmp_path / prefix) if prefix == "full" else prefix

    done = subprocess.run(
        [ROOT / "scripts/install-host", given], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_interpreter_in_a_home_folder_is_refused_for_a_host_that_a_unit_starts() -> None:
    with TemporaryDirectory(dir=Path("/root" if os.geteuid() == 0 else Path.home())) as home:
        python = Path(home, "python3")
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
        done = subprocess.run(
            [ROOT / "scripts/install-host", "/nowhere/sterna"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHON": str(python)},
        )

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{python} is in a home folder" in done.stderr
    assert not Path("/nowhere").exists()


def test_wheel_has_the_files_of_deploy(tmp_path: Path, offline: dict[str, str]) -> None:
    (wheel,) = run(ROOT / "scripts/wheel", tmp_path, **offline).splitlines()

    names = run("python3", "-m", "zipfile", "-l", wheel)
    assert "sterna/py.typed" in names
    for path in (ROOT / "deploy").iterdir():
        assert f"sterna/deploy/{path.name}" in names


def test_wheel_has_the_reader_in_c_where_there_is_a_compiler(tmp_path: Path, offline: dict[str, str]) -> None:
    (wheel,) = run(ROOT / "scripts/wheel", tmp_path, **offline).splitlines()
    assert "py3-none-linux_" in wheel
    names = run("python3", "-m", "zipfile", "-l", wheel)
    assert "sterna/web/native/libreader.so" in names
    assert "sterna/web/native/reader.c" not in names


def test_machine_without_a_compiler_installs_and_crawls(tmp_path: Path, offline: dict[str, str]) -> None:
    checkout = copy_checkout(tmp_path / "clone")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "cat", "dirname", "env", "rm", "sh", "touch", "tr", "uname"):
        (tools / name).symlink_to(shutil.which(name) or "")

    said = subprocess.run(
        [checkout / "scripts/install"],
        capture_output=True,
        text=True,
        check=True,
        env={**offline, "PATH": str(tools), "CC": ""},
    )

    assert "the reader in C was not built (no C compiler)" in said.stderr
    told = subprocess.run(
        [checkout / ".venv/bin/sterna", "doctor"], capture_output=True, text=True, check=False
    )
    assert "pages are read    in Python" in told.stdout
    assert "missing: the reader in C was not compiled" in told.stdout
    with HostileServer().run_in_thread() as server:
        server.links = ["/leaf/a"]
        done = run(
            *(sys.executable, "-m", "sterna", "crawl", f"{server.url}/", "--into", tmp_path / "c", "--json"),
            **{**os.environ, "PYTHONPATH": str(checkout / "src")},
        )
    assert json.loads(done.splitlines()[-1])["pages"] == 2


def test_first_stage_of_the_container_builds_from_what_it_copies(
    tmp_path: Path, offline: dict[str, str]
) -> None:
    text = (ROOT / "deploy/Containerfile").read_text()
    stage = text[text.index("AS build") : text.rindex("FROM ")]
    work, opt = tmp_path / "src", tmp_path / "opt/sterna"
    for copied in re.findall(r"^COPY (.*)$", stage, re.MULTILINE):
        *sources, target = copied.split()
        for source in sources:
            path, to = ROOT / source, work / target
            if path.is_dir():  # whose contents are copied
                shutil.copytree(path, to)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)
    (packages, install) = re.findall(r"^RUN (.*)$", stage, re.MULTILINE)
    assert packages.startswith("apt-get ")

    run("sh", "-c", f"cd {work} && {install.replace('/opt/sterna', str(opt))}", **offline)

    assert run(opt / "bin/sterna", "--version").startswith("sterna ")


# -- the Debian package ------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, offline: dict[str, str]) -> Iterator[Path]:
    """The package, installed on this machine until the test ends; the user must be root."""
    assert subprocess.run(["dpkg", "-s", "sterna"], capture_output=True, check=False).returncode, (
        "the package sterna is installed here: dpkg --purge sterna"
    )
    is_same = sys.version_info[:2] == tuple(
        map(int, run("/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])").split())
    )
    environment = offline if is_same else dict(os.environ)  # Debian's Python needs wheels of its own
    (deb,) = run(ROOT / "scripts/deb", tmp_path, **environment | {"PYTHON": "/usr/bin/python3"}).splitlines()
    try:
        run("dpkg", "-i", deb)
        yield Path(deb)
    finally:
        subprocess.run(["dpkg", "--purge", "sterna"], capture_output=True, check=False)


@pytest.mark.alone
def test_package_installs_runs_as_its_user_and_leaves_nothing(installed: Path, tmp_path: Path) -> None:
    unit = Path("/usr/lib/systemd/system/sterna-host.service")
    run("systemd-analyze", "verify", "--man=no", unit)
    assert run("/usr/bin/sterna", "--version").startswith("sterna ")
    assert Path("/var/lib/sterna").owner() == "sterna"
    assert Path("/var/lib/sterna").stat().st_mode & 0o777 == 0o700

    listening, told = run_as_in_its_unit(unit, listen=free_port(), page=free_port())
    assert listening
    assert "key       ed25519:" in told
    assert "jail      seccomp" in told
    assert not run("find", "/var/lib/sterna", "-not", "-user", "sterna")

    policy = Path("/etc/sterna/policy.toml")
    policy.write_text(policy.read_text() + "# mine\n")
    run("dpkg", "-i", installed)  # an upgrade
    assert policy.read_text().endswith("# mine\n")
    run("dpkg", "-r", "sterna")
    assert policy.exists()
    assert Path("/var/lib/sterna/keys/host.key").exists()
    assert not Path("/usr/bin/sterna").is_symlink()
    run("dpkg", "--purge", "sterna")
    for path in ("/etc/sterna", "/var/lib/sterna", "/opt/sterna"):
        assert not Path(path).exists()
    assert subprocess.run(["getent", "passwd", "sterna"], check=False, capture_output=True).returncode


def run_as_in_its_unit(unit: Path, *, listen: int, page: int) -> tuple[bool, str]:
    """What a host says that is started as the unit has it: its command, user, and no privileges."""
    text = unit.read_text().replace("\\\n", " ").replace(":8470", f":{listen}").replace(":8471", f":{page}")
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    (user,) = re.findall(r"^User=(.*)$", text, re.MULTILINE)
    groups = ["--reuid", user, "--regid", user, "--clear-groups"]
    limits = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    words = shlex.split(command.replace("/var/www/html", "/usr/share/doc"))
    lines = []
    with subprocess.Popen(
        ["setpriv", *groups, *limits, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    ) as host:
        assert host.stdout
        for line in host.stdout:
            lines.append(line)
            if line.startswith("listens"):
                break
        host.terminate()
    return lines[-1].startswith("listens"), "".join(lines)
