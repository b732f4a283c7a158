"""The folder of a model of labels alone: its state, what came out since, and who owns it.

    labels.npz            the state, which says how many outputs it has; replaced as a whole
    labels-N.journal      what came out since: the output with the number N is its first
    key                   the secret that names people and signs tickets
    lock                  held while a process owns it
    rolled-back           that a ticket came which this folder does not know: it is never loaded again

State and journal belong together. One without the other, or with an older one, would forget what people have used, and
is refused. A whole folder that was restored from a backup looks whole; what tells is a ticket of a life, or of a round
of one, that the folder never had (docs/labels.md).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.errors import StateError
from confide.labels.journal import Entry, Journal
from confide.ledger import snapshot
from confide.ledger.file import Lock

__all__ = ["ROLLED_BACK", "LabelFolder", "labels_alone"]

_STATE, _SEAL = "labels.npz", "rolled-back"
ROLLED_BACK = (
    "a ticket came that this model gave out and its folder does not know: the folder was rolled back, or a copy of it "
    "is in use, and what people's labels have used since is not counted; nobody is answered any more; bring back the "
    "newest folder, or start a new model"
)


def labels_alone(folder: Path) -> bool:
    """Whether a folder holds a state of this promise."""
    return (folder / _STATE).is_file()


class LabelFolder:
    """One that this process owns.

    Parameters
    ----------
    path
        The folder; an empty one for a new state, or one that holds a state.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not labels_alone(path):
            snapshot.make_folder(path)
        self._lock = Lock(path / "lock")
        try:
            if (path / _SEAL).exists():
                raise StateError(ROLLED_BACK)
            self._journal = self._newest()
        except BaseException:
            self._lock.release()
            raise

    def _newest(self) -> Journal:
        """The journal that goes furthest: an interrupted save may have left an empty one beside it."""
        numbers = self._journals()
        if labels_alone(self.path) and not numbers:
            raise StateError(f"{self.path} has no journal beside its state: {_TOGETHER}")
        *others, newest = sorted(
            (Journal(self._name(first), first) for first in numbers or [0]), key=lambda one: (one.next, one.first)
        )
        for one in others:
            one.close()
        return newest

    def _journals(self) -> list[int]:
        found = [path.stem.removeprefix("labels-") for path in self.path.glob("labels-*.journal")]
        return sorted(int(number) for number in found if number.isdecimal())

    def _name(self, first: int) -> Path:
        return self.path / f"labels-{first}.journal"

    def add(self, entries: Sequence[Entry]) -> None:
        """Write down what came out: on the disk when this returns."""
        self._journal.add(entries)

    def save(self, secret: bytes, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put a state in the place of the last one; what is written from now on comes after it.

        Whatever interrupts this, each output is in the state, or numbered behind it in a journal that is still there.
        """
        if self._journal.closed:
            raise StateError("this model was closed, or could not write before: load it again")
        number, held = self._journal.next, io.BytesIO()
        about = {"sequence": np.array(number), "key": _fingerprint(secret)}
        np.savez(held, **{**arrays, **about})  # type: ignore[arg-type]
        snapshot.write_key(self.path, secret)
        snapshot.write_extra(self.path, _STATE, held.getvalue())
        if number > self._journal.first:
            old, self._journal = self._journal, Journal(self._name(number), number)
            old.close()
        for first in self._journals():
            if first < number:
                self._name(first).unlink(missing_ok=True)

    def load(self) -> tuple[bytes, dict[str, NDArray[Any]], list[Entry]]:
        """The secret, the state, and what came out since."""
        try:
            with np.load(io.BytesIO(snapshot.read_extra(self.path, _STATE) or b""), allow_pickle=False) as file:
                arrays = dict(file)
            number, key = int(arrays["sequence"]), arrays["key"].tobytes()
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            raise StateError(f"{self.path} is damaged: take it from a backup") from None
        secret = snapshot.read_key(self.path)
        if _fingerprint(secret).tobytes() != key:
            raise StateError(f"the key in {self.path} is not the one this state was made with: {_TOGETHER}")
        return secret, arrays, list(self._since(number))

    def _since(self, number: int) -> Iterator[Entry]:
        """Entries behind a state; of two outputs for one question the first counts."""
        if not self._journal.first <= number <= self._journal.next:
            older = "older" if number < self._journal.first else "newer"
            raise StateError(f"the state in {self.path} is {older} than its journal: {_TOGETHER}")
        seen: set[tuple[int, int]] = set()
        for entry in self._journal.entries(number):
            if entry.out < 0:
                yield entry
            elif entry.key not in seen:
                seen.add(entry.key)
                yield entry

    def seal(self) -> None:
        """It was rolled back: nobody loads it any more."""
        snapshot.write_extra(self.path, _SEAL, b"")

    def close(self) -> None:
        """Give it back; nothing is written any more."""
        self._journal.close()
        self._lock.release()


_TOGETHER = "they belong together, or what people's labels have used would be forgotten; bring back the newest of all"


def _fingerprint(secret: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(blake2b(secret, digest_size=16, person=b"labels key").digest(), dtype=np.uint8)
