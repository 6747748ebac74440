"""`sterna storage`: rules that copy what crawlers bring into the user's own databases."""

import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.exits import Exit
from sterna.cli.flags import FolderArgument, JsonOption, argument, command_group, switch
from sterna.cli.lines import duration_text, plural, say, say_json, shown, stopped_by_signals, warn
from sterna.home.folder import CollectionFolder

if TYPE_CHECKING:
    from sterna.storage.manager import Manager
    from sterna.storage.status import Standing

app = command_group("Store what crawlers bring in your own databases, by rules in DIR/storage.toml.")

# SQLAlchemy is slow to load, and belongs to an extra: each command loads it.

_QUERY_WIDTH = 100


@app.command()
def add(
    folder: FolderArgument,
    file: Annotated[Path, argument("FILE", "A TOML file of connections, commands, rules.")],
) -> None:
    """Add connections, commands and rules, or replace those of the same name.

    A running crawl uses them at once.
    """
    from sterna.api.storage import add_rules  # noqa: PLC0415

    changes, waiting = add_rules(CollectionFolder(folder), file)
    say(*(f"{each.how:<9}  {each.what} {each.name}" for each in changes))
    for finding in waiting:
        warn(f"{finding.what}: {finding.fault} (for now: the rule waits until it exists)")


@app.command("list")
def show(folder: FolderArgument) -> None:
    """List connections, commands and rules; secrets are not shown."""
    from sterna.api.storage import rules_of  # noqa: PLC0415
    from sterna.storage.connections import Database  # noqa: PLC0415
    from sterna.storage.statements import parameters_of, statements_of  # noqa: PLC0415

    config = rules_of(CollectionFolder(folder))
    for name, spec in config.connections.items():
        say(f"connection {name}  {Database(name, spec, folder=folder, environ=os.environ).shown()}")
    for name, command in config.commands.items():
        if command.call:
            about = f"calls {command.call}" + (f" in {command.folder}" if command.folder else "")
        else:
            statements = statements_of(command.sql)
            names = ", ".join(f":{each}" for each in parameters_of(statements)) or "no parameters"
            about = f"{plural(len(statements), 'statement')} with {names}"
        say(f"command {name} at {command.connection}  {about}")
    for name, rule in config.rules.items():
        say(f"rule {name} for crawlers {rule.crawler}")
        for store in rule.store:
            query = " ".join(store.query.split())
            shown = query if len(query) <= _QUERY_WIDTH else f"{query[: _QUERY_WIDTH - 1]}…"
            say(f"  {', '.join(store.commands)}  <-  {shown}")


@app.command()
def check(folder: FolderArgument) -> None:
    """Check that connections answer, commands fit their tables, and queries give what commands need."""
    from sterna.api.storage import check_storage  # noqa: PLC0415

    findings = check_storage(CollectionFolder(folder), environ=os.environ)
    for each in findings:
        if each.fault:
            say(f"{'later' if each.may_come else 'wrong'}  {each.what}: {each.fault}")
        else:
            say(f"good   {each.what}")
    if any(each.fault for each in findings):
        raise typer.Exit(int(Exit.USAGE))


@app.command()
def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Show how far each rule has come, which rows wait, and why."""
    from sterna.api.storage import storage_status  # noqa: PLC0415

    collection = CollectionFolder(folder)
    batch, standings = storage_status(collection, environ=os.environ)
    if as_json:
        say_json({"collection": str(folder), "batch": batch, "rules": standings})
        return
    for standing in standings:
        say(*_lines(standing))
    if not standings:
        say(f"{collection.storage_path} has no rules")


@app.command()
def run(
    folder: FolderArgument,
    follow: Annotated[bool, switch("Continue with what comes in, until Ctrl-C.", "--follow")] = False,
) -> None:
    """Store what is not stored yet. (A crawl does so by itself.)"""
    _run(folder, is_following=follow)


@app.command()
def replay(
    folder: FolderArgument,
    rule: Annotated[str, argument("[RULE]", "The rule; all of them if not given.")] = "",
    again: Annotated[
        bool, switch("Also what was stored before: empty your tables first.", "--again")
    ] = False,
    yes: Annotated[bool, switch("Do not ask.", "--yes")] = False,
) -> None:
    """Fill a new database from the archive.

    A database that has rows already gets only what is missing, unless --again stores everything once more.
    """
    if again and not yes:
        typer.confirm("Rows that are still in the database will be there twice. Go on?", abort=True)
    _run(folder, rule=rule, is_again=again)


def _run(folder: Path, *, rule: str = "", is_again: bool = False, is_following: bool = False) -> None:
    from sterna.api.storage import run_rules  # noqa: PLC0415

    with stopped_by_signals() as stop:
        standings = run_rules(
            CollectionFolder(folder),
            rule=rule,
            is_again=is_again,
            is_following=is_following,
            stop=stop,
            environ=os.environ,
            warn=warn,
            show=_showing,
        )
    for standing in standings:
        say(*_lines(standing))
    if not is_following and any(each.error or each.batch < each.of for each in standings):
        raise typer.Exit(int(Exit.STOPPED))


# -- what is shown -----------------------------------------------------------------------------------------


def _showing(manager: "Manager") -> AbstractContextManager[None]:
    def pieces() -> dict[str, tuple[int, int]]:
        return {
            f"{each.rule} -> {each.connection}": (max(each.batch, 0), each.of) for each in manager.standings()
        }

    return shown(pieces)


def _lines(standing: "Standing") -> list[str]:
    behind = standing.of - max(standing.batch, 0)
    far = "all is stored" if behind <= 0 else f"{behind:,} {'batch' if behind == 1 else 'batches'} to go"
    is_known = standing.state != "down" or standing.batch >= 0
    stored = f"{plural(standing.stored, 'row')} stored, {far}" if is_known else "position unknown"
    lines = [f"{standing.rule} -> {standing.connection}: {stored}"]
    if standing.waiting:
        lines.append(f"  {plural(standing.waiting, 'row')} refused, waiting for a retry")
    if standing.error:
        trouble = {"down": "database is not usable: ", "broken": "does not work: "}.get(standing.state, "")
        seconds = standing.next_try - time.time()
        next_try = f" (next try in {duration_text(seconds)})" if seconds > 0 else ""
        lines.append(f"  {trouble}{standing.error}{next_try}")
    return lines
