"""The command `confide serve`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from confide.extras import need

_WHAT = "`confide serve`"


def serve(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help="The deployment, as TOML.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a file to begin with, and end.")] = False,
) -> None:
    """Serve models over HTTP: people ask and bring labels on one port, the operator looks and acts on another.

    Example: `confide serve --example > confide.toml`, then `confide serve confide.toml`
    """
    settings = need("confide.service.config", "service", _WHAT)
    if example and config is not None:
        raise ValueError("--example prints a file and serves none: leave out one of them")
    if example:
        typer.echo(settings.EXAMPLE, nl=False)
        return
    if config is None:
        raise ValueError("name the file of the deployment: `confide serve --example` prints one to begin with")
    server = need("confide.service.server", "service", _WHAT)
    models = need("confide.service.models", "service", _WHAT)
    logs = need("confide.service.logs", "service", _WHAT)
    read = partial(settings.read_config, config)
    try:
        server.serve(read(), models.open_desk, logs.Log(), read)
    except ValueError as error:
        if str(error).startswith("models."):
            raise ValueError(f"{config}: {error}") from None
        raise
