"""What a run leaves on disk beside its state: what was counted, and what its files were. Owner-only files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confide.data.rows import Piece
from confide.ledger.snapshot import write_extra
from confide.runs.settings import Settings
from confide.runs.tally import Tally

FORMAT, VERSION = "confide-run", 4


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands."""

    settings: Settings
    tally: Tally
    waiting: list[list[Any]]
    """Tickets that wait for their label, each with its row's place in the stream and its round."""
    files: tuple[Piece, ...] = ()
    """The files of the stream, as they were when it was begun."""


def write_run(folder: Path, run: Checkpoint) -> None:
    """Write where the run stands; the state must be saved before, so that a crash in between asks no row twice."""
    about = {"format": FORMAT, "version": VERSION, "files": run.files}
    body = {**about, "tally": asdict(run.tally), "waiting": run.waiting}
    whole = json.dumps({**body, "settings": run.settings.to_json()})
    write_extra(folder, "run.json", whole.encode())


def read_run(folder: Path) -> Checkpoint:
    """What `write_run` wrote."""
    try:
        saved: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        known = saved.get("format") == FORMAT
    except FileNotFoundError:
        raise ValueError(f"there is no saved run in {folder}: --state named another folder, or none") from None
    except (OSError, ValueError, AttributeError):
        raise ValueError(f"the run saved in {folder} cannot be read: run.json is damaged") from None
    if not known or saved.get("version") != VERSION:
        raise ValueError(
            f"the run in {folder} was saved by another version: go on with the Confide that started it, or start anew"
        )
    try:
        settings, files = Settings.from_json(saved["settings"]), tuple(Piece(*one) for one in saved["files"])
        return Checkpoint(settings, Tally(**saved["tally"]), saved["waiting"], files)
    except (KeyError, TypeError):
        raise ValueError(f"the run saved in {folder} cannot be read: run.json is damaged") from None


def check_files(before: Sequence[Piece], now: Sequence[Piece]) -> None:
    """Refuse to go on with other files than those a run was begun with: rows would be asked twice, or never."""
    was, here = ({piece.name: piece for piece in pieces} for pieces in (before, now))
    for name in sorted(was.keys() | here.keys()):
        if name not in here:
            raise ValueError(f"{name} is gone since the run was begun: bring it back, then go on")
        if name not in was:
            raise ValueError(f"{name} was not there when the run was begun: move it away and go on, then run it alone")
        if was[name] != here[name]:
            raise ValueError(f"{name} is not what it was when the run was begun: bring that back, or start anew")


def check_place(*paths: Path | None) -> None:
    """Refuse a file that could not be written, before any work is done for it."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"cannot write {path}: there is no folder {path.parent}")


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read, whatever it was before."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if path.is_file():  # a pipe or a terminal has no access rights of ours to set
                os.chmod(path, 0o600)
                file.truncate(0)
            file.write(text)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None
