"""Flags that describe a host and find its folder, shared by the commands of `sterna host`."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from sterna.cli.flags import option
from sterna.cli.keys import KeysOption, keyring_of
from sterna.errors import UsageError
from sterna.host.config import SETTINGS, HostConfig, HostFile, config_of, read_host_file
from sterna.host.policy.terms import AllowedHomes
from sterna.wire.keys import DEFAULT_KEYS, Identity

# Of a host that was run before.
OwnStateOption = Annotated[Path | None, option("DIR", "The host's folder. (default: the only one there is)")]
OwnSiteOption = Annotated[str, option("URL", "Its site, instead of its folder.")]


@dataclass(frozen=True, slots=True)
class HostFlags:
    """The flags that describe a host; each field is one, with its default."""

    site: Annotated[str, option("URL", "The site, as visitors know it.")]
    root: Annotated[Path | None, option("DIR", "Read pages from this document root.")] = None
    alias: Annotated[
        list[str] | None, option("/URL=DIR", "A folder that the web server serves under this path.")
    ] = None
    upstream: Annotated[
        str,
        option(
            "URL", "The web server as it is reached from here. (default: the site's port on this machine)"
        ),
    ] = ""
    check: Annotated[
        str,
        option(
            "every|folder|never",
            "Ask the web server about each file of the root, the first of each kind in a folder, or none.",
        ),
    ] = ""
    kind: Annotated[
        list[str] | None,
        option("EXT", "With --check never: show files of this kind too, such as json or tar.gz."),
    ] = None
    policy: Annotated[Path | None, option("FILE", "What is allowed, as a policy.toml.")] = None
    ca_file: Annotated[str, option("FILE", "Trust these certificates at the web server instead.")] = ""
    keys: KeysOption = Path(DEFAULT_KEYS)
    state: Annotated[
        Path | None, option("DIR", "For sessions and parcels. (default: ~/.local/state/sterna)")
    ] = None
    endpoint: Annotated[str, option("URL", "Where homes reach this host. (default: SITE/sterna)")] = ""

    def file(self, *, is_absolute: bool = False) -> HostFile:
        """The settings that they say; absolute for a host that runs in another folder."""
        place: Callable[[Path], Path] = Path.absolute if is_absolute else lambda path: path
        aliases = {}
        for text in self.alias or ():
            url, _, folder = text.partition("=")
            if not folder:
                raise UsageError(f"--alias {text} is invalid: write it as /files=DIR")
            aliases[url] = str(place(Path(folder)))
        return HostFile(
            site=self.site,
            root=str(place(self.root)) if self.root else "",
            aliases=aliases,
            upstream=self.upstream,
            check=self.check,
            kinds=tuple(self.kind or ()),
            policy=str(place(self.policy)) if self.policy else "",
            keys=str(place(keyring_of(self.keys).folder)),
            state=str(place(state_of(self.state, self.site))),
            endpoint=self.endpoint,
            ca_file=self.ca_file,
        )


def host_flags(*, without: tuple[str, ...] = ()) -> list[inspect.Parameter]:
    return [
        each.replace(kind=each.KEYWORD_ONLY)
        for each in inspect.signature(HostFlags).parameters.values()
        if each.name not in without
    ]


# -- the folder of a host ----------------------------------------------------------------------------------


def config_site(site: str) -> str:
    """The canonical form of a site; raises ConfigError."""
    return config_of(HostFile(site=site, state=".", keys=".")).site


def state_of(given: Path | None, site: str) -> Path:
    """The folder of a site's host: the given one, or the default."""
    return given or _state_base() / config_site(site).partition("://")[2].replace(":", "_")


def _state_base() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "sterna"


def only_folder(
    state: Path | None, site: str, *, is_one: Callable[[Path], bool], missing: str, several: str
) -> Path:
    """The folder of the host that is named, or of the only one on this machine; UsageError otherwise."""
    if state or site:
        folder = state_of(state, site)
        # In the folder of a site the state may lie elsewhere.
        return read_host_file(folder / SETTINGS).state if (folder / SETTINGS).exists() else folder
    base = _state_base()
    found = sorted(path for path in base.iterdir() if is_one(path)) if base.is_dir() else []
    if not found:
        raise UsageError(missing.format(base=base))
    if len(found) > 1:
        names = ", ".join(str(path) for path in found[:5])
        raise UsageError(f"{several}: name one with --state, such as {names}")
    return found[0]


def shown(config: HostConfig) -> str:
    """Which files of a document root are shown without a web server."""
    more = f" and {', '.join(config.kinds)}" if config.kinds else ""
    return f"of kinds that sites publish{more}; --kind EXT adds others"


def about(config: HostConfig, identity: Identity) -> list[str]:
    pages = f"over HTTP from {config.upstream or 'the web server on this machine'}"
    if config.root is not None:
        checked = f", {shown(config)}" if config.check == "never" else ", checked against the web server"
        pages = f"files in {config.root}{checked}"
    allowed = AllowedHomes(config.keys, config.policy)
    homes = [f"{name}  {key}" for key, name in allowed.names().items()]
    if allowed.is_open:
        homes = ["everybody, as the policy says"]
    elif not homes:
        folder = "" if config.keys == Path(DEFAULT_KEYS).expanduser() else f" --keys {config.keys}"
        homes = [f"nobody yet: sterna keys allow KEY --name NAME{folder}"]
    return [
        f"site      {config.site}",
        f"endpoint  {config.address}",
        f"key       {identity.public.text}",
        f"pages     {pages}",
        *(f"allowed   {each}" for each in homes),
    ]
