"""The auditor's best adversary, over HTTP, against a real server process.

    python -m tests.service.leak --games 1500

Every game is played with a client against a model of its own, which the server makes when its name is first asked for:
its folder, ledger, tickets and all. The adversary sees what a client sees. Its exact law is known, so the audit also
notices answers that do not follow the plan's tables.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import confide
from confide import Plan
from confide.games import Batch, OnlineGame, Report, WorstMargin, audit_game, yardstick
from tests.service.nursery import Nursery, free_ports

CONFIG = """
[public]
port = {0}
[operator]
port = {1}
[models.game]
folder = "state"
labels = [0, 1]
columns = 2
plan = "plan.json"
learner = "confide.games.split:SplitVote"
fallback = "0"
after_halt = "raise"
trusted = true
room = 64
"""


def plan() -> Plan:
    """Short, and with an ε at which few games are enough to notice a server that tells."""
    return Plan.tight(1.0, 1e-6, 120, copies=900, polls=900, unsure=20, silent=0, beta=1e-3, guide=None)


class AskedTogether(WorstMargin):
    """Brings no labels for the rounds that everybody sees, from which its copies would learn nothing: one request."""

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        moves, told = super().play(coins), None
        try:
            while True:
                move = moves.send(told)
                told = yield replace(move, ys=None) if isinstance(move, Batch) else move
        except StopIteration:
            return


class Served:
    """Makes a fresh model of a server for each game."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery, self._games = nursery, 0
        self._token = nursery.asker.sign("everybody", expires=86400.0)
        self._client: confide.Client | None = None

    def __call__(self) -> Any:
        self.close()
        self._games += 1
        self._client = confide.Client(self._nursery.public, self._token, f"game-{self._games}")
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def passing() -> tempfile.TemporaryDirectory[str]:
    """A folder for models that live for a game: in memory where the system offers that, since nobody pulls its plug."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def attack(folder: Path, games: int, fault: str = "games", progress: bool = False) -> Report:
    """So many games at each bit."""
    (folder / "plan.json").write_text(plan().to_json())
    path = folder / "confide.toml"
    path.write_text(CONFIG.format(*free_ports(2)))
    nursery = Nursery(path, fault)
    make = Served(nursery)
    try:
        nursery.start()
        game = OnlineGame(make, AskedTogether(plan()), plan().rounds)
        return audit_game(
            game, games, certificate=plan(), yardstick=yardstick(plan())[0], name="worst margin over HTTP, eps 1",
            progress=progress,
        )  # fmt: skip
    finally:
        make.close()
        nursery.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=1500)
    given = parser.parse_args()
    with passing() as folder:
        report = attack(Path(folder), given.games, progress=True)
    print(report)
    sys.exit(1 if report.alarm or report.misfit is not None else 0)


if __name__ == "__main__":
    main()
