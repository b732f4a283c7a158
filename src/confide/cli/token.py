"""The command `confide token`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confide.extras import need
from confide.service.doors import Keys, Tokens, seconds


def token(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The deployment's file.")],
    subject: Annotated[str, typer.Option(help="Whom it names: one id for a person, always.")],
    model: Annotated[list[str] | None, typer.Option(help="A model that it is for; all if left out.")] = None,
    expires: Annotated[str, typer.Option(help="How long it is good: 90s, 15m, 12h, 30d.")] = "30d",
    operator: Annotated[bool, typer.Option("--operator", help="A token for an operator, not for an asker.")] = False,
) -> None:
    """Make a token: a signed line that lets its holder in. Whoever holds it is taken for the person it names.

    Example: `confide token confide.toml --subject ann --model spam --expires 30d`
    """
    settings = need("confide.service.config", "service", "`confide token`").read_config(config)
    if unknown := sorted(set(model or ()) - {*settings.models, *settings.elsewhere}):
        raise ValueError(f"there is no model {unknown[0]!r} in {config}")
    if not operator and settings.doors.kind != "tokens":
        raise ValueError(f"in {config} people are known by {settings.doors.kind}, not by Confide's tokens")
    keys = settings.doors.operator_keys if operator else settings.doors.asker_keys
    tokens = Tokens("operator" if operator else "asker", Keys.make(keys))
    typer.echo(tokens.sign(subject, expires=seconds(expires), models=model))
