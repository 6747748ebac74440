"""Tries a host's files with the programs that will read them, as far as these are on this machine."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from sterna.errors import ConfigError
from sterna.host.config import SETTINGS, read_host_file
from sterna.host.owner.setup import UNIT, Server
from sterna.model import Record

TRY_SECONDS = 30.0
APACHE_MODULES = Path("/usr/lib/apache2/modules")

_NGINX = """\
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    server {{
        listen unix:{folder}/socket;
        include "{snippet}";
    }}
}}
"""
_APACHE = """\
ServerRoot {folder}
ServerName localhost
PidFile {folder}/pid
ErrorLog {folder}/errors
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule env_module {modules}/mod_env.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_http_module {modules}/mod_proxy_http.so
Listen 127.0.0.1:9
<VirtualHost *>
    Include "{snippet}"
</VirtualHost>
"""


class Tried(Record, frozen=True):
    """A file, by which program it was tried, and what that found; "": nothing is wrong."""

    file: str
    by: str  # "": the program is not here
    fault: str = ""


def rehearse(folder: Path, server: Server, snippet: Path) -> list[Tried]:
    """Tries the settings with their policy, the unit and the snippet."""
    return [_try_settings(folder), _try_unit(folder / UNIT), _try_snippet(server, snippet)]


def _try_settings(folder: Path) -> Tried:
    file = f"{SETTINGS} and its policy"
    try:
        read_host_file(folder / SETTINGS)
    except ConfigError as error:
        return Tried(file, "sterna", str(error))
    return Tried(file, "sterna")


def _try_unit(unit: Path) -> Tried:
    program = shutil.which("systemd-analyze")
    if program is None:
        return Tried(unit.name, "")
    # Other units of the machine may have faults of their own.
    told = _said(program, "verify", "--man=no", str(unit))
    ours = [line for line in told.splitlines() if unit.stem in line]
    return Tried(unit.name, "systemd-analyze", "; ".join(ours))


def _try_snippet(server: Server, snippet: Path) -> Tried:
    names = ("nginx",) if server == "nginx" else ("apache2", "httpd")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None or (server == "apache" and not APACHE_MODULES.is_dir()):
        return Tried(snippet.name, "")
    with tempfile.TemporaryDirectory(prefix="sterna-") as name:
        conf = Path(name) / "try.conf"
        text = _NGINX if server == "nginx" else _APACHE
        conf.write_text(text.format(folder=name, snippet=snippet, modules=APACHE_MODULES))
        if server == "nginx":
            errors = Path(name) / "errors"
            told = _said(program, "-t", "-q", "-p", name, "-e", str(errors), "-c", str(conf))
        else:
            told = _said(program, "-t", "-f", str(conf))
    return Tried(snippet.name, Path(program).name, "" if "Syntax OK" in told else _one_line(told))


def _said(*command: str) -> str:
    """What a program says that finds a fault."""
    try:
        done = subprocess.run(  # noqa: S603 - programs of the machine, files of ours
            command, capture_output=True, text=True, errors="replace", timeout=TRY_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} takes longer than {TRY_SECONDS:g} s"
    return "" if done.returncode == 0 else done.stdout + done.stderr or f"{command[0]} failed"


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())
