"""The host's face as a CGI program (RFC 3875): one process a request, and a visit that lives as long as it.

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

from sterna.errors import Refused, SternaError
from sterna.host.config import HostConfig
from sterna.host.keyring import Keyring
from sterna.host.routes import Shown, op_of
from sterna.host.service import Reply, Service, refusal
from sterna.host.setup import read_host_file
from sterna.transport.interface import Call
from sterna.web.clock import SystemClock
from sterna.wire.problems import problem, problem_of

CHUNK_BYTES = 64 * 1024
_IN, _OUT = 0, 1

_log = logging.getLogger(__name__)


def main(config_file: str) -> None:
    """Answers the request that the web server describes in the environment."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    try:
        asyncio.run(_main(Path(config_file), os.environ))
    except (BrokenPipeError, asyncio.CancelledError):
        return  # the client went away, or the web server ended us: nobody is there to be told


async def _main(config_file: Path, environment: Mapping[str, str]) -> None:
    task = asyncio.current_task()
    assert task
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
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
        _log.error("the host cannot answer: %s", error)
        await _send(refusal(problem("internal")))
        return
    try:
        await _send(await _answer(service, environment, config=config))
    finally:
        await service.close()


async def _answer(service: Service, environment: Mapping[str, str], *, config: HostConfig) -> Reply:
    method, path = environment.get("REQUEST_METHOD", ""), environment.get("PATH_INFO", "")
    op = op_of(method, path, endpoint=config.address)
    if isinstance(op, Reply):
        return op
    if isinstance(op, Shown):
        return await _show(op, environment, config=config)
    written = environment.get("CONTENT_LENGTH", "")
    length = int(written) if written.isascii() and written.isdigit() and len(written) < 12 else 0
    try:
        body = await service.read(op, _body(length), announced=length)
    except Refused as error:
        return refusal(problem_of(error))
    return await service.answer(Call(op, body))


async def _show(shown: Shown, environment: Mapping[str, str], *, config: HostConfig) -> Reply:
    from sterna.host.own.shelf import Shelf  # noqa: PLC0415 - a greeting does without it

    return await Shelf(config).reply(shown.name, known=environment.get("HTTP_IF_NONE_MATCH", ""))


async def _body(length: int) -> AsyncIterator[bytes]:
    """As many bytes as were announced: a web server may leave the pipe open after them (RFC 3875 4.2)."""
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
    lines = [f"Status: {reply.status} {phrase}", f"Content-Type: {reply.media_type}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    if isinstance(reply.body, bytes) and reply.status != HTTPStatus.NOT_MODIFIED:
        lines.append(f"Content-Length: {len(reply.body)}")
    await _write("\r\n".join((*lines, "", "")).encode("latin-1"))
    if isinstance(reply.body, bytes):
        await _write(reply.body)
        return
    async with aclosing(reply.body) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            await _write(chunk)


async def _write(data: bytes) -> None:
    """Writes it all, unbuffered; meanwhile the visit goes on, until its spool is full."""
    os.set_blocking(_OUT, False)
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(_OUT, view) :]
        except BlockingIOError:
            await _ready(_OUT)


async def _ready(descriptor: int) -> None:
    """Returns when the pipe can be read, or written to; without a thread, which nothing could end."""
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
