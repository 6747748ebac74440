"""`sterna host`: a host for a site, as a server or as a CGI program."""

import asyncio
import logging
import os
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from sterna.cli.keys import DEFAULT_FOLDER, KeysOption, keyring_of
from sterna.errors import StorageError, UsageError
from sterna.host.config import HostConfig
from sterna.host.keyring import Keyring
from sterna.host.policy import ALLOWED, AllowedHomes, allow
from sterna.host.setup import HostFile, config_of, format_host_file
from sterna.web.clock import SystemClock
from sterna.wire.keys import Identity

DEFAULT_LISTEN = "127.0.0.1:8470"
SELF = "this-machine"

app = typer.Typer(
    help="Take in crawlers of others at your own site.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

_Site = Annotated[str, typer.Option("--site", metavar="URL", help="The site, as visitors know it.")]
_Root = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="Read pages from this document root.")
]
_Aliases = Annotated[
    list[str] | None,
    typer.Option("--alias", metavar="/URL=DIR", help="A folder that the web server serves under this path."),
]
_Upstream = Annotated[
    str,
    typer.Option(
        "--upstream",
        metavar="URL",
        help="The web server as it is reached from here. (default: the site's port on this machine)",
    ),
]
_Check = Annotated[
    str,
    typer.Option(
        "--check",
        metavar="every|folder|never",
        help="Ask the web server about each file of the root, the first of each kind in a folder, or none.",
    ),
]
_PolicyFile = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="What is allowed, as a policy.toml.")
]
_State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="For sessions and parcels. (default: ~/.local/state/sterna)"),
]
_Endpoint = Annotated[
    str,
    typer.Option("--endpoint", metavar="URL", help="Where homes reach this host. (default: SITE/sterna)"),
]
_CaFile = Annotated[
    str, typer.Option("--ca-file", metavar="FILE", help="Trust these certificates at the web server instead.")
]


@app.command()
def run(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    site: _Site,
    root: _Root = None,
    alias: _Aliases = None,
    upstream: _Upstream = "",
    check: _Check = "",
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="ADDR", help="HOST:PORT, or unix:PATH."),
    ] = DEFAULT_LISTEN,
    policy: _PolicyFile = None,
    keys: KeysOption = Path(DEFAULT_FOLDER),
    state: _State = None,
    endpoint: _Endpoint = "",
    ca_file: _CaFile = "",
    allow_self: Annotated[
        bool, typer.Option("--allow-self", help="Allow the home of this keys folder: for trials.")
    ] = False,
) -> None:
    """Run a host beside the web server, which passes /sterna and /.well-known/sterna on to it.

    Nobody is let in until his key is allowed: sterna keys allow KEY --name NAME. Ctrl-C stops cleanly.
    """
    written = HostFile(
        site=site,
        root=str(root or ""),
        aliases=_aliases(alias),
        upstream=upstream,
        check=check,
        policy=str(policy or ""),
        keys=str(keyring_of(keys).folder),
        state=str(_state(state, site)),
        endpoint=endpoint,
        ca_file=ca_file,
    )
    config = config_of(written)
    keyring = Keyring(config.keys)
    identity = keyring.read_or_make("host")
    if allow_self:
        allow(config.keys / ALLOWED, keyring.read_or_make("home").public, SELF)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    with _listener(listen) as listener:
        uvloop.run(_serve(config, identity, keyring, listener))


@app.command("cgi")
def write_cgi(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The program to write.")],
    site: _Site,
    root: _Root = None,
    alias: _Aliases = None,
    upstream: _Upstream = "",
    check: _Check = "",
    policy: _PolicyFile = None,
    keys: KeysOption = Path(DEFAULT_FOLDER),
    state: _State = None,
    endpoint: _Endpoint = "",
    ca_file: _CaFile = "",
) -> None:
    """Write a CGI program that is a host, and its configuration beside it.

    Write it as the user as whom the web server runs CGI programs: he must be able to read the key.
    """
    written = HostFile(
        site=site,
        root=str(root.absolute() if root else ""),
        aliases={url: str(Path(folder).absolute()) for url, folder in _aliases(alias).items()},
        upstream=upstream,
        check=check,
        policy=str(policy.absolute() if policy else ""),
        keys=str(keyring_of(keys).folder.absolute()),
        state=str(_state(state, site).absolute()),
        endpoint=endpoint or f"{config_site(site)}/cgi-bin/{file.name}",
        ca_file=ca_file,
    )
    config = config_of(written)
    identity = Keyring(config.keys).read_or_make("host")
    beside = file.absolute().with_name(f"{file.name}.toml")
    program = f"#!{sys.executable} -P\nfrom sterna.host.cgi import main\n\nmain({str(beside)!r})\n"
    try:
        beside.write_text(format_host_file(written))
        file.write_text(program)
        file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError as error:
        raise StorageError(f"{error.filename} cannot be written: {error.strerror}") from error
    for line in (f"program   {file}", f"settings  {beside}", *_about(config, identity)):
        _say(line)


