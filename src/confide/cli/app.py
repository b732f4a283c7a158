"""The command line: its commands, each in a file of its own, and how it refuses."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from confide import __version__
from confide.cli.advise import advise
from confide.cli.audit import audit
from confide.cli.ledger import ledger
from confide.cli.plan import plan
from confide.cli.run import EXAMPLES, run
from confide.cli.schema import schema
from confide.cli.serve import serve
from confide.cli.status import status
from confide.cli.successor import successor
from confide.cli.token import token
from confide.cli.verify import verify

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Confide makes any online learner private between its users. Start with `confide plan`.",
)
for command in (plan, advise, verify, schema, run, status, successor, audit, serve, token):
    app.command(epilog=EXAMPLES if command is run else None)(command)
app.add_typer(ledger, name="ledger")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"confide {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which Confide this is.")
    ] = False,
) -> None:
    """Confide makes any online learner private between its users. Start with `confide plan`."""


def start() -> None:
    """Run it; a refusal is one sentence on standard error and exit code 2, an interrupt is 130."""
    try:
        app()
    except (ValueError, OSError) as error:
        Console(stderr=True).print(f"confide: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
