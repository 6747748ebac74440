"""`sterna host check` and `dry-run`: what a policy allows, and what would leave for a crawler."""

import asyncio
import signal
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from sterna.cli.flags import argument, option, switch, with_flags
from sterna.cli.host_options import HostFlags, host_flags, shown
from sterna.cli.keys import KeysOption, keyring_of
from sterna.cli.lines import bytes_text, duration_text, plural, say, say_json
from sterna.errors import UsageError
from sterna.export.workbench import whole_file
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
    file: Annotated[Path, argument("FILE", "A policy.toml.")],
    home: Annotated[str, option("NAME", "Only what holds for this home.")] = "",
    at: Annotated[str, option("TIME", 'At another time than now, such as "2026-11-16 03:00".')] = "",
    keys: KeysOption = Path(DEFAULT_KEYS),
) -> None:
    """Say in words what a policy allows: to whom, now, and when that changes next.

    If the file is invalid, it names the line and the field (exit code 2).
    """
    policy = read_policy(file)
    allowed = read_allowed(keyring_of(keys).folder / ALLOWED)
    moment = time.time()
    if at:
        try:
            written = datetime.fromisoformat(at.strip())
            moment = (written if written.tzinfo else written.replace(tzinfo=zone_of(policy.zone))).timestamp()
        except (ValueError, OverflowError) as error:
            raise UsageError(f'--at {at} is invalid: write it as "2026-11-16 03:00"') from error
    say(f"{file} is valid", *explain(policy, allowed, at=moment, home=home))


@with_flags(host_flags(without=("state", "endpoint")))
def dry_run(
    crawler: Annotated[
        list[str], argument("FILE|URL", "A crawler's description, a packed crawler, or URLs to start from.")
    ],
    out: Annotated[Path, option("FILE", "The file to write: JSON lines.", "--out", "-o")],
    home: Annotated[str, option("NAME", "Under the terms of this home. (default: any)")] = "",
    max_pages: Annotated[int, option("N", "End after N pages.", min=0)] = 0,
    as_json: Annotated[bool, switch("The summary as one JSON object.", "--json")] = False,
    **flags: Any,
) -> None:
    """Write to a file what would leave the site for a crawler: every page and fact as its home would get it.

    The crawler runs as at a host, under robots.txt and the policy and in a sandbox; nothing is sent.
    """
    import uvloop  # noqa: PLC0415 - slow to load

    config = config_of(HostFlags(**flags, state=out.parent).file())
    with whole_file(out, stdout=sys.stdout.buffer) as file:
        result = uvloop.run(_run(config, crawler, home=home, max_pages=max_pages, file=file))
    if as_json:
        say_json(result)
        return
    share = result.sent_bytes / result.page_bytes if result.page_bytes else 0.0
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in result.lines.items())
    say(
        f"crawler {result.crawler} at {result.site}:"
        f" {plural(result.pages, 'page')} in {duration_text(result.seconds)},"
        f" {plural(result.requests, 'request')}, {bytes_text(result.page_bytes)}",
        f"would leave: {bytes_text(result.plain_bytes)}, {bytes_text(result.sent_bytes)} on the line"
        f" ({share:.1%} of the pages), {plural(result.parcels, 'parcel')}",
        f"ended: {result.ended.value}; nothing was sent",
        f"{out}: {kinds}",
    )
    if config.root and config.check == "never":
        say(f"files: only those {shown(config)}")
    if result.ended in _UNFINISHED:
        say("a home could send it again for the rest")


async def _run(config: HostConfig, given: list[str], *, home: str, max_pages: int, file: BinaryIO) -> DryRun:
    from sterna.api.dry_run import dry_run as run_dry  # noqa: PLC0415 - slow to load

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    encoder = msgspec.json.Encoder()

    def write(line: dict[str, object]) -> None:
        file.write(encoder.encode(line) + b"\n")

    return await run_dry(given, config, home=home, max_pages=max_pages, write=write, stop=stop)
