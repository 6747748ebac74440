"""`sterna keys`: the keys of a home and a host, and the homes that a host admits."""

from pathlib import Path
from typing import Annotated

from sterna.cli.flags import argument, command_group, option, switch
from sterna.cli.lines import say
from sterna.errors import UsageError, WireError
from sterna.host.keyring import ALLOWED, REVOKED, Keyring, Who, allow, read_allowed, read_revoked, revoke
from sterna.wire.keys import DEFAULT_KEYS, PublicKey

WHO: tuple[Who, ...] = ("home", "host")

app = command_group("Create and show the keys of a home and a host, and allow homes at a host.")

KeysOption = Annotated[
    Path, option("DIR", f"The folder of keys. (default: {DEFAULT_KEYS})", envvar="STERNA_KEYS")
]


@app.command()
def new(
    who: Annotated[str, argument("home|host", "Whose key.")],
    replace: Annotated[bool, switch("Replace the old key, which signs the new one.", "--replace")] = False,
    keys: KeysOption = Path(DEFAULT_KEYS),
) -> None:
    """Create a key, or replace one."""
    named, keyring = _who(who), keyring_of(keys)
    identity = keyring.replace(named) if replace else keyring.make(named)
    say(f"{named}  {identity.public.text}")
    if replace and named == "home":
        say("hosts know the old key: each must allow the new one")


@app.command()
def show(
    who: Annotated[str, argument("[home|host]", "Whose key; both if not given.")] = "",
    keys: KeysOption = Path(DEFAULT_KEYS),
) -> None:
    """Show the public keys of this folder; the key of one side is printed alone, for scripts."""
    keyring = keyring_of(keys)
    if who:
        say(keyring.read(_who(who)).public.text)
        return
    found = [each for each in WHO if keyring.path(each).exists()]
    if not found:
        raise UsageError(f"there is no key in {keyring.folder}: create one with 'sterna keys new home'")
    for each in found:
        say(f"{each}  {keyring.read(each).public.text}")


@app.command("allow")
def allow_home(
    key: Annotated[str, argument("KEY", "The public key of a home.")],
    name: Annotated[str, option("NAME", "What you call it: one word.")],
    keys: KeysOption = Path(DEFAULT_KEYS),
) -> None:
    """Allow a home to send crawlers to the host of this folder; a running host sees it at once."""
    try:
        allow(keyring_of(keys).folder / ALLOWED, PublicKey.parse(key), name)
    except (WireError, ValueError) as error:
        detail = error.detail if isinstance(error, WireError) else str(error)
        raise UsageError(f"cannot allow {key[:80]!r}: {detail}") from error
    say(f"{name} may send crawlers here")


@app.command("revoke")
def revoke_home(
    name: Annotated[str, argument("NAME|KEY", "The home: what you call it, or its public key.")],
    keep_parcels: Annotated[
        bool,
        switch(
            "Keep what its crawlers found, until it expires, in case you allow it again.", "--keep-parcels"
        ),
    ] = False,
    keys: KeysOption = Path(DEFAULT_KEYS),
) -> None:
    """Take no more crawlers of a home: its visits here end, and what they found is deleted.

    A running host sees it within a second. It holds against every policy, until you allow the home again.
    """
    kept = "is kept until it expires" if keep_parcels else "is deleted"
    for key, named in revoke(keyring_of(keys).folder, name, keeps_parcels=keep_parcels).items():
        say(f"{named} may no longer send crawlers here; what they found {kept}", f"key  {key}")


@app.command("list")
def list_homes(keys: KeysOption = Path(DEFAULT_KEYS)) -> None:
    """List the homes that the host of this folder admits, and those that are revoked."""
    folder = keyring_of(keys).folder
    homes = read_allowed(folder / ALLOWED)
    for key, name in homes.items():
        say(f"{key}  {name}")
    if not homes:
        say("no home is allowed: sterna keys allow KEY --name NAME")
    for key, revoked in read_revoked(folder / REVOKED).items():
        say(f"{key}  {revoked.name} (revoked)")


def keyring_of(folder: Path) -> Keyring:
    """The keys in a folder, as an option names it."""
    return Keyring(folder.expanduser())


def _who(text: str) -> Who:
    if text not in WHO:
        raise UsageError(f"{text!r} is neither home nor host")
    return text
