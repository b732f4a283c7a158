"""Where a state's ledger is: two options of the commands that look at a state."""

from __future__ import annotations

from typing import Annotated

import typer

from confide.pop.state import MODEL

__all__ = ["MODEL", "Ledger", "Model"]

Ledger = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="postgresql://host/database, if the ledger is on a server; leave passwords to PGPASSFILE."
    ),
]
Model = Annotated[str, typer.Option(metavar="NAME", help="With --ledger: what the model is called in that ledger.")]
