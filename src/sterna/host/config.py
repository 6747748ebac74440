"""A host's configuration: for which site, where the pages come from, its policy; from flags or a file."""

import json
import re
from pathlib import Path

import msgspec

from sterna import toml
from sterna.errors import ConfigError
from sterna.host.policy.policy import HostLimits, Policy, read_policy
from sterna.web.urls import Canonical

SETTINGS = "host.toml"  # the file in the folder of a site

_canonical = Canonical(())


class HostConfig(msgspec.Struct, frozen=True, kw_only=True):
    site: str  # an origin, such as https://www.example.org
    endpoint: str = ""  # the absolute URL of the host; "": {site}/sterna
    root: Path | None = None  # the document root; None: all pages come over HTTP
    # Folders outside the root that the web server serves, by the path of the URL, such as /files.
    aliases: tuple[tuple[str, Path], ...] = ()
    upstream: str = ""  # the web server as reached from here, such as http://127.0.0.1:8080
    check: str = ""  # how files are checked against the web server, see `site.source.CHECKS`
    kinds: tuple[str, ...] = ()  # of files that are shown without a web server, besides `kinds.PUBLISHED`
    ca_file: str = ""  # certificates to trust at the upstream, instead of the system's
    policy: Policy = Policy()
    policy_file: Path | None = None  # where the policy was read, to read it again when it changes
    state: Path
    keys: Path
    limits: HostLimits = HostLimits()
    gives_way: bool = False  # its processes run only when a core is idle

    @property
    def address(self) -> str:
        return self.endpoint.rstrip("/") or f"{self.site}/sterna"


class HostFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The flags of `sterna host`; the file in a site's folder, or beside a CGI program, holds the same."""

    site: str
    state: str = ""  # in a file: its own folder
    keys: str = ""  # in a file: the folder `keys` beside it
    endpoint: str = ""
    root: str = ""
    aliases: dict[str, str] = {}
    upstream: str = ""
    check: str = ""
    kinds: tuple[str, ...] = ()
    ca_file: str = ""
    policy: str = ""  # a file


def read_host_file(path: Path) -> HostConfig:
    """The configuration in a TOML file; paths are relative to its folder. ConfigError if it is invalid."""
    text, written = toml.read(path)
    try:
        return config_of(_placed(toml.convert(written, HostFile, ()), path.absolute().parent))
    except toml.Wrong as wrong:
        raise ConfigError(toml.complaint(path, text, wrong)) from wrong


def _placed(written: HostFile, folder: Path) -> HostFile:
    """The same with absolute paths."""

    def place(path: str) -> str:
        return str(folder / path) if path else ""

    return msgspec.structs.replace(
        written,
        root=place(written.root),
        aliases={url: place(path) for url, path in written.aliases.items()},
        ca_file=place(written.ca_file),
        policy=place(written.policy),
        state=place(written.state or "."),
        keys=place(written.keys or "keys"),
    )


def sites_in(folder: Path) -> list[Path]:
    """The settings of the site in a folder, or of the sites in its folders; ConfigError if there are none."""
    if (folder / SETTINGS).exists():
        return [folder / SETTINGS]
    found = sorted(folder.glob(f"*/{SETTINGS}"))
    if not found:
        raise ConfigError(f"no site is in {folder}: sterna host init --site URL --into {folder}/NAME")
    return found


def format_host_file(written: HostFile) -> str:
    """The same as TOML; JSON strings are TOML strings."""
    fields = msgspec.to_builtins(written)
    aliases = fields.pop("aliases", {})
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    if aliases:
        lines += ["", "[aliases]", *(f"{json.dumps(url)} = {json.dumps(to)}" for url, to in aliases.items())]
    return "\n".join(lines) + "\n"


def config_of(written: HostFile) -> HostConfig:
    """The configuration with absolute paths; ConfigError if the site, the endpoint or a folder is invalid."""
    policy = read_policy(Path(written.policy)) if written.policy else Policy()
    return HostConfig(
        site=_site(written.site),
        endpoint=_endpoint(written.endpoint),
        root=_folder("root", written.root) if written.root else None,
        aliases=tuple(_alias(url, folder) for url, folder in written.aliases.items()),
        upstream=written.upstream.rstrip("/"),
        check=written.check,
        kinds=written.kinds,
        ca_file=written.ca_file,
        policy=policy,
        policy_file=Path(written.policy).absolute() if written.policy else None,
        limits=policy.limits,
        gives_way=policy.load.machine > 0,  # an owner who does not measure the load need not give way
        state=Path(written.state).absolute(),
        keys=Path(written.keys).absolute(),
    )


def _site(written: str) -> str:
    if not re.search(r"[.:]|^localhost$", written):  # one word is more often a typing error than a hostname
        raise ConfigError(f"site {written!r} is not an origin: write it as https://www.example.org")
    url = _canonical(written if "://" in written else f"https://{written}")
    if url is None or url.count("/") != 3 or not url.endswith("/"):
        raise ConfigError(f"site {written!r} is not an origin: write it as https://www.example.org")
    return url.rstrip("/")


def _endpoint(written: str) -> str:
    url = _canonical(written) if written else ""
    if url is None or "?" in url:
        raise ConfigError(f"endpoint {written!r} is invalid: write it as https://www.example.org/sterna")
    return url.rstrip("/")


def _alias(url: str, folder: str) -> tuple[str, Path]:
    if not url.startswith("/"):
        raise ConfigError(f"alias {url!r} does not begin with /: write it as /files=DIR")
    return url, _folder("alias", folder)


def _folder(what: str, written: str) -> Path:
    path = Path(written).absolute()
    if not path.is_dir():
        raise ConfigError(f"{what} {written} is not a folder")
    return path
