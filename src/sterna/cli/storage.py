"""`sterna storage`: rules that copy what crawlers bring into the user's own databases."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.exits import Exit
from sterna.cli.lines import bars, duration_text, every, plural, say, say_json, stopped_by_signals, warn
from sterna.errors import UsageError
from sterna.home.folder import CollectionFolder

if TYPE_CHECKING:
    from rich.progress import TaskID

    from sterna.storage.checks import Finding
    from sterna.storage.config import CommandSpec
    from sterna.storage.manager import Manager
    from sterna.storage.status import Standing

app = typer.Typer(
    help="Store what crawlers bring in your own databases, by rules in DIR/storage.toml.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]

_SHOW_SECONDS = 0.2
_QUERY_WIDTH = 100


@contextmanager
def _needs_storage() -> Iterator[None]:
    """Reports a missing extra 'storage'. SQLAlchemy is slow to load, so each command loads it inside."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sqlalchemy":
            raise
        raise UsageError(
            "this command needs the extra 'storage': pip install 'sterna[home,storage]'"
        ) from error


@app.command()
def add(
    folder: FolderArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A TOML file of connections, commands, rules.")
    ],
) -> None:
    """Add connections, commands and rules, or replace those of the same name.

    A running crawl uses them at once.
    """
    with _needs_storage():
        from sterna.api.storage import add_rules  # noqa: PLC0415

    changes, waiting = add_rules(CollectionFolder(folder), file)
    say(*(f"{each.how:<9}  {each.what} {each.name}" for each in changes))
    for finding in waiting:
        warn(f"{finding.what}: {finding.fault} (for now: the rule waits until it exists)")


@app.command("list")
def show(folder: FolderArgument) -> None:
    """List connections, commands and rules; secrets are not shown."""
    with _needs_storage():
        from sterna.api.storage import rules_of  # noqa: PLC0415
        from sterna.storage.connections import Database  # noqa: PLC0415

    config = rules_of(CollectionFolder(folder))
    for name, spec in config.connections.items():
        say(f"connection {name}  {Database(name, spec, folder=folder, environ=os.environ).shown()}")
    for name, command in config.commands.items():
        say(f"command {name} at {command.connection}  {_about(command)}")
    for name, rule in config.rules.items():
        say(f"rule {name} for crawlers {rule.crawler}")
        for store in rule.store:
            query = " ".join(store.query.split())
            shown = query if len(query) <= _QUERY_WIDTH else f"{query[: _QUERY_WIDTH - 1]}…"
            say(f"  {', '.join(store.commands)}  <-  {shown}")


@app.command()
def check(folder: FolderArgument) -> None:
    """Check that connections answer, commands fit their tables, and queries give what commands need."""
    with _needs_storage():
        from sterna.api.storage import check_storage  # noqa: PLC0415

    findings = check_storage(CollectionFolder(folder), environ=os.environ)
    say(*map(_finding_line, findings))
    if any(each.fault for each in findings):
        raise typer.Exit(int(Exit.USAGE))


@app.command()
def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Show how far each rule has come, which rows wait, and why."""
    with _needs_storage():
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
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue with what comes in, until Ctrl-C.")
    ] = False,
) -> None:
    """Store what is not stored yet. (A crawl does so by itself.)"""
    _run(folder, is_following=follow)


@app.command()
def replay(
    folder: FolderArgument,
    rule: Annotated[str, typer.Argument(metavar="[RULE]", help="The rule; all of them if not given.")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Also what was stored before: empty your tables first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Fill a new database from the archive.

    A database that has rows already gets only what is missing, unless --again stores everything once more.
    """
    if again and not yes:
        typer.confirm("Rows that are still in the database will be there twice. Go on?", abort=True)
    _run(folder, rule=rule, is_again=again)


def _run(folder: Path, *, rule: str = "", is_again: bool = False, is_following: bool = False) -> None:
    with _needs_storage():
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


@contextmanager
def _showing(manager: "Manager") -> Iterator[None]:
    """Bars on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    with bars() as shown:
        tasks: dict[str, TaskID] = {}

        def update() -> None:
            for each in manager.standings():
                name = f"{each.rule} -> {each.connection}"
                if name not in tasks:
                    tasks[name] = shown.add_task(name, total=each.of)
                shown.update(tasks[name], completed=max(each.batch, 0), total=each.of)

        with every(_SHOW_SECONDS, update):
            yield


def _lines(standing: "Standing") -> list[str]:
    behind = standing.of - max(standing.batch, 0)
    far = "all is stored" if behind <= 0 else f"{behind:,} {'batch' if behind == 1 else 'batches'} to go"
    is_known = standing.state != "down" or standing.batch >= 0
    stored = f"{plural(standing.stored, 'row')} stored, {far}" if is_known else "position unknown"
    lines = [f"{standing.rule} -> {standing.connection}: {stored}"]
    if standing.waiting:
        lines.append(f"  {plural(standing.waiting, 'row')} refused, waiting for a retry")
    if standing.error:
        lines.append(f"  {_trouble(standing)}{standing.error}{_next_try(standing)}")
    return lines


def _trouble(standing: "Standing") -> str:
    return {"down": "database is not usable: ", "broken": "does not work: "}.get(standing.state, "")


def _next_try(standing: "Standing") -> str:
    seconds = standing.next_try - time.time()
    return f" (next try in {duration_text(seconds)})" if seconds > 0 else ""


def _about(command: "CommandSpec") -> str:
    from sterna.storage.statements import parameters_of, statements_of  # noqa: PLC0415

    if command.call:
        return f"calls {command.call}" + (f" in {command.folder}" if command.folder else "")
    statements = statements_of(command.sql)
    names = ", ".join(f":{name}" for name in parameters_of(statements))
    return f"{plural(len(statements), 'statement')} with {names or 'no parameters'}"


def _finding_line(finding: "Finding") -> str:
    if not finding.fault:
        return f"good   {finding.what}"
    return f"{'later' if finding.may_come else 'wrong'}  {finding.what}: {finding.fault}"
