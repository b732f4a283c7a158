"""The command `confide verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confide.cli.terminal import say
from confide.planning.plan import Plan

__all__ = ["verify"]


def verify(
    path: Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan written by `confide plan --json`.")],
) -> None:
    """Re-certify a plan from its tables alone, trusting no number that it states."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    read = Plan.from_json(text)
    got = read.verify()
    say(
        f"certified: the tables keep ε = {got.epsilon:.6g} at δ = {got.delta:.3g} "
        f"(claimed {read.guarantee.epsilon:.6g}); order {read.order}, {read.copies:,} copies, {read.polls:,} polled"
    )
