"""The command line: its commands, each in a file of its own, and how it refuses."""

from __future__ import annotations

import dis
import sys
from pathlib import Path
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
    help="A private classifier that learns from confidential feedback while it answers. Start with `confide run`.",
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
    """A private classifier that learns from confidential feedback while it answers. Start with `confide run`."""


def start() -> None:
    """Run it; a refusal is one sentence on standard error and exit code 2, an interrupt is 130."""
    try:
        app()
    except (ValueError, OSError) as error:
        place = _unmeant(error)
        words = error if place is None else f"there is an error in Confide, {place}; please report it"
        Console(stderr=True).print(f"confide: {words}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2 if place is None else 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _unmeant(error: ValueError | OSError) -> str | None:
    """Where in Confide this came about without a `raise`: then it is no refusal, and what it says may be a value's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or isinstance(error, OSError) or not trace.tb_frame.f_globals["__name__"].startswith("confide."):
        return None
    code = trace.tb_frame.f_code
    if code.co_code[trace.tb_lasti] in (dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]):
        return None
    return f"not in what you gave it: {type(error).__name__} in {Path(code.co_filename).name}, line {trace.tb_lineno}"
