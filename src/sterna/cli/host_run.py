"""`sterna host run` and `sterna host cgi`: a host for a site, as a server or as a CGI program."""

import asyncio
import logging
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
from sterna.cli.lines import say
from sterna.errors import StorageError, UsageError
from sterna.host.config import HostConfig, config_of, format_host_file
from sterna.host.keyring import ALLOWED, Keyring, allow
from sterna.host.owner.audit import AUDIT, Audit
from sterna.host.owner.control import Doors
from sterna.version import __version__
from sterna.web.clock import SystemClock
from sterna.web.http_app import is_loopback
from sterna.wire.keys import Identity

if TYPE_CHECKING:
    from sterna.host.service import Service

SELF = "this-machine"  # the name under which --allow-self allows the home here


@with_flags(host_flags())
def run(
    listen: Annotated[str, option("ADDR", "HOST:PORT, or unix:PATH.")] = "127.0.0.1:8470",
    page: Annotated[str, option("ADDR", "Show a status page there, such as 127.0.0.1:8471.")] = "",
    index: Annotated[
        float, option("HOURS", "Read your own site at this interval, for its sitemap. (0: never)", min=0)
    ] = 0.0,
    allow_self: Annotated[
        bool, switch("Allow the home of this keys folder: for trials.", "--allow-self")
    ] = False,
    **flags: Any,
) -> None:
    """Run a host beside the web server, which passes /sterna and /.well-known/sterna on to it.

    No home is admitted until its key is allowed: sterna keys allow KEY --name NAME. Ctrl-C stops cleanly.
    """
    page_host = page.rpartition(":")[0].strip("[]") or "127.0.0.1"
    if page and page_host != "localhost" and not is_loopback(page_host):
        raise UsageError(
            f"--page {page} is invalid: it must be on this machine, such as 127.0.0.1:8471;"
            " reach it from elsewhere by ssh -L 8471:127.0.0.1:8471"
        )
    config = config_of(HostFlags(**flags).file())
    keyring = Keyring(config.keys)
    identity = keyring.read_or_make("host")
    if allow_self:
        allow(config.keys / ALLOWED, keyring.read_or_make("home").public, SELF)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    with (
        _listener("--listen", listen) as listener,
        _listener("--page", page) if page else nullcontext() as shown,
    ):
        uvloop.run(_serve(config, identity, keyring, listener, shown, index_hours=index))


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
    config: HostConfig,
    identity: Identity,
    keyring: Keyring,
    listener: socket.socket,
    page_listener: socket.socket | None,
    *,
    index_hours: float,
) -> None:
    # The server is slow to load, and --help should not wait for it.
    from sterna.host.asgi import serve  # noqa: PLC0415
    from sterna.host.files import lock  # noqa: PLC0415
    from sterna.host.owner.control import open_control  # noqa: PLC0415
    from sterna.host.service import Service  # noqa: PLC0415
    from sterna.runtime.cell.jail import protection  # noqa: PLC0415

    if lock(config.state / "lock") is None:
        raise UsageError(f"another host runs in {config.state}: name another folder with --state")
    clock = SystemClock()
    audit, doors = Audit(config.state / AUDIT, clock=clock), Doors(config.state)
    service = Service(
        config,
        identity=identity,
        clock=clock,
        successions=keyring.successions("host"),
        announce=_tell,
        audit=audit,
        doors=doors,
    )
    trouble = await _try_source(config)
    offered = await asyncio.to_thread(protection)
    jail = "seccomp" if offered.has_seccomp else "none: crawlers are refused (see sterna doctor)"
    audit.note("host-started", site=config.site, version=__version__, key=identity.public.text)
    async with AsyncExitStack() as stack:
        stack.callback(audit.note, "host-stopped")
        await stack.enter_async_context(open_control(service, config.state))
        lines = about(config, identity)
        if closure := doors.closure():
            lines.append(f"doors     closed ({closure.reason}): sterna host open lets crawlers in again")
        lines += trouble
        if page_listener:
            await stack.enter_async_context(_page(service, config, page_listener))
            lines.append(f"page      http://{_name_of(page_listener)}/")
        if index_hours:
            from sterna.host.own.keeper import keeping  # noqa: PLC0415 - it loads the runtime

            await stack.enter_async_context(keeping(config, hours=index_hours, announce=_tell))
        lines += [f"jail      {jail}", f"listens   {_name_of(listener)}"]
        await serve(service, listener=listener, on_ready=lambda: say(*lines))
    say("stopped")


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


def _listener(flag: str, written: str) -> socket.socket:
    """A listening socket; raises UsageError for an invalid or unavailable address."""
    if not written.startswith("unix:"):
        return listen_on(flag, written, example="127.0.0.1:8470 or unix:/run/sterna.sock")
    path = Path(written.removeprefix("unix:"))
    try:
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.stat().st_mode):
                path.unlink()  # left behind by a host that was killed
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o660)
        listener.listen()
    except OSError as error:
        raise UsageError(f"{flag} {written} is not available: {error}") from error
    return listener
