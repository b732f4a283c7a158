"""A desk that failed, and how its owner comes by another one: opened again as after a restart, until that succeeds."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NoReturn

from confide.errors import StateError
from confide.service.base import Desk, Question, Refusal, Reply, Taught

__all__ = ["Gone", "Mender", "Reopen"]

Reopen = Callable[[], Desk]
"""Opens a model as the start of a service does: it is claimed anew, so that an earlier owner writes nothing more."""

FIRST, LONGEST = 0.2, 15.0
"""Seconds before the second try to open a model, and between tries at most: each wait is twice the one before it."""

BEAT = 30.0
"""Seconds after which an owner looks whether its ledger is there, always: who brought labels does not show in it."""


class Gone:
    """What is left of a desk that failed: what was last seen of it, and one sentence for whoever wants more."""

    ended, waits = True, False

    def __init__(self, desk: Desk, why: str) -> None:
        self.name, self.plan, self.life, self._why = desk.name, desk.plan, desk.life, why
        self._public, self._private = {**desk.public(), "state": "failed"}, dict(desk.private())

    @property
    def moment(self) -> Hashable:
        """Nothing changes any more."""
        return None

    def public(self) -> Mapping[str, Any]:
        """What everyone could see, and that the model failed."""
        return self._public

    def private(self) -> Mapping[str, Any]:
        """What the operator could see."""
        return self._private

    def refused(self, questions: Sequence[Question]) -> Mapping[int, Reply]:
        """Nobody in particular: `ask` refuses all alike."""
        return {}

    def not_theirs(self, lessons: Sequence[Taught]) -> Mapping[int, Refusal]:
        """None in particular: `learn` refuses all alike."""
        return {}

    def beat(self) -> None:
        """It is being opened again."""

    def close(self) -> None:
        """The desk itself was closed."""

    def _fail(self, *_: object) -> NoReturn:
        """Nobody is answered, nothing is taken, forgotten or saved: the ledger has what was spent."""
        raise StateError(self._why)

    ask = learn = teaching = forget = person = save = follows = _fail


class Mender:
    """Opens a failed model again, in a thread of its own, until that succeeds or it is ended.

    Parameters
    ----------
    desk
        The one that failed: it is closed first.
    reopen
        Opens the model.
    told
        Called with the reason of every try that failed.
    mended
        Called with the desk that was opened.
    """

    def __init__(
        self, desk: Desk, reopen: Reopen, told: Callable[[str], object], mended: Callable[[Desk], object]
    ) -> None:
        self._reopen, self._told, self._mended, self._life = reopen, told, mended, desk.life
        self._failed, self._ending = [desk], threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mend {desk.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Try no more; a desk that is being opened is handed over first."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # it could not be written: that is why it is closed
            self._failed.pop().close()
        gc.collect()  # nobody has it any more: all that it remembered is gone before it is read again
        wait = FIRST
        while not self._ending.is_set():
            try:
                desk = self._reopen()
            except BaseException as error:  # whatever it is, the next try may do better, and nobody else tries
                self._told(_why(error))
            else:
                try:
                    desk.follows(self._life)
                except StateError as error:
                    self._told(str(error))
                    with contextlib.suppress(Exception):
                        desk.close()
                else:
                    self._mended(desk)
                    return
            self._ending.wait(wait)
            wait = min(2 * wait, LONGEST)


def _why(error: BaseException) -> str:
    """What went wrong, in our words or the system's: others might quote a value."""
    told = str(error) if isinstance(error, StateError) else error.strerror if isinstance(error, OSError) else None
    return told or type(error).__name__
