"""A model's rows move from one ledger to another: nothing is lost, and nothing can be spent from both.

    1. the source is claimed, so that nobody else owns it, and fenced: from here on it counts nothing any more;
    2. all rows are written to the target in one transaction, fenced too;
    3. both are read again and compared;
    4. the source says for good where it went;
    5. the target's fence is taken away.

A fence is a reason why a model is sealed, and ends with a random number of this move. A crash leaves both sides closed,
and the same call goes on: before 4 it begins anew, since the target was never open; after 4 it only opens the target.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from confide.errors import StateError
from confide.ledger.store import Claim, Image, Place, Store, Trouble

__all__ = ["Fence", "fenced", "move"]

_FENCE = re.compile(r".*\(move ([0-9a-f]{16}): (begun|done|arriving)\)", re.DOTALL)
_WORDS = {
    "begun": "is being moved to {place}, and nothing is counted until that is done: give `confide ledger move` again",
    "done": "was moved to the ledger {place}, and nothing is counted here any more: load the state with that one",
    "arriving": "is being moved here from {place}, and is not open yet: give `confide ledger move` again",
}


@dataclass(frozen=True)
class Fence:
    """Why nothing is counted for a model, where that is a move."""

    number: str
    state: str

    def why(self, model: str, place: str) -> str:
        """The sentence for whoever wants to use it."""
        return f"the model {model!r} {_WORDS[self.state].format(place=place)} (move {self.number}: {self.state})"


def fenced(why: str | None) -> Fence | None:
    """The fence that a reason is; None where it is another one, or there is none."""
    found = None if why is None else _FENCE.fullmatch(why)
    return None if found is None else Fence(*found.groups())


def move(source: Place, target: Place, names: Mapping[str, str]) -> None:
    """Move these models, each to the name that it gets in the target. It may be called again until it returns.

    Raises
    ------
    StateError
        If a model is in use, was moved elsewhere, or the target has another one of its name: then nothing was changed.
        If something could not be written, or is not the same on both sides: then both are closed.
    """
    with ExitStack() as stack:
        try:
            claims = {name: _claimed(source, name, stack) for name in names}
            store = stack.enter_context(target.store())
            store.check_durable()
            _Move(source, target, store, names, claims).go()
        except Trouble as error:
            raise StateError(f"the move is not finished ({error}), and nothing is lost: give it again") from None


def _claimed(source: Place, name: str, stack: ExitStack) -> Claim:
    claim = source.claim(name)
    stack.callback(claim.store.release, claim.key, claim.epoch)
    return claim


@dataclass(frozen=True)
class _Move:
    """A move whose source is owned by nobody else."""

    source: Place
    target: Place
    store: Store
    names: Mapping[str, str]
    claims: Mapping[str, Claim]

    def go(self) -> None:
        images = {name: claim.store.image(name) for name, claim in self.claims.items()}
        fences = {name: fenced(image.sealed) for name, image in images.items()}
        for name, fence in fences.items():
            if fence is not None and fence.state == "arriving":
                raise StateError(str(images[name].sealed))
        number = next((fence.number for fence in fences.values() if fence is not None and fence.state == "done"), None)
        # What is sealed for another reason is spent from nowhere: it keeps that reason, and needs no fence.
        live = [name for name in self.names if images[name].sealed is None or fences[name] is not None]
        if number is None:
            number = self._copied(images, live)
        self._fence(live, Fence(number, "done"))
        self._open(images, live, number)

    def _copied(self, images: Mapping[str, Image], live: list[str]) -> str:
        """Everything up to the comparison; the number of this move."""
        number, here = os.urandom(8).hex(), self.store.models()
        instead = {name: self._instead(images[name], to) for name, to in self.names.items() if to in here}
        self._fence(live, Fence(number, "begun"))
        arriving = Fence(number, "arriving")
        for name, to in self.names.items():
            image = images[name].but(sealed=arriving.why(to, self.source.name))
            self.store.insert(to, image, instead.get(name))
        with self.source.reader() as ours, self.target.reader() as theirs:
            for name, to in self.names.items():
                if ours.image(name).but(sealed=None) != theirs.image(to).but(sealed=None):
                    raise StateError(
                        f"{to!r} in {self.target.name} is not what {name!r} in {self.source.name} is: neither is "
                        "open; look whether something else writes there, and give the move again"
                    )
        return number

    def _instead(self, image: Image, to: str) -> int:
        """The number of a model in the target that this one replaces: an earlier copy of itself, which is closed."""
        there = self.store.image(to)
        fence = fenced(there.sealed)
        if fence is None or fence.state == "begun" or not there.lives & image.lives:
            raise StateError(f"the ledger {self.target.name} has a model {to!r} already: choose another name")
        return int(self.store.model(to)[0])

    def _fence(self, live: list[str], fence: Fence) -> None:
        for name in live:
            claim = self.claims[name]
            claim.store.seal(claim.key, fence.why(name, self.target.name))

    def _open(self, images: Mapping[str, Image], live: list[str], number: str) -> None:
        here = self.store.models()
        for name, to in self.names.items():
            there = self.store.image(to) if to in here else None
            fence = None if there is None else fenced(there.sealed)
            if there is not None and fence == Fence(number, "arriving"):
                self.store.seal(self.store.model(to)[0], None if name in live else images[name].sealed)
            elif there is None or fence is not None or not there.lives & images[name].lives:
                raise StateError(
                    f"the model {name!r} was moved from {self.source.name} before, and {self.target.name} has no copy "
                    f"of it that waits for this: {images[name].sealed}"
                )
