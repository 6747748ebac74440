"""`sterna host run` and `sterna host cgi`: a host for a site or many, as a server or as a CGI program."""

import asyncio
import logging
import resource
import socket
import stat
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import uvloop

from sterna.cli.flags import argument, option, switch, with_flags
from sterna.cli.flags import listen as listen_on
from sterna.cli.host_options import HostFlags, about, config_site, host_flags
from sterna.cli.lines import say, warn
from sterna.errors import ConfigError, SternaError, StorageError, UsageError
from sterna.host.config import SETTINGS, HostConfig, config_of, format_host_file, read_host_file, sites_in
from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.host.owner.audit import AUDIT, Audit
from sterna.host.owner.control import Doors
from sterna.host.policy.policy import MIB
from sterna.host.premises import Commons
from sterna.version import __version__
from sterna.web.clock import SystemClock
from sterna.web.http_app import is_loopback

if TYPE_CHECKING:
    from sterna.host.service import Service

_TOLD_OF_MANY = ("site", "doors", "warning")
SELF = "this-machine"  # the name under which --allow-self allows the home here


@with_flags(host_flags(without=("site",)))
def run(  # noqa: PLR0913, PLR0917 - each is a flag
    site: Annotated[str, option("URL", "The site, as visitors know it.")] = "",
    sites: Annotated[
        Path | None, option("DIR", "Instead of all flags of a site: its folder, or a folder of many such.")
    ] = None,
    listen: Annotated[str, option("ADDR", "HOST:PORT, or unix:PATH.")] = "127.0.0.1:8470",
    page: Annotated[str, option("ADDR", "Show a status page there, such as 127.0.0.1:8471.")] = "",
    index: Annotated[
        float, option("HOURS", "Read your own site at this interval, for its sitemap. (0: never)", min=0)
    ] = 0.0,
    allow_self: Annotated[
        bool, switch("Allow the home of this keys folder: for trials.", "--allow-self")
    ] = False,
    max_crawlers: Annotated[
        int, option("N", "Of many sites: crawlers at work in all of them together.", min=1)
    ] = 8,
    max_visits: Annotated[
        int, option("N", "Of many sites: visits at work or waiting in all of them.", min=1)
    ] = 64,
    max_memory: Annotated[
        int, option("MB", "Of many sites: memory of all crawlers' rules together.", min=64)
    ] = 1024,
    **flags: Any,
) -> None:
    """Run a host beside the web server, which passes /sterna and /.well-known/sterna on to it.

    Name the site with --site, or with --sites the folder that 'sterna host init' made: also one with the
    folders of many sites, each with its own policy, keys, state and audit log.

    No home is admitted until its key is allowed: sterna keys allow KEY --name NAME. Ctrl-C stops cleanly.
    """
    page_host = page.rpartition(":")[0].strip("[]") or "127.0.0.1"
    if page and page_host != "localhost" and not is_loopback(page_host):
        raise UsageError(
            f"--page {page} is invalid: it must be on this machine, such as 127.0.0.1:8471;"
            " reach it from elsewhere by ssh -L 8471:127.0.0.1:8471"
        )
    if bool(site) == bool(sites):
        raise UsageError("name the site with --site URL, or its folder with --sites DIR")
    if sites and (given := [name for name in flags if name in _given(flags)]):
        raise UsageError(f"--{given[0].replace('_', '-')} is not for --sites: write it into {SETTINGS} there")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    found = _configs(sites) if sites else [config_of(HostFlags(site=site, **flags).file())]
    if page and len(found) > 1:
        raise UsageError("--page shows one site: 'sterna host status --state DIR' shows each of many")
    for config in found if allow_self else ():
        allow(config.keys / ALLOWED, Keyring(config.keys).read_or_make("home").public, SELF)
    commons = Commons()
    if len(found) > 1:
        _raise_descriptors()
        commons = Commons(crawlers=max_crawlers, visits=max_visits, engine_bytes=max_memory * MIB)
    with (
        _listener("--listen", listen) as listener,
        _listener("--page", page) if page else nullcontext() as shown,
    ):
        uvloop.run(_serve(found, commons, listener, shown, index_hours=index))


