"""`sterna host init`: writes what a host beside a web server needs, checks it, and says what to run next."""

import getpass
import os
import pwd
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, get_args

from sterna.cli.exits import Exit
from sterna.cli.flags import option, switch
from sterna.cli.host_options import config_site, state_of
from sterna.cli.lines import say, warn
from sterna.errors import StorageError, UsageError
from sterna.host.config import HostFile, config_of
from sterna.host.files import make_folder
from sterna.host.owner.rehearsal import rehearse
from sterna.host.owner.setup import CLOSED_TO_UNITS, POLICY, STATE, Server, Setup, configuration_of

USER = "sterna"  # of a host that root sets up


def init(
    site: Annotated[str, option("URL", "The site, as visitors know it.")],
    root: Annotated[Path | None, option("DIR", "Read pages from this document root.")] = None,
    into: Annotated[Path | None, option("DIR", "The folder to write into. (default: the host's own)")] = None,
    keys: Annotated[
        Path | None,
        option("DIR", "The folder of keys. (default: keys, beside the rest)", envvar="STERNA_KEYS"),
    ] = None,
    server: Annotated[
        str, option("nginx|apache", "The web server. (default: the one on this machine that has the site)")
    ] = "",
    listen: Annotated[str, option("ADDR", "Where the host listens: HOST:PORT.")] = "127.0.0.1:8470",
    user: Annotated[
        str, option("NAME", "As whom the host runs. (default: you; sterna if you are root)")
    ] = "",
    force: Annotated[bool, switch("Replace files that are there.", "--force")] = False,
) -> None:
    """Write settings, a policy, a systemd unit and a proxy snippet for a host, and check them.

    It prints the commands that put them to use. Nothing outside the folder is changed.
    """
    user = user or (USER if os.geteuid() == 0 else getpass.getuser())
    usual = state_of(None, site)
    if os.geteuid() == 0 and user != "root":  # who cannot read what is in /root
        usual = STATE / usual.name
    folder = (into or usual).expanduser().absolute()
    hostname = config_site(site).partition("://")[2].partition(":")[0]
    setup = Setup(
        settings=HostFile(
            site=config_site(site),
            root=str(root.absolute()) if root else "",
            policy=POLICY,
            keys=str(keys.expanduser().absolute()) if keys else "",
        ),
        folder=folder,
        keys=keys.expanduser().absolute() if keys else folder / "keys",
        server=_server(server, hostname),
        user=user,
        program=_program(),
        interpreter=Path(sys.executable).resolve(),
        listen=listen,
    )
    config_of(HostFile(site=site, root=setup.settings.root))  # before anything is written
    if user != getpass.getuser():
        _check_readable(setup)
    files = setup.files()
    _write(folder, files, force=force)
    make_folder(setup.keys)
    if os.geteuid() == 0 and _is_user(user):
        for path in (folder, setup.keys, *(folder / name for name in files)):
            shutil.chown(path, user, pwd.getpwnam(user).pw_gid)
    say(*(f"written   {folder / name}" for name in files))
    tried = rehearse(folder, setup.server, setup.snippet)
    for each in tried:
        if each.fault:
            warn(f"{each.file}: {each.by} found: {each.fault}")
        elif each.by:
            say(f"checked   {each.file} ({each.by})")
        else:
            say(f"unchecked {each.file}: the program that reads it is not on this machine")
    if any(each.fault for each in tried):
        raise SystemExit(int(Exit.NOTHING))
    commands = setup.commands(
        is_root=os.geteuid() == 0,
        has_user=_is_user(setup.user),
        has_systemd=Path("/run/systemd/system").is_dir(),
        configuration=configuration_of(hostname, setup.server),
    )
    say("next:", *(f"  {command}" for command in commands))


def _server(given: str, hostname: str) -> Server:
    servers: tuple[Server, ...] = get_args(Server)
    if given:
        if given not in servers:
            raise UsageError(f"--server {given} is invalid: it is nginx or apache")
        return next(each for each in servers if each == given)
    has_site = (each for each in servers if configuration_of(hostname, each))
    programs = {"nginx": ("nginx",), "apache": ("apache2", "httpd")}
    is_here = (each for each in servers if any(map(shutil.which, programs[each])))
    return next(has_site, next(is_here, "nginx"))


def _program() -> Path:
    """The command `sterna` that runs this one: units call it by its path."""
    beside = Path(sys.executable).parent / "sterna"
    found = beside if beside.exists() else Path(shutil.which("sterna") or beside)
    return found.absolute()


def _check_readable(setup: Setup) -> None:
    """Raises UsageError if the host's user cannot read the program, which lies in somebody's home."""
    for path in (setup.program, setup.interpreter):
        if any(path.is_relative_to(closed) for closed in CLOSED_TO_UNITS):
            raise UsageError(
                f"the user {setup.user} cannot run {path}, which lies in a home folder: install with"
                " 'PYTHON=/usr/bin/python3 scripts/install-host', or name with --user who may run it"
            )


def _is_user(name: str) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


def _write(folder: Path, files: dict[str, str], *, force: bool) -> None:
    there = [folder / name for name in files if (folder / name).exists()]
    if there and not force:
        raise UsageError(f"{there[0]} exists: nothing was written; --force replaces it")
    make_folder(folder)
    for name, text in files.items():
        try:
            (folder / name).write_text(text)
        except OSError as error:
            raise StorageError(f"cannot write {folder / name}: {error.strerror}") from error
