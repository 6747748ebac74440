"""`sterna host` and its commands; a command's module is loaded when it is asked for."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

# Each command by its module and function, in the order in which the help lists them.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("host_run", "run"),
    "cgi": ("host_cgi", "write_cgi"),
    "check": ("host_policy", "check"),
    "status": ("host_owner", "status"),
    "stop": ("host_owner", "stop"),
    "open": ("host_owner", "open_doors"),
    "audit": ("host_audit", "audit"),
    "receipts": ("host_receipts", "receipts"),
    "index": ("host_index", "index"),
    "sitemap": ("host_own", "sitemap"),
    "changes": ("host_own", "changes"),
    "search": ("host_own", "find"),
    "dry-run": ("host_dry_run", "dry_run_command"),
}


class _Commands(TyperGroup):
    """Knows its commands by name, and loads the one that is asked for: a host must stay light."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, function = COMMANDS[cmd_name]
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(cmd_name)(getattr(import_module(f"sterna.cli.{module}"), function))
        return get_command(alone)


app = typer.Typer(
    help="Take in crawlers of others at your own site.",
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
