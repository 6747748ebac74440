"""The files that an owner needs for a host beside a web server, and the commands that put them to use."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from sterna.errors import UsageError
from sterna.host.config import SETTINGS, HostFile, format_host_file

Server = Literal["nginx", "apache"]

POLICY, UNIT = "policy.toml", "sterna-host.service"
SNIPPETS: dict[Server, tuple[str, str]] = {  # the template, and the file made of it
    "nginx": ("nginx.conf", "sterna-nginx.conf"),
    "apache": ("apache-proxy.conf", "sterna-apache.conf"),
}
RELOAD: dict[Server, str] = {"nginx": "nginx -t && nginx -s reload", "apache": "apache2ctl graceful"}
_PLACES: dict[Server, tuple[str, ...]] = {
    "nginx": ("nginx/sites-enabled/*", "nginx/conf.d/*.conf", "nginx/nginx.conf"),
    "apache": ("apache2/sites-enabled/*", "httpd/conf.d/*.conf"),
}
_NAMES: dict[Server, str] = {"nginx": r"server_name\s[^;]*", "apache": r"Server(?:Name|Alias)\s.*"}
CLOSED_TO_UNITS = ("/home", "/root", "/run/user")  # by ProtectHome=yes
STATE = Path("/var/lib/sterna")  # which StateDirectory creates


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A host that is to be set up; all paths are absolute."""

    settings: HostFile  # with the folders that are not the usual ones
    folder: Path
    keys: Path
    server: Server
    user: str  # as whom the host runs
    program: Path  # the command `sterna`
    interpreter: Path = Path("/usr/bin/python3")  # that runs it, without symbolic links
    listen: str = "127.0.0.1:8470"

    @property
    def hostname(self) -> str:
        return urlsplit(self.settings.site).hostname or ""

    @property
    def snippet(self) -> Path:
        return self.folder / SNIPPETS[self.server][1]

    def files(self) -> dict[str, str]:
        """Their texts by name; UsageError if a path cannot be written in them."""
        return {
            SETTINGS: self._settings(),
            POLICY: self._policy(),
            UNIT: self._unit(),
            self.snippet.name: self._snippet(),
        }

    def _settings(self) -> str:
        heading = (
            f"# The host of {self.settings.site}: `sterna host run --sites {self.folder}`.\n"
            "# Paths are relative to this folder. A running host reads changes at its next start.\n"
        )
        return heading + format_host_file(self.settings)

    def _policy(self) -> str:
        text = _changed(template(POLICY), {"/etc/sterna/policy.toml": str(self.folder / POLICY)})
        return _changed(
            text, {'closed = ["/internal/", "/intranet/"]': 'closed = []  # such as ["/intranet/"]'}
        )

    def _snippet(self) -> str:
        text = _changed(template(SNIPPETS[self.server][0]), {"127.0.0.1:8470": self.listen})
        return text.replace("/etc/nginx/snippets/sterna.conf", str(self.snippet))

    def _unit(self) -> str:
        start = [self.program, "host", "run", "--sites", self.folder, "--listen", self.listen]
        words = [_word(str(each)) for each in start]
        text = template(UNIT)
        text = text[text.index("[Unit]") :]
        text = re.sub(r"^Documentation=.*\n", "", text, flags=re.M)  # where that lies, only packages know
        text = re.sub(
            r"^ExecStart=(?:.*\\\n)*.*$", lambda _: f"ExecStart={' '.join(words)}", text, flags=re.M
        )
        text = _changed(text, {"User=sterna": f"User={self.user}", "www.example.org": self.hostname})
        written = [self.folder] if self.keys.is_relative_to(self.folder) else [self.folder, self.keys]
        if not all(path.is_relative_to(STATE) for path in written):
            paths = " ".join(_word(str(path)) for path in written)
            text = _changed(
                text, {"StateDirectory=sterna\nStateDirectoryMode=0700\n": f"ReadWritePaths={paths}\n"}
            )
        read = [self.folder, self.keys, self.program, self.interpreter, Path(self.settings.root or "/")]
        if any(path.is_relative_to(closed) for path in read for closed in CLOSED_TO_UNITS):
            text = _changed(text, {"ProtectHome=yes": "ProtectHome=read-only"})
            text = text.replace("# `read-only` if the document root is in /home.\n", "")
        heading = "# systemd: keeps the host running; written by `sterna host init`.\n\n"
        return heading + text

    # -- what is done next ---------------------------------------------------------------------------------

    def commands(
        self, *, is_root: bool, has_user: bool, has_systemd: bool, configuration: Path | None
    ) -> list[str]:
        """What is to be run next, in this order; lines that begin with # are for reading."""
        sudo = "" if is_root else "sudo "
        as_user = f"runuser -u {self.user} -- " if is_root else ""
        folder, program = shlex.quote(str(self.folder)), shlex.quote(str(self.program))
        commands = []
        if not has_user:
            useradd = f"useradd --system --user-group --home-dir {STATE} {self.user}"
            commands.append(f"{sudo}{useradd} && {sudo}chown -R {self.user}: {folder}")
        if has_systemd:
            unit = shlex.quote(str(self.folder / UNIT))
            commands.append(f"{sudo}cp {unit} /etc/systemd/system/ && {sudo}systemctl enable --now {UNIT}")
        else:
            commands.append(f"{as_user}{program} host run --sites {folder} --listen {self.listen} &")
        commands += self._proxy_commands(sudo, configuration)
        commands.append(f"curl {self.settings.site}/.well-known/sterna")
        keys = shlex.quote(str(self.keys))
        commands.append(f"{as_user}{program} keys allow KEY --name NAME --keys {keys}")
        return commands

    def _proxy_commands(self, sudo: str, configuration: Path | None) -> list[str]:
        snippet = f'"{self.snippet}"' if " " in str(self.snippet) else str(self.snippet)
        include = f"include {snippet};" if self.server == "nginx" else f"Include {snippet}"
        reload = " && ".join(f"{sudo}{each}" for each in RELOAD[self.server].split(" && "))
        modules = [f"{sudo}a2enmod proxy proxy_http"] if self.server == "apache" else []
        if configuration is None:
            block = "server block" if self.server == "nginx" else "virtual host"
            return [*modules, f"# in the {block} of {self.hostname}: {include}", reload]
        name = re.escape(self.hostname).replace("/", r"\/")
        directive = "server_name" if self.server == "nginx" else "ServerName"
        edit = shlex.quote(f"/{directive} .*{name}/a {include}")
        return [*modules, f"{sudo}sed -i {edit} {shlex.quote(str(configuration))} && {reload}"]


def template(name: str) -> str:
    """A file of deploy/, as it lies in the package or in a checkout."""
    package = Path(__file__).parents[2]
    for folder in (package / "deploy", package.parents[1] / "deploy"):
        if (folder / name).is_file():
            return (folder / name).read_text()
    raise UsageError(f"deploy/{name} is missing: install Sterna again")


def configuration_of(hostname: str, server: Server, *, etc: Path = Path("/etc")) -> Path | None:
    """The file in which a web server has the site; None if that is none, or not clear."""
    name = re.compile(rf"^\s*{_NAMES[server]}(?<![\w.-]){re.escape(hostname)}(?![\w.-])", re.MULTILINE)
    found = set()
    for pattern in _PLACES[server]:
        for path in etc.glob(pattern):
            if path.is_file() and name.search(path.read_text(errors="replace")):
                found.add(path.resolve())
    return found.pop() if len(found) == 1 else None


def _changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, f"the template does not have {old}"
        text = text.replace(old, new)
    return text


def _word(text: str) -> str:
    """A word of a unit's line."""
    if "\n" in text:
        raise UsageError(f"{text!r} has a line break: no unit can name it")
    if re.fullmatch(r"[\w./:@+-]+", text, re.ASCII):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
