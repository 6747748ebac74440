"""`sterna host cgi`: writes a host as a CGI program."""

import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.host_options import (
    AliasOption,
    CaFileOption,
    CheckOption,
    EndpointOption,
    PolicyOption,
    RootOption,
    SiteOption,
    StateOption,
    UpstreamOption,
    about,
    aliases_of,
    config_site,
    say,
    state_of,
)
from sterna.cli.keys import DEFAULT_FOLDER, KeysOption, keyring_of
from sterna.errors import StorageError
from sterna.host.config import HostFile, config_of, format_host_file
from sterna.host.keyring import Keyring


def write_cgi(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The program to write.")],
    site: SiteOption,
    root: RootOption = None,
    alias: AliasOption = None,
    upstream: UpstreamOption = "",
    check: CheckOption = "",
    policy: PolicyOption = None,
    keys: KeysOption = Path(DEFAULT_FOLDER),
    state: StateOption = None,
    endpoint: EndpointOption = "",
    ca_file: CaFileOption = "",
) -> None:
    """Write a CGI program that is a host, and its configuration beside it.

    Write it as the user as whom the web server runs CGI programs: he must be able to read the key.
    """
    written = HostFile(
        site=site,
        root=str(root.absolute() if root else ""),
        aliases={url: str(Path(folder).absolute()) for url, folder in aliases_of(alias).items()},
        upstream=upstream,
        check=check,
        policy=str(policy.absolute() if policy else ""),
        keys=str(keyring_of(keys).folder.absolute()),
        state=str(state_of(state, site).absolute()),
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
    for line in (f"program   {file}", f"settings  {beside}", *about(config, identity)):
        say(line)
