"""Many games on all cores, in batches that are kept: an audit that is stopped goes on where it was.

The games of an audit must be independent. So a factory that has a state, such as a seed, plays in one process only,
and its audit is never continued, unless it can make a factory for each batch (`for_batch`).
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from confide.arrays import Floats
from confide.games.digest import digest, sources
from confide.games.learned import summary
from confide.games.moves import View
from confide.games.others import GeneralGame
from confide.games.play import OnlineGame
from confide.notebook import bar

BATCH = 500
"""Games at each bit that are played, and kept, together."""


class Game(Protocol):
    """Any of the games: it has an adversary, and a bit gives a view.

    Where its `make_mechanism` has a method `for_batch(number)`, that makes the factory of each batch: with a seed of
    its own, where there are seeds.
    """

    @property
    def adversary(self) -> Any: ...

    def play(self, bit: int, /) -> View: ...


@dataclass(frozen=True)
class _Job:
    """What a worker needs to know."""

    game: Game
    learned: bool

    def rows(self, game: Game, bit: int, games: int) -> Floats:
        """A row for each game: the adversary's numbers (score first) or its score, or its summary of the view."""
        adversary = game.adversary
        look: Callable[[View], Any] = getattr(adversary, "summary", summary)
        if not self.learned:
            look = getattr(adversary, "numbers", getattr(adversary, "score", look))
        return np.array([np.atleast_1d(look(game.play(bit))) for _ in range(games)], dtype=np.float64)

    def batch(self, number: int, games: int) -> tuple[Floats, Floats]:
        game = _for_batch(self.game, number)
        return self.rows(game, 0, games), self.rows(game, 1, games)


def _for_batch(game: Game, number: int) -> Game:
    make = getattr(game, "make_mechanism", None)
    if hasattr(make, "for_batch"):
        game = copy.copy(game)
        game.make_mechanism = make.for_batch(number)  # type: ignore[attr-defined, union-attr]
    return game


def _refuse_repeats(game: Game) -> None:
    """Refuse a game whose batches would repeat where they are played elsewhere, or later: one that has a state."""
    if hasattr(getattr(game, "make_mechanism", None), "for_batch"):
        return
    before = digest(game)
    game.play(0)
    moved = digest(game) != before
    if isinstance(game, OnlineGame | GeneralGame):
        promise = getattr(game.make_mechanism(), "guarantee", None)
        moved |= not getattr(promise, "secure", True)
    if moved:
        raise ValueError(
            "this game has a seed, or keeps something from one play to the next, so batches would repeat: leave the "
            "seed out, give the factory a method for_batch(number), or play with workers=1 and without a folder"
        )


_job: _Job | None = None


def _begin(pickled: bytes) -> None:
    global _job
    _job = pickle.loads(pickled)


def _work(number: int, games: int) -> tuple[int, Floats, Floats]:
    assert _job is not None
    return number, *_job.batch(number, games)


def play_many(
    game: Game,
    games: int,
    *,
    learned: bool = False,
    workers: int | None = None,
    folder: Path | None = None,
    name: str,
    progress: bool = False,
) -> tuple[list[Floats], list[Floats]]:
    """Play `games` games at each bit; the batches' rows, in order, at bit 0 and at bit 1.

    A row is the adversary's score, or what is to be learned from. With a folder every finished batch is written to a
    place there that belongs to this audit (its game, mechanism, tables, number of games, and the code of all that), and
    those that are there already are not played again.
    """
    several = workers is None or workers > 1
    if folder is not None or several:
        _refuse_repeats(game)
    sizes = [min(BATCH, games - start) for start in range(0, games, BATCH)]
    done: dict[int, tuple[Floats, Floats]] = {}
    if folder is not None:
        header = {"games": games, "batch": BATCH, "learned": learned, "game": digest(game), "confide": sources()}
        folder = _open(folder, header)
        done = {number: _read(path) for number in range(len(sizes)) if (path := _file(folder, number)).exists()}
    left = [number for number in range(len(sizes)) if number not in done]
    with bar(name, 2 * games, 2 * sum(sizes[number] for number in done), progress) as advance:
        for number, zero, one in _played(_Job(game, learned), [(number, sizes[number]) for number in left], workers):
            if folder is not None:
                _write(_file(folder, number), zero, one)
            done[number] = zero, one
            advance(2 * sizes[number])
    return [done[number][0] for number in range(len(sizes))], [done[number][1] for number in range(len(sizes))]


def _played(job: _Job, batches: list[tuple[int, int]], workers: int | None) -> Iterator[tuple[int, Floats, Floats]]:
    workers = min(len(batches), (os.cpu_count() or 1) if workers is None else workers)
    if workers <= 1:
        for number, games in batches:
            yield number, *job.batch(number, games)
        return
    try:
        pickled = pickle.dumps(job)
    except Exception:
        raise ValueError(
            "mechanism and adversary must be picklable to play on several cores: use functions and classes of a "
            "module, or workers=1"
        ) from None
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(pickled,)) as pool:
        waiting = {pool.submit(_work, number, games) for number, games in batches}
        try:
            while waiting:
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()


def _open(folder: Path, header: dict[str, Any]) -> Path:
    """The audit's own place in the folder: whatever else is there is of another audit, and left alone."""
    own = folder / digest(header)[:16]
    own.mkdir(parents=True, exist_ok=True)
    file = own / "audit.json"
    if not file.exists():
        file.write_text(json.dumps(header, indent=1) + "\n")
    elif json.loads(file.read_text()) != header:
        raise ValueError(f"{own} holds another audit: take a new folder, or empty this one")
    return own


def _file(folder: Path, number: int) -> Path:
    return folder / f"batch-{number:05d}.npz"


def _read(path: Path) -> tuple[Floats, Floats]:
    with np.load(path) as held:
        return held["zero"], held["one"]


def _write(path: Path, zero: Floats, one: Floats) -> None:
    """Whole or not at all."""
    part = path.with_suffix(".part.npz")
    np.savez_compressed(part, zero=zero, one=one)
    part.replace(path)
