"""A real Apache on a free loopback port: CGI, passwords, mod_status and .htaccess as a site has them."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.nginx import PortTaken, free_ports, start_server, stop_server

_MODULES_FOLDER = Path("/usr/lib/apache2/modules")
_MODULES = (
    "mpm_prefork", "authn_core", "authn_file", "authz_core", "authz_host", "authz_user", "auth_basic",
    "alias", "autoindex", "cgi", "dir", "env", "headers", "info", "mime", "negotiation", "proxy",
    "proxy_http", "remoteip", "rewrite", "setenvif", "status",
)  # fmt: skip
_TRIES = 5

# Apache does not serve as root. In a namespace of users root is somebody else, and still can what root could.
_IS_ROOT = os.geteuid() == 0
_WWW_DATA = "User www-data\nGroup www-data\n" if _IS_ROOT else ""
_NOT_AS_ROOT = ("unshare", "--user", "--map-user=1000", "--map-group=1000") if _IS_ROOT else ()

# Whoever sends this header is, for every rule of the server, at the address that it names.
OUTSIDE_HEADER = "X-Outside"


@dataclass(frozen=True, slots=True)
class ApacheServer:
    """A running Apache."""

    url: str
    log_path: Path
    error_path: Path
    pid: int


@contextmanager
def open_folder() -> Iterator[Path]:
    """A new folder that the server's user can read too, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="site-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextmanager
def serve(
    root: Path,
    *,
    folder: Path,
    aliases: Mapping[str, Path] | None = None,
    extra: str = "",
    is_ours: bool = False,
) -> Iterator[ApacheServer]:
    """Serve a folder, and others under paths of their own, until the block ends.

    Apache writes only into `folder`, which its user must be able to read; `extra` is more configuration. The
    user is www-data for root, or with `is_ours` whoever runs the tests, whose programs CGI can start then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for attempt in range(_TRIES):
        (port,) = free_ports(1)
        conf = folder / "apache.conf"
        text = _configure(root, port, folder=folder, aliases=aliases or {}, extra=extra)
        conf.write_text(text + ("" if is_ours else _WWW_DATA))
        try:
            process = start_server(
                [*(_NOT_AS_ROOT if is_ours else ()), "apache2", "-DFOREGROUND", "-f", str(conf)],
                log=folder / "error.log",
                pid=folder / "apache.pid",
                port=port,
            )
            break
        except PortTaken:
            if attempt == _TRIES - 1:
                raise
    try:
        yield ApacheServer(
            url=f"http://127.0.0.1:{port}",
            log_path=folder / "access.log",
            error_path=folder / "error.log",
            pid=process.pid,
        )
    finally:
        stop_server(process)


def _configure(root: Path, port: int, *, folder: Path, aliases: Mapping[str, Path], extra: str) -> str:
    return f"""\
ServerRoot {folder}
ServerName www.example.test
{_load(_MODULES)}
Listen 127.0.0.1:{port}
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
Mutex file:{folder} default
ErrorLog {folder}/error.log
LogFormat "%t %a \\"%r\\" %>s %O" hits
CustomLog {folder}/access.log hits
StartServers 2
MinSpareServers 1
MaxSpareServers 8
MaxRequestWorkers 32
MaxKeepAliveRequests 0
GracefulShutdownTimeout 1
TypesConfig /etc/mime.types
DirectoryIndex index.html
AccessFileName .htaccess
RemoteIPHeader {OUTSIDE_HEADER}
RemoteIPInternalProxy 127.0.0.1
<Directory />
    Require all denied
</Directory>
<FilesMatch "^\\.ht">
    Require all denied
</FilesMatch>
DocumentRoot {root}
{_open(root)}
{"".join(f"Alias {path} {target}{chr(10)}{_open(target)}{chr(10)}" for path, target in aliases.items())}
{extra}
"""


def _open(folder: Path) -> str:
    return f"""\
<Directory {folder}>
    Options FollowSymLinks
    AllowOverride All
    Require all granted
</Directory>"""


def _load(modules: Sequence[str]) -> str:
    return "\n".join(f"LoadModule {name}_module {_MODULES_FOLDER}/mod_{name}.so" for name in modules)
