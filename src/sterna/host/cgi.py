"""The host as a CGI program (RFC 3875): one process per request; a visit ends with its process.

The program itself is two lines, which `sterna host cgi` writes: it calls main() with a configuration file.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from pathlib import Path

from sterna.errors import SternaError
from sterna.host.calls import HostRequest, Reply, refusal
from sterna.host.config import read_host_file
from sterna.host.keyring import Keyring
from sterna.host.service import Service
from sterna.web.clock import SystemClock
from sterna.wire.problems import problem

CHUNK_BYTES = 64 * 1024
_IN, _OUT = 0, 1

_log = logging.getLogger(__name__)


def main(config_file: str) -> None:
    """Answers the request in the environment."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    try:
        asyncio.run(_main(Path(config_file), os.environ))
    except (BrokenPipeError, asyncio.CancelledError):
        return  # the client went away, or the web server ended this process


async def _main(config_file: Path, environment: Mapping[str, str]) -> None:
    task = asyncio.current_task()
    assert task
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        config = read_host_file(config_file)
        keyring = Keyring(config.keys)
        service = Service(
            config,
            identity=keyring.read("host"),
            successions=keyring.successions("host"),
            clock=SystemClock(),
            is_live_only=True,
        )
    except SternaError as error:
        _log.error("the host cannot start: %s", error)
        await _send(refusal(problem("internal")))
        return
    written = environment.get("CONTENT_LENGTH", "")
    length = int(written) if written.isascii() and written.isdigit() and len(written) < 12 else 0
    request = HostRequest(
        environment.get("REQUEST_METHOD", ""),
        environment.get("PATH_INFO", ""),
        _body(length),
        announced=length,
        if_none_match=environment.get("HTTP_IF_NONE_MATCH", ""),
    )
    try:
        await _send(await service.respond(request))
    finally:
        await service.close()


async def _body(length: int) -> AsyncIterator[bytes]:
    """As many bytes as announced: a web server may leave the pipe open after them (RFC 3875 4.2)."""
    os.set_blocking(_IN, False)
    while length > 0:
        try:
            chunk = os.read(_IN, min(length, CHUNK_BYTES))
        except BlockingIOError:
            await _ready(_IN)
            continue
        if not chunk:
            return
        length -= len(chunk)
        yield chunk


async def _send(reply: Reply) -> None:
    phrase = HTTPStatus(reply.status).phrase
    lines = (f"{name}: {value}" for name, value in (("Status", f"{reply.status} {phrase}"), *reply.fields()))
    await _write("\r\n".join((*lines, "", "")).encode("latin-1"))
    if isinstance(reply.body, bytes):
        await _write(reply.body)
        return
    async with aclosing(reply.body) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            await _write(chunk)


async def _write(data: bytes) -> None:
    """Writes everything unbuffered; meanwhile the visit goes on until its spool is full."""
    os.set_blocking(_OUT, False)
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(_OUT, view) :]
        except BlockingIOError:
            await _ready(_OUT)


async def _ready(descriptor: int) -> None:
    """Returns when the pipe can be read or written; without a thread, which could not be cancelled."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    add, remove = (
        (loop.add_reader, loop.remove_reader) if descriptor == _IN else (loop.add_writer, loop.remove_writer)
    )
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
