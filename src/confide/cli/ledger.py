"""The command `confide ledger`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confide.cli.places import MODEL, Ledger, Model
from confide.cli.terminal import OPERATOR, say
from confide.pop.lives import look

__all__ = ["ledger"]


def ledger(
    folder: Annotated[Path, typer.Argument(metavar="STATE", help="The folder of a saved POP.")],
    person: Annotated[str | None, typer.Option(metavar="ID", help="Say it of this person alone.")] = None,
    ledger: Ledger = None,
    model: Model = MODEL,
) -> None:
    """Say what a model and those before it have cost its people: first what is public, then what is not.

    Example: `confide ledger state/spam2 --person ann`
    """
    seen = look(folder, ledger, model, person)
    say("public", "bold")
    for line in seen.public:
        say(f"  {line}")
    say(OPERATOR, "bold red")
    for line in seen.private:
        say(f"  {line}")
