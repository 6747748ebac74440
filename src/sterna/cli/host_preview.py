"""`sterna host check` and `dry-run`: what a policy allows, and what would leave for a crawler."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from sterna.cli.flags import with_flags
from sterna.cli.host_options import KeysFlag, host_file, host_flags
from sterna.cli.keys import KeysOption, keyring_of
from sterna.cli.lines import bytes_text, duration_text, plural, say, say_json
from sterna.errors import StorageError, UsageError
from sterna.host.config import HostConfig, config_of
from sterna.host.keyring import ALLOWED, read_allowed
from sterna.host.owner.dry_run import DryRun
from sterna.host.policy.explanation import explain
from sterna.host.policy.hours import zone_of
from sterna.host.policy.policy import read_policy
from sterna.model import LIMITS, Ended
from sterna.wire.keys import DEFAULT_KEYS

_UNFINISHED = LIMITS | {Ended.BUDGET, Ended.STOPPED}


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy.toml.")],
    home: Annotated[str, typer.Option("--home", metavar="NAME", help="Only what holds for this home.")] = "",
    at: Annotated[
        str,
        typer.Option("--at", metavar="TIME", help='At another time than now, such as "2026-11-16 03:00".'),
    ] = "",
    keys: KeysOption = Path(DEFAULT_KEYS),
) -> None:
    """Say in words what a policy allows: to whom, now, and when that changes next.

    If the file is invalid, it names the line and the field (exit code 2).
    """
    policy = read_policy(file)
    allowed = read_allowed(keyring_of(keys).folder / ALLOWED)
    moment = _moment(at, policy.zone) if at else time.time()
    say(f"{file} is valid", *explain(policy, allowed, at=moment, home=home))


def _moment(written: str, zone: str) -> float:
    try:
        moment = datetime.fromisoformat(written.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone_of(zone))).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f'--at {written} is invalid: write it as "2026-11-16 03:00"') from error


@with_flags(host_flags(keys=KeysFlag))
def dry_run(
    crawler: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|URL", help="A crawler's description, a packed crawler, or URLs to start from."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write: JSON lines.")],
    home: Annotated[
        str, typer.Option("--home", metavar="NAME", help="Under the terms of this home. (default: any)")
    ] = "",
    max_pages: Annotated[int, typer.Option("--max-pages", metavar="N", help="End after N pages.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
    **flags: Any,
) -> None:
    """Write to a file what would leave the site for a crawler: every page and fact as its home would get it.

    The crawler runs as at a host, under robots.txt and the policy and in a sandbox; nothing is sent.
    """
    import uvloop  # noqa: PLC0415 - slow to load

    config = config_of(host_file(flags | {"state": out.parent}))
    with _lines_into(out) as file:
        result = uvloop.run(_run(config, crawler, home=home, max_pages=max_pages, file=file))
    if as_json:
        say_json(result)
    else:
        say(*_lines(result, out))


async def _run(config: HostConfig, given: list[str], *, home: str, max_pages: int, file: BinaryIO) -> DryRun:
    from sterna.api.dry_run import dry_run as run_dry  # noqa: PLC0415 - slow to load

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    encoder = msgspec.json.Encoder()

    def write(line: dict[str, object]) -> None:
        file.write(encoder.encode(line) + b"\n")

    return await run_dry(given, config, home=home, max_pages=max_pages, write=write, stop=stop)


@contextmanager
def _lines_into(path: Path) -> Iterator[BinaryIO]:
    """The file, which appears under its name if all went well; raises StorageError."""
    beside = path.with_name(f"{path.name}.new")
    try:
        with beside.open("wb") as file:
            try:
                yield file
            except BaseException:
                beside.unlink(missing_ok=True)
                raise
        beside.replace(path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def _lines(result: DryRun, out: Path) -> list[str]:
    share = result.sent_bytes / result.page_bytes if result.page_bytes else 0.0
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in result.lines.items())
    lines = [
        f"crawler {result.crawler} at {result.site}:"
        f" {plural(result.pages, 'page')} in {duration_text(result.seconds)},"
        f" {plural(result.requests, 'request')}, {bytes_text(result.page_bytes)}",
        f"would leave: {bytes_text(result.plain_bytes)}, {bytes_text(result.sent_bytes)} on the line"
        f" ({share:.1%} of the pages), {plural(result.parcels, 'parcel')}",
        f"ended: {result.ended.value}; nothing was sent",
        f"{out}: {kinds}",
    ]
    if result.ended in _UNFINISHED:
        lines.append("a home could send it again for the rest")
    return lines
