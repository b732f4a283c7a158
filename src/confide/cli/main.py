"""The entry point: it starts without the packages of the command line, to say how to get them."""

from __future__ import annotations

import importlib
import sys

PACKAGES = ("click", "jinja2", "rich", "typer")


def main() -> None:
    """Run the command line; a refusal is one sentence on standard error and exit code 2."""
    try:
        program = importlib.import_module("confide.cli.app")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        print('confide: the command line needs more packages: pip install "confide[cli]"', file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    program.start()
