"""A newcomer's path, timed: a new environment, an installation, and a private answer on a file of their own.

python -m docs.tools.newcomer          # make newcomer; needs a package registry
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from docs.tools.blocks import ROOT
from docs.tools.check import own_file


def main() -> None:
    """Do it, and say how long each step took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own_file(folder / "visits.csv", 20_000)
        bin_ = folder / "confide-env" / "bin"
        steps = (
            ("a new environment", [sys.executable, "-m", "venv", "confide-env"]),
            (
                "pip install",
                [str(bin_ / "pip"), "install", "-q", "--disable-pip-version-check", f"{ROOT}[cli,report,river]"],
            ),
            ("confide run, for the first time", [str(bin_ / "confide"), "run", "visits.csv", "--label", "outcome"]),
            ("confide run, once more", [str(bin_ / "confide"), "run", "visits.csv", "--label", "outcome"]),
        )
        began = time.monotonic()
        for step, command in steps:
            start = time.monotonic()
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            environment["XDG_CACHE_HOME"] = str(folder / "cache")
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=environment)
            print(f"{step:34}{time.monotonic() - start:6.0f} s", flush=True)
        print(f"{'in all':34}{time.monotonic() - began:6.0f} s")


if __name__ == "__main__":
    main()
