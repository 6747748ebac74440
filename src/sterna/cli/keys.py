"""`sterna keys`: who a home and a host are, and which homes a host lets in."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from sterna.errors import UsageError, WireError
from sterna.host.keyring import ALLOWED, Keyring, Who, allow, read_allowed
from sterna.wire.keys import PublicKey

DEFAULT_FOLDER = "~/.config/sterna"
WHO: tuple[Who, ...] = ("home", "host")

app = typer.Typer(
    help="Make and show the keys of a home and a host, and allow homes at a host.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

KeysOption = Annotated[
    Path,
    typer.Option(
        "--keys", metavar="DIR", envvar="STERNA_KEYS", help=f"The folder of keys. (default: {DEFAULT_FOLDER})"
    ),
]


@app.command()
def new(
    who: Annotated[str, typer.Argument(metavar="home|host", help="Whose key.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="In place of the old key, which signs the new one.")
    ] = False,
    keys: KeysOption = Path(DEFAULT_FOLDER),
) -> None:
    """Make a key, or renew one."""
    named, keyring = _who(who), keyring_of(keys)
    identity = keyring.replace(named) if replace else keyring.make(named)
    _say(f"{named}  {identity.public.text}")
    if replace and named == "home":
        _say("hosts know the old key: each must allow the new one")


@app.command()
def show(
    who: Annotated[str, typer.Argument(metavar="[home|host]", help="Whose key; both if not given.")] = "",
    keys: KeysOption = Path(DEFAULT_FOLDER),
) -> None:
    """Show the public keys of this folder; one that was asked for stands alone, for scripts."""
    keyring = keyring_of(keys)
    if who:
        _say(keyring.read(_who(who)).public.text)
        return
    found = [each for each in WHO if keyring.path(each).exists()]
    if not found:
        raise UsageError(f"there is no key in {keyring.folder}: make one with 'sterna keys new home'")
    for each in found:
        _say(f"{each}  {keyring.read(each).public.text}")


@app.command("allow")
def allow_home(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The public key of a home.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What you call it: one word.")],
    keys: KeysOption = Path(DEFAULT_FOLDER),
) -> None:
    """Let a home send crawlers to the host of this folder; a host that runs sees it at once."""
    try:
        allow(keyring_of(keys).folder / ALLOWED, PublicKey.parse(key), name)
    except (WireError, ValueError) as error:
        detail = error.detail if isinstance(error, WireError) else str(error)
        raise UsageError(f"{key[:80]!r} cannot be allowed: {detail}") from error
    _say(f"{name} may send crawlers here")


@app.command("list")
def list_homes(keys: KeysOption = Path(DEFAULT_FOLDER)) -> None:
    """List the homes that the host of this folder lets in."""
    homes = read_allowed(keyring_of(keys).folder / ALLOWED)
    for key, name in homes.items():
        _say(f"{key}  {name}")
    if not homes:
        _say("no home is allowed: sterna keys allow KEY --name NAME")


def keyring_of(folder: Path) -> Keyring:
    """The keys in a folder, as an option names it."""
    return Keyring(folder.expanduser())


def _who(text: str) -> Who:
    for who in WHO:
        if text == who:
            return who
    raise UsageError(f"{text!r} has no key: home or host")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