def _raise_descriptors() -> None:
    """Lets this process open more files than is usual: each site takes about five."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _given(flags: dict[str, Any]) -> set[str]:
    """The flags of a site that were given; the folder of keys may come from the environment."""
    defaults = {each.name: each.default for each in host_flags()}
    return {name for name, value in flags.items() if name != "keys" and value and value != defaults[name]}


def _configs(folder: Path) -> list[HostConfig]:
    """Those of the sites in a folder; one of many that is invalid is left out with a warning."""
    files = sites_in(folder)
    if len(files) == 1:
        return [read_host_file(files[0])]
    found = []
    for file in files:
        try:
            found.append(read_host_file(file))
        except ConfigError as error:
            warn(f"left out: {error}")
    if not found:
        raise ConfigError(f"no site in {folder} has valid settings")
    return found


@with_flags(host_flags())
def write_cgi(file: Annotated[Path, argument("FILE", "The program to write.")], **flags: Any) -> None:
    """Write a CGI program that is a host, and its configuration beside it.

    Run this as the user that the web server uses for CGI programs, who must be able to read the key.
    """
    written = HostFlags(**flags).file(is_absolute=True)
    if not written.endpoint:
        endpoint = f"{config_site(written.site)}/cgi-bin/{file.name}"
        written = msgspec.structs.replace(written, endpoint=endpoint)
    config = config_of(written)
    identity = Keyring(config.keys).read_or_make("host")
    beside = file.absolute().with_name(f"{file.name}.toml")
    program = f"#!{sys.executable} -P\nfrom sterna.host.cgi import main\n\nmain({str(beside)!r})\n"
    try:
        beside.write_text(format_host_file(written))
        file.write_text(program)
        file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
    say(f"program   {file}", f"settings  {beside}", *about(config, identity))


# -- the server --------------------------------------------------------------------------------------------


async def _serve(
    configs: list[HostConfig],
    commons: Commons,
    listener: socket.socket,
    page_listener: socket.socket | None,
    *,
    index_hours: float,
) -> None:
    # The server is slow to load, and --help should not wait for it.
    from sterna.host.asgi import serve  # noqa: PLC0415
    from sterna.host.sites import Sites  # noqa: PLC0415
    from sterna.runtime.cell.jail import protection  # noqa: PLC0415

    offered = await asyncio.to_thread(protection)
    jail = "seccomp" if offered.has_seccomp else "none: crawlers are refused (see sterna doctor)"
    async with AsyncExitStack() as stack:
        services, lines = [], []
        for config in configs:
            try:
                async with AsyncExitStack() as own:
                    service, told = await _open_site(config, commons, own, index_hours=index_hours)
                    stack.push_async_exit(own.pop_all())
            except SternaError as error:
                if len(configs) == 1:
                    raise
                warn(f"left out: {config.site}: {error}")
                continue
            services.append(service)
            is_short = len(configs) > 1
            lines += [line for line in told if not is_short or line.startswith(_TOLD_OF_MANY)]
        if not services:
            raise ConfigError("no site can be served")
        if page_listener:
            await stack.enter_async_context(_page(services[0], configs[0], page_listener))
            lines.append(f"page      http://{_name_of(page_listener)}/")
        lines += [f"jail      {jail}", f"listens   {_name_of(listener)}"]
        served = services[0] if len(services) == 1 else Sites(services)
        await serve(served, listener=listener, on_ready=lambda: say(*lines))
    say("stopped")


async def _open_site(
    config: HostConfig, commons: Commons, stack: AsyncExitStack, *, index_hours: float
) -> tuple["Service", list[str]]:
    """The service of a site, with all that belongs to it until the stack is closed; and lines about it."""
    from sterna.host.files import lock  # noqa: PLC0415
    from sterna.host.owner.control import open_control  # noqa: PLC0415
    from sterna.host.service import Service  # noqa: PLC0415

    if lock(config.state / "lock") is None:
        raise UsageError(f"another host runs in {config.state}: name another folder with --state")
    keyring, clock = Keyring(config.keys), SystemClock()
    identity = keyring.read_or_make("host")
    audit, doors = Audit(config.state / AUDIT, clock=clock), Doors(config.state)
    service = Service(
        config,
        identity=identity,
        clock=clock,
        successions=keyring.successions("host"),
        announce=_tell,
        audit=audit,
        doors=doors,
        commons=commons,
    )
    trouble = await _try_source(config)
    audit.note("host-started", site=config.site, version=__version__, key=identity.public.text)
    stack.callback(audit.note, "host-stopped")
    await stack.enter_async_context(open_control(service, config.state))
    lines = about(config, identity)
    if closure := doors.closure():
        lines.append(f"doors     closed ({closure.reason}): sterna host open lets crawlers in again")
    if index_hours:
        from sterna.host.own.keeper import keeping  # noqa: PLC0415 - it loads the runtime

        await stack.enter_async_context(keeping(config, hours=index_hours, announce=_tell))
    return service, lines + trouble


def _page(
    service: "Service", config: HostConfig, listener: socket.socket
) -> AbstractAsyncContextManager[None]:
    from sterna.host.owner.page import open_page  # noqa: PLC0415 - few hosts show one
    from sterna.host.owner.receipts import HomeTotals  # noqa: PLC0415

    return open_page(service.status, config.state / AUDIT, listener, spared=HomeTotals(config.state))


async def _try_source(config: HostConfig) -> list[str]:
    """A warning if the source of pages does not answer; raises ConfigError for an invalid one."""
    from sterna.host.site.source import check_source  # noqa: PLC0415 - only a running host needs it
    from sterna.host.site.upstream import Upstream  # noqa: PLC0415

    check_source(config)
    if config.root and config.check == "never":
        return []
    upstream = Upstream.of(config.site, config.upstream)
    if await upstream.is_there():
        return []
    return [f"warning   no web server at {upstream.address}:{upstream.port}: name it with --upstream URL"]


def _name_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    return f"unix:{name}" if isinstance(name, str) else f"{name[0]}:{name[1]}"


def _tell(line: str) -> None:
    """Prints a line; a closed terminal must not end a visit."""
    with suppress(OSError):
        say(line)


def _answers(path: Path) -> bool:
    """True if a process listens on the socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(1.0)
        try:
            line.connect(str(path))
        except ConnectionRefusedError:
            return False
        return True


def _listener(flag: str, written: str) -> socket.socket:
    """A listening socket; raises UsageError for an invalid or unavailable address."""
    if not written.startswith("unix:"):
        return listen_on(flag, written, example="127.0.0.1:8470 or unix:/run/sterna.sock")
    path = Path(written.removeprefix("unix:"))
    try:
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.stat().st_mode):
                if _answers(path):
                    raise UsageError(f"{flag} {written} is in use by another process: name another path")
                path.unlink()  # left behind by a host that was killed
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o660)
        listener.listen()
    except OSError as error:
        raise UsageError(f"{flag} {written} is not available: {error}") from error
    return listener
