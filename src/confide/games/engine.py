"""Many games on all cores, in batches that are kept: an audit that is stopped goes on where it was."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from confide.games.learned import summary
from confide.games.moves import View

__all__ = ["Game", "play_many"]

Floats = NDArray[np.float64]
BATCH = 500
"""Games at each bit that are played, and kept, together."""


class Game(Protocol):
    """Any of the games: it has an adversary, and a bit gives a view."""

    @property
    def adversary(self) -> Any: ...

    def play(self, bit: int, /) -> View: ...


@dataclass(frozen=True)
class _Job:
    """What a worker needs to know."""

    game: Game
    learned: bool

    def rows(self, bit: int, games: int) -> Floats:
        """A row for each game: the adversary's score, or its summary of the view."""
        adversary = self.game.adversary
        look: Callable[[View], Any] = getattr(adversary, "summary", summary)
        if not self.learned:
            look = getattr(adversary, "score", look)
        return np.array([np.atleast_1d(look(self.game.play(bit))) for _ in range(games)], dtype=np.float64)

    def batch(self, games: int) -> tuple[Floats, Floats]:
        return self.rows(0, games), self.rows(1, games)


_job: _Job | None = None


def _begin(pickled: bytes) -> None:
    global _job
    _job = pickle.loads(pickled)


def _work(number: int, games: int) -> tuple[int, Floats, Floats]:
    assert _job is not None
    return number, *_job.batch(games)


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

    A row is the adversary's score, or what is to be learned from. With a folder every finished batch is written there,
    and those that are there already are not played again.
    """
    sizes = [min(BATCH, games - start) for start in range(0, games, BATCH)]
    done: dict[int, tuple[Floats, Floats]] = {}
    if folder is not None:
        kind = {"learned": True} if learned else {}
        _open(folder, {"name": name, "games": games, "batch": BATCH, "adversary": repr(game.adversary), **kind})
        done = {number: _read(path) for number in range(len(sizes)) if (path := _file(folder, number)).exists()}
    left = [number for number in range(len(sizes)) if number not in done]
    with _bar(name, 2 * games, 2 * sum(sizes[number] for number in done), progress) as advance:
        for number, zero, one in _played(_Job(game, learned), [(number, sizes[number]) for number in left], workers):
            if folder is not None:
                _write(_file(folder, number), zero, one)
            done[number] = zero, one
            advance(2 * sizes[number])
    return [done[number][0] for number in range(len(sizes))], [done[number][1] for number in range(len(sizes))]


@contextmanager
def _bar(name: str, total: int, completed: int, shown: bool) -> Iterator[Callable[[int], None]]:
    if not shown:
        yield lambda steps: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # confide[cli]

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task(name, total=total, completed=completed)
        yield lambda steps: bar.advance(task, steps)


def _played(job: _Job, batches: list[tuple[int, int]], workers: int | None) -> Iterator[tuple[int, Floats, Floats]]:
    workers = min(len(batches), (os.cpu_count() or 1) if workers is None else workers)
    if workers <= 1:
        for number, games in batches:
            yield number, *job.batch(games)
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


def _open(folder: Path, header: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "audit.json"
    if not file.exists():
        file.write_text(json.dumps(header, indent=1) + "\n")
    elif json.loads(file.read_text()) != header:
        raise ValueError(f"{folder} holds another audit: take a new folder, or empty this one")


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
