"""A host's configuration as it is written down: flags or a file, checked, with every path made absolute."""

import json
from pathlib import Path

import msgspec

from sterna.errors import ConfigError
from sterna.host.config import Alias, HostConfig, Policy
from sterna.host.policy.policy import read_policy
from sterna.web.urls import Canonical

_canonical = Canonical(())


class HostFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the flags of `sterna host` say; the file beside a CGI program holds the same."""

    site: str
    state: str
    keys: str
    endpoint: str = ""
    root: str = ""
    aliases: dict[str, str] = {}
    upstream: str = ""
    check: str = ""
    ca_file: str = ""
    policy: str = ""  # a file


def read_host_file(path: Path) -> HostConfig:
    """The configuration in a TOML file; ConfigError says what is wrong."""
    try:
        written = msgspec.toml.decode(path.read_bytes(), type=HostFile)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return config_of(written)


def format_host_file(written: HostFile) -> str:
    """The same as TOML; JSON's strings are TOML's."""
    fields = msgspec.to_builtins(written)
    aliases = fields.pop("aliases", {})
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    if aliases:
        lines += ["", "[aliases]", *(f"{json.dumps(url)} = {json.dumps(to)}" for url, to in aliases.items())]
    return "\n".join(lines) + "\n"


def config_of(written: HostFile) -> HostConfig:
    """The configuration; ConfigError if the site, the endpoint or a folder cannot be."""
    policy = read_policy(Path(written.policy)) if written.policy else Policy()
    return HostConfig(
        site=_site(written.site),
        endpoint=_endpoint(written.endpoint),
        root=_folder("root", written.root) if written.root else None,
        aliases=tuple(_alias(url, folder) for url, folder in written.aliases.items()),
        upstream=written.upstream.rstrip("/"),
        check=written.check,
        ca_file=written.ca_file,
        policy=policy,
        policy_file=Path(written.policy).absolute() if written.policy else None,
        limits=policy.limits,
        gives_way=policy.load.machine > 0,  # whoever does not look at the load need not mind others
        state=Path(written.state).absolute(),
        keys=Path(written.keys).absolute(),
    )


def _site(written: str) -> str:
    url = _canonical(written if "://" in written else f"https://{written}")
    if url is None or url.count("/") != 3 or not url.endswith("/"):
        raise ConfigError(f"site {written!r} cannot be: write it as https://www.example.org")
    return url.rstrip("/")


def _endpoint(written: str) -> str:
    url = _canonical(written) if written else ""
    if url is None or "?" in url:
        raise ConfigError(f"endpoint {written!r} cannot be: write it as https://www.example.org/sterna")
    return url.rstrip("/")


def _alias(url: str, folder: str) -> Alias:
    if not url.startswith("/"):
        raise ConfigError(f"alias {url!r} cannot be: write it as /files=DIR")
    return Alias(url, _folder("alias", folder))


def _folder(what: str, written: str) -> Path:
    path = Path(written).absolute()
    if not path.is_dir():
        raise ConfigError(f"{what} {written} is not a folder")
    return path
