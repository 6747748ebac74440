"""Flags that describe a host and find its folder, shared by the commands of `sterna host`."""

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sterna.cli.flags import parameter
from sterna.cli.keys import KeysOption, keyring_of
from sterna.errors import UsageError
from sterna.host.config import HostConfig, HostFile, config_of
from sterna.host.policy.terms import AllowedHomes
from sterna.wire.keys import DEFAULT_KEYS, Identity

SiteOption = Annotated[str, typer.Option("--site", metavar="URL", help="The site, as visitors know it.")]
_SOURCE = {
    "root": (
        Annotated[
            Path | None, typer.Option("--root", metavar="DIR", help="Read pages from this document root.")
        ],
        None,
    ),
    "alias": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--alias", metavar="/URL=DIR", help="A folder that the web server serves under this path."
            ),
        ],
        None,
    ),
    "upstream": (
        Annotated[
            str,
            typer.Option(
                "--upstream",
                metavar="URL",
                help="The web server as it is reached from here. (default: the site's port on this machine)",
            ),
        ],
        "",
    ),
    "check": (
        Annotated[
            str,
            typer.Option(
                "--check",
                metavar="every|folder|never",
                help="Ask the web server about each file of the root, the first of each kind in a folder, or"
                " none.",
            ),
        ],
        "",
    ),
    "policy": (
        Annotated[
            Path | None, typer.Option("--policy", metavar="FILE", help="What is allowed, as a policy.toml.")
        ],
        None,
    ),
    "ca_file": (
        Annotated[
            str,
            typer.Option(
                "--ca-file", metavar="FILE", help="Trust these certificates at the web server instead."
            ),
        ],
        "",
    ),
}
KeysFlag: tuple[Any, Any] = (KeysOption, Path(DEFAULT_KEYS))
StateFlag: tuple[Any, Any] = (
    Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="DIR", help="For sessions and parcels. (default: ~/.local/state/sterna)"
        ),
    ],
    None,
)
EndpointFlag: tuple[Any, Any] = (
    Annotated[
        str,
        typer.Option("--endpoint", metavar="URL", help="Where homes reach this host. (default: SITE/sterna)"),
    ],
    "",
)

# Of a host that was run before.
OwnStateOption = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="The host's folder. (default: the only one there is)"),
]
OwnSiteOption = Annotated[str, typer.Option("--site", metavar="URL", help="Its site, instead of its folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def host_flags(**more: tuple[Any, Any]) -> Iterator[inspect.Parameter]:
    """The flags that describe a host: its site, its source of pages, and those in `more`."""
    yield parameter("site", SiteOption)
    for name, (annotation, default) in {**_SOURCE, **more}.items():
        yield parameter(name, annotation, default)


def host_file(flags: dict[str, Any], *, is_absolute: bool = False) -> HostFile:
    """The settings that such flags say; absolute for a host that runs in another folder."""
    place: Callable[[Path], Path] = Path.absolute if is_absolute else lambda path: path
    root, policy = flags["root"], flags["policy"]
    aliases = aliases_of(flags["alias"])
    return HostFile(
        site=flags["site"],
        root=str(place(root)) if root else "",
        aliases={url: str(place(Path(folder))) for url, folder in aliases.items()},
        upstream=flags["upstream"],
        check=flags["check"],
        policy=str(place(policy)) if policy else "",
        keys=str(place(keyring_of(flags.get("keys", Path(DEFAULT_KEYS))).folder)),
        state=str(place(state_of(flags.get("state"), flags["site"]))),
        endpoint=flags.get("endpoint", ""),
        ca_file=flags["ca_file"],
    )


def aliases_of(given: list[str] | None) -> dict[str, str]:
    """URL paths and their folders, as --alias names them."""
    found = {}
    for text in given or ():
        url, sign, folder = text.partition("=")
        if not sign or not folder:
            raise UsageError(f"--alias {text} is invalid: write it as /files=DIR")
        found[url] = folder
    return found


# -- the folder of a host ----------------------------------------------------------------------------------


def config_site(site: str) -> str:
    """The canonical form of a site; raises ConfigError."""
    return config_of(HostFile(site=site, state=".", keys=".")).site


def state_of(given: Path | None, site: str) -> Path:
    """The folder of a site's host: the given one, or the default."""
    return given or state_base() / config_site(site).partition("://")[2].replace(":", "_")


def state_base() -> Path:
    """The folder that contains the folders of hosts by default."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "sterna"


def only_folder(
    state: Path | None, site: str, *, is_one: Callable[[Path], bool], missing: str, several: str
) -> Path:
    """The folder of the host that is named, or of the only one on this machine; UsageError otherwise."""
    if state or site:
        return state_of(state, site)
    base = state_base()
    found = sorted(path for path in base.iterdir() if is_one(path)) if base.is_dir() else []
    if not found:
        raise UsageError(missing.format(base=base))
    if len(found) > 1:
        names = ", ".join(str(path) for path in found[:5])
        raise UsageError(f"{several}: name one with --state, such as {names}")
    return found[0]


# -- the host in words -------------------------------------------------------------------------------------


def about(config: HostConfig, identity: Identity) -> list[str]:
    """The host in a few lines."""
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
    allowed = AllowedHomes(config.keys, config.policy)
    homes = allowed.names()
    if allowed.is_open:
        return ["allowed   everybody, as the policy says"]
    if not homes:
        folder = "" if config.keys == Path(DEFAULT_KEYS).expanduser() else f" --keys {config.keys}"
        return [f"allowed   nobody yet: sterna keys allow KEY --name NAME{folder}"]
    return [f"allowed   {name}  {key}" for key, name in homes.items()]
