"""Scripts for replays: what happens to a POP, with a version for each of two worlds where a step is the unit's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ask:
    """Somebody asks."""

    x: Any
    unit: str | bytes | None = None


@dataclass(frozen=True)
class AskMany:
    """Somebody asks a batch: each row counts as an Ask."""

    xs: Sequence[Any]
    units: Sequence[str | bytes] | None = None


@dataclass(frozen=True)
class Label:
    """The label of the script's `ask`-th Ask (from 1) comes in."""

    ask: int
    y: Any


@dataclass(frozen=True)
class Teach:
    """A labelled record that was never asked."""

    x: Any
    y: Any
    unit: str | bytes | None = None


@dataclass(frozen=True)
class Forget:
    """A person wants to be forgotten."""

    unit: str | bytes


@dataclass(frozen=True)
class Load:
    """The process ends and another one loads the state; unless `saved`, it crashed, and an older snapshot is loaded."""

    saved: bool = True


Step = Ask | AskMany | Label | Teach | Forget | Load


@dataclass(frozen=True)
class Hidden:
    """A step of the protected unit, one version for each world; only an Ask must be in both."""

    first: Step | None
    second: Step | None


Script = Sequence[Step | Hidden]


def check_script(script: Script) -> None:
    """One unit is hidden: one person, or one round with its label, or one record."""
    units: dict[bool, set[Any]] = {True: set(), False: set()}
    labelled: dict[bool, set[int]] = {True: set(), False: set()}
    hidden_asks, asks, records = set(), 0, 0
    for step in script:
        hidden = isinstance(step, Hidden)
        versions = (step.first, step.second) if isinstance(step, Hidden) else (step, step)
        if isinstance(versions[0], Ask) != isinstance(versions[1], Ask):
            raise ValueError("whether the unit asks is public: a hidden Ask must be in both worlds")
        if hidden and any(isinstance(version, Load) for version in versions):
            raise ValueError("a Load is public: leave it out of Hidden")
        if hidden and any(isinstance(version, AskMany) for version in versions):
            raise ValueError("a batch is visible: hide the unit's rounds one by one, as Ask")
        asks += len(versions[0].xs) if isinstance(versions[0], AskMany) else isinstance(versions[0], Ask)
        hidden_asks |= {asks} if hidden and isinstance(versions[0], Ask) else set()
        records += hidden and any(isinstance(version, Teach) for version in versions)
        units[hidden] |= {version.unit for version in versions if isinstance(version, Ask | Teach | Forget)}
        units[hidden] |= {unit for version in versions if isinstance(version, AskMany) for unit in version.units or ()}
        labelled[hidden] |= {version.ask for version in versions if isinstance(version, Label)}
    if len(units[True]) > 1 or (units[True] == {None} and len(hidden_asks) + records > 1):
        raise ValueError("the hidden steps must all belong to one unit: one person, or one round or record")
    if (units[True] - {None}) & units[False]:
        raise ValueError("every step with the hidden person's id is hidden")
    if labelled[False] & hidden_asks or not labelled[True] <= hidden_asks:
        raise ValueError("a label is hidden where its Ask is, and only there")
