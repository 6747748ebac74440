"""`sterna storage`: rules that carry what crawlers bring into the user's own databases."""

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from sterna.errors import UsageError

app = typer.Typer(
    help="Store what crawlers bring in your own databases, by rules in DIR/storage.toml.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.command()
def add(
    folder: FolderArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A TOML file of connections, commands, rules.")
    ],
) -> None:
    """Add connections, commands and rules, or put new ones in place of those of the same name.

    A crawl that runs takes them up at once.
    """
    _storing().add(folder, file)


@app.command("list")
def show(folder: FolderArgument) -> None:
    """List connections, commands and rules; secrets are not shown."""
    _storing().show(folder)


@app.command()
def check(folder: FolderArgument) -> None:
    """Check that connections answer, commands fit their tables, and queries give what commands need."""
    _storing().check(folder)


@app.command()
def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Tell how far each rule has come, which rows wait, and why."""
    _storing().status(folder, as_json=as_json)


@app.command()
def run(
    folder: FolderArgument,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes in, until Ctrl-C.")] = False,
) -> None:
    """Store what is not stored yet. (A crawl does so by itself.)"""
    _storing().run(folder, is_following=follow)


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

    A database that has rows already gets only what is missing, unless --again has it all stored once more.
    """
    if again and not yes:
        typer.confirm("Rows that are still in the database will be there twice. Go on?", abort=True)
    _storing().run(folder, rule=rule, is_again=again)


def _storing() -> ModuleType:
    try:
        # SQLAlchemy and DuckDB take a while to load, and who asks for help should not wait for them.
        from sterna.cli import storing  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sqlalchemy":
            raise
        raise UsageError(
            "this command needs the extra 'storage': pip install 'sterna[home,storage]'"
        ) from error
    return storing
