"""`sterna host check`: a policy in words, or where it is broken."""

import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.host_options import say
from sterna.cli.keys import DEFAULT_FOLDER, KeysOption, keyring_of
from sterna.errors import UsageError
from sterna.host.keyring import ALLOWED, read_allowed
from sterna.host.policy.explanation import explain
from sterna.host.policy.hours import zone_of
from sterna.host.policy.policy import read_policy


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy.toml.")],
    home: Annotated[str, typer.Option("--home", metavar="NAME", help="What holds for this home alone.")] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help='Not now but then, such as "2026-11-16 03:00".')
    ] = "",
    keys: KeysOption = Path(DEFAULT_FOLDER),
) -> None:
    """Say in words what a policy allows: to whom, now, and when that changes next.

    If the file is broken, it says in which line and which field (exit code 2).
    """
    policy = read_policy(file)
    allowed = read_allowed(keyring_of(keys).folder / ALLOWED)
    moment = _moment(at, policy.zone) if at else time.time()
    for line in (f"{file} can be used", *explain(policy, allowed, at=moment, home=home)):
        say(line)


def _moment(written: str, zone: str) -> float:
    try:
        moment = datetime.fromisoformat(written.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone_of(zone))).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f'--at {written} cannot be: write it as "2026-11-16 03:00"') from error
