"""What the commands of `sterna host` have in common: flags that describe a host, and its own words."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.keys import DEFAULT_FOLDER
from sterna.errors import UsageError
from sterna.host.config import HostConfig, HostFile, config_of
from sterna.host.policy.terms import AllowedHomes
from sterna.wire.keys import Identity

SiteOption = Annotated[str, typer.Option("--site", metavar="URL", help="The site, as visitors know it.")]
RootOption = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="Read pages from this document root.")
]
AliasOption = Annotated[
    list[str] | None,
    typer.Option("--alias", metavar="/URL=DIR", help="A folder that the web server serves under this path."),
]
UpstreamOption = Annotated[
    str,
    typer.Option(
        "--upstream",
        metavar="URL",
        help="The web server as it is reached from here. (default: the site's port on this machine)",
    ),
]
CheckOption = Annotated[
    str,
    typer.Option(
        "--check",
        metavar="every|folder|never",
        help="Ask the web server about each file of the root, the first of each kind in a folder, or none.",
    ),
]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="What is allowed, as a policy.toml.")
]
StateOption = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="For sessions and parcels. (default: ~/.local/state/sterna)"),
]
EndpointOption = Annotated[
    str,
    typer.Option("--endpoint", metavar="URL", help="Where homes reach this host. (default: SITE/sterna)"),
]
CaFileOption = Annotated[
    str, typer.Option("--ca-file", metavar="FILE", help="Trust these certificates at the web server instead.")
]


# -- what the flags say ------------------------------------------------------------------------------------


def aliases_of(given: list[str] | None) -> dict[str, str]:
    """URL paths and their folders, as --alias names them."""
    found = {}
    for text in given or ():
        url, sign, folder = text.partition("=")
        if not sign or not folder:
            raise UsageError(f"--alias {text} cannot be: write it as /files=DIR")
        found[url] = folder
    return found


def config_site(site: str) -> str:
    """The site as it is written everywhere; ConfigError if it cannot be."""
    return config_of(HostFile(site=site, state=".", keys=".")).site


def state_of(given: Path | None, site: str) -> Path:
    """The folder of state of a site's host, given or usual."""
    return given or state_base() / config_site(site).partition("://")[2].replace(":", "_")


def state_base() -> Path:
    """Where hosts keep their state unless told otherwise."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "sterna"


# -- what is said ------------------------------------------------------------------------------------------


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
        folder = "" if config.keys == Path(DEFAULT_FOLDER).expanduser() else f" --keys {config.keys}"
        return [f"allowed   nobody yet: sterna keys allow KEY --name NAME{folder}"]
    return [f"allowed   {name}  {key}" for key, name in homes.items()]


def say(line: str) -> None:
    """A line on stdout, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