def config_site(site: str) -> str:
    """The site as it is written everywhere; ConfigError if it cannot be."""
    return config_of(HostFile(site=site, state=".", keys=".")).site


async def _serve(config: HostConfig, identity: Identity, keyring: Keyring, listener: socket.socket) -> None:
    # Starting a server takes its time, and whoever asks for help should not wait for it.
    from sterna.host.asgi import serve  # noqa: PLC0415
    from sterna.host.locks import lock  # noqa: PLC0415
    from sterna.host.service import Service  # noqa: PLC0415

    service = Service(
        config,
        identity=identity,
        clock=SystemClock(),
        successions=keyring.successions("host"),
        announce=_tell,
    )
    if lock(config.state / "lock") is None:
        raise UsageError(f"another host works in {config.state}: name another folder with --state")
    trouble = await _try_source(config)
    circumstances = await asyncio.to_thread(_circumstances, listener)
    for line in (*_about(config, identity), *trouble, *circumstances):
        _say(line)
    await serve(service, endpoint=config.address, listener=listener)
    _say("stopped")


# -- what is said at the start -----------------------------------------------------------------------------


def _about(config: HostConfig, identity: Identity) -> list[str]:
    return [
        f"site      {config.site}",
        f"endpoint  {config.address}",
        f"key       {identity.public.text}",
        f"pages     {_source(config)}",
        *_allowed(config),
    ]


def _source(config: HostConfig) -> str:
    if config.root is None:
        return f"over HTTP from {config.upstream or 'the web server on this machine'}"
    return f"files in {config.root}" + ("" if config.check == "never" else ", held against the web server")


def _allowed(config: HostConfig) -> list[str]:
    homes = AllowedHomes(config.keys, config.policy).names()
    if not homes:
        folder = "" if config.keys == Path(DEFAULT_FOLDER).expanduser() else f" --keys {config.keys}"
        return [f"allowed   nobody yet: sterna keys allow KEY --name NAME{folder}"]
    return [f"allowed   {name}  {key}" for key, name in homes.items()]


async def _try_source(config: HostConfig) -> list[str]:
    """What is wrong with the source of pages but may come right; ConfigError for what cannot be."""
    from sterna.host.source import check_source  # noqa: PLC0415 - only a host that runs has to know
    from sterna.host.upstream import Upstream  # noqa: PLC0415

    check_source(config)
    if config.root and config.check == "never":
        return []
    upstream = Upstream.of(config.site, config.upstream)
    if await upstream.is_there():
        return []
    return [f"warning   no web server at {upstream.address}:{upstream.port}: name it with --upstream URL"]


def _circumstances(listener: socket.socket) -> list[str]:
    from sterna.runtime.jail import protection  # noqa: PLC0415 - only a host that runs has to know

    offered = protection()
    jail = "seccomp" if offered.has_seccomp else "none: crawlers with rules are refused (see sterna doctor)"
    return [f"jail      {jail}", f"listens   {_name_of(listener)}"]


def _name_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    return f"unix:{name}" if isinstance(name, str) else f"{name[0]}:{name[1]}"


# -- what the flags say ------------------------------------------------------------------------------------


def _aliases(given: list[str] | None) -> dict[str, str]:
    found = {}
    for text in given or ():
        url, sign, folder = text.partition("=")
        if not sign or not folder:
            raise UsageError(f"--alias {text} cannot be: write it as /files=DIR")
        found[url] = folder
    return found


def _state(given: Path | None, site: str) -> Path:
    if given:
        return given
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "sterna" / config_site(site).partition("://")[2].replace(":", "_")


def _listener(written: str) -> socket.socket:
    """A socket that listens there; UsageError if it cannot."""
    try:
        if written.startswith("unix:"):
            return _unix_listener(Path(written.removeprefix("unix:")))
        host, _, port = written.rpartition(":")
        if not port.isdigit():
            raise UsageError(
                f"--listen {written} cannot be: write it as 127.0.0.1:8470 or unix:/run/sterna.sock"
            )
        return socket.create_server((host.strip("[]") or "127.0.0.1", int(port)), family=_family(host))
    except (OSError, OverflowError) as error:
        raise UsageError(f"--listen {written} cannot be: {error}") from error


def _unix_listener(path: Path) -> socket.socket:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()  # left behind by a host that was killed
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o660)
    listener.listen()
    return listener


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _tell(line: str) -> None:
    """Says it if anybody still listens: a visit must not end with the terminal of its host."""
    with suppress(OSError):
        _say(line)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
