"""Scripts: what happens to a mechanism. A step of the protected unit has two versions, one for each world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Unit = str | bytes


@dataclass(frozen=True)
class Ask:
    """Somebody asks."""

    x: Any
    unit: Unit | None = None


@dataclass(frozen=True)
class AskMany:
    """A batch of questions: each row counts as an Ask."""

    xs: Sequence[Any]
    units: Sequence[Unit] | None = None


@dataclass(frozen=True)
class Again:
    """The request of the script's `ask`-th Ask (from 1) is sent once more, by its sender and with its id.

    It is public that it is sent again. It takes no round. For mechanisms that know requests by their ids.
    """

    ask: int


@dataclass(frozen=True)
class Over:
    """Somebody asks whose rounds of the day are used up. The question is refused and takes no round. That is public.

    For mechanisms that have quotas.
    """

    x: Any
    unit: Unit


@dataclass(frozen=True)
class Follow:
    """Rows that are asked and, where there is a label, taught before the next one: `confide.evaluate`'s loop.

    Each row counts as an Ask whose ticket never leaves.
    """

    xs: Sequence[Any]
    ys: Sequence[int]
    """Numbers of labels; −1 for none."""
    units: Sequence[Unit] | None = None


@dataclass(frozen=True)
class Cut:
    """A batch that is cut off when the guide has made so many releases in it, or has come to its end.

    An interrupt cuts it off; or the process crashes, and another one loads an older snapshot. For mechanisms that
    answer after a halt: in these the guide goes through a batch before the copies do, so the copies never see it.
    """

    batch: AskMany | Follow
    after: int = 1
    crash: bool = False

    @property
    def xs(self) -> Sequence[Any]:
        """The questions."""
        return self.batch.xs


@dataclass(frozen=True)
class Label:
    """The label of the script's `ask`-th Ask (from 1) comes in."""

    ask: int
    y: Any


@dataclass(frozen=True)
class LabelMany:
    """Labels that come in together."""

    asks: Sequence[int]
    ys: Sequence[Any]


@dataclass(frozen=True)
class Teach:
    """A labelled record that was never asked."""

    x: Any
    y: Any
    unit: Unit | None = None


@dataclass(frozen=True)
class TeachMany:
    """A batch of records."""

    xs: Sequence[Any]
    ys: Sequence[Any]
    units: Sequence[Unit] | None = None


@dataclass(frozen=True)
class Forget:
    """A person wants to be forgotten."""

    unit: Unit


@dataclass(frozen=True)
class Load:
    """The process ends and another one loads the state; unless `saved`, it crashed, and an older snapshot is loaded."""

    saved: bool = True


@dataclass(frozen=True)
class Disk:
    """The disk with the ledger goes away, and every write fails, or it comes back."""

    works: bool


Step = Ask | AskMany | Again | Over | Follow | Cut | Label | LabelMany | Teach | TeachMany | Forget | Load | Disk
Batch = AskMany | Follow | Cut | LabelMany | TeachMany


@dataclass(frozen=True)
class Hidden:
    """A step that has to do with the protected unit, one version for each world.

    An Ask or a batch must be in both worlds. `rows` are the unit's own rows of a batch: all others are the same in both
    worlds, and visible.
    """

    first: Step | None
    second: Step | None
    rows: tuple[int, ...] = ()


Script = Sequence[Step | Hidden]


def version(step: Step | Hidden, world: int) -> Step | None:
    """What happens in this world."""
    return (step.first, step.second)[world] if isinstance(step, Hidden) else step


@dataclass(frozen=True)
class Own:
    """Which rows of a step are the unit's."""

    whole: bool
    rows: tuple[int, ...]

    def has(self, row: int) -> bool:
        """Whether this row is."""
        return self.whole or row in self.rows


def own_rows(step: Step | Hidden) -> Own:
    """Which rows of a step are the unit's."""
    rows = step.rows if isinstance(step, Hidden) else ()
    return Own(isinstance(step, Hidden) and not rows, rows)


def size(step: Step | None) -> int:
    """How many rounds a step asks for."""
    if isinstance(step, AskMany | Follow | Cut):
        return len(step.xs)
    return int(isinstance(step, Ask))


def units_of(step: Step | None, rounds: int) -> list[Any]:
    """Whose the rounds, or records, of a step are."""
    if isinstance(step, Cut):
        return units_of(step.batch, rounds)
    if isinstance(step, Ask | Over | Teach | Forget):
        return [step.unit]
    if isinstance(step, AskMany | Follow | TeachMany):
        return [None] * len(step.xs) if step.units is None else list(step.units)
    return []


def check_script(script: Script) -> None:
    """One unit is hidden: one person, or one round with its label, or one record."""
    hidden_units, others, hidden_asks, asks, rounds = set[Any](), set[Any](), set[int](), 0, 0
    for step in script:
        versions = [version(step, world) for world in (0, 1)]
        if len({size(one) for one in versions}) > 1:
            raise ValueError("whether the unit asks is public: a hidden Ask must be in both worlds")
        if isinstance(step, Hidden):
            _check_hidden(step)
            batch = isinstance(step.first, Batch) or isinstance(step.second, Batch)
            for one in versions:
                whose = units_of(one, size(one))
                hidden_units |= {whose[i] for i in step.rows if i < len(whose)} if batch else set(whose)
                others |= {unit for i, unit in enumerate(whose) if i not in step.rows} if batch else set()
            mine = step.rows if batch else range(size(versions[0]))
            hidden_asks |= {asks + 1 + i for i in mine} if size(versions[0]) else set()
            rounds += len(step.rows) if batch and size(versions[0]) else int(size(versions[0]) > 0)
            rounds += any(isinstance(one, Teach | TeachMany) for one in versions)
        else:
            others |= set(units_of(step, size(step)))
        if len({one.ask if isinstance(one, Again) else None for one in versions}) > 1:
            raise ValueError("whether a request is sent again is public: a hidden Again must be in both worlds")
        if len({isinstance(one, Over) for one in versions}) > 1:
            raise ValueError("whether a day's rounds are used up is public: a hidden Over must be in both worlds")
        asks += size(versions[0])
    if len(hidden_units) > 1 or (hidden_units == {None} and rounds > 1):
        raise ValueError("the hidden steps must all belong to one unit: one person, or one round or record")
    if (hidden_units - {None}) & others:
        raise ValueError("every step with the hidden person's id is hidden")
    _check_labels(script, hidden_asks)


def _check_hidden(step: Hidden) -> None:
    pair = step.first, step.second
    if any(isinstance(one, Load | Disk) for one in pair):
        raise ValueError("a Load is public, and so is the Disk: leave them out of Hidden")
    batches = [one for one in pair if isinstance(one, Batch)]
    if batches and (len(batches) < 2 or type(pair[0]) is not type(pair[1]) or not step.rows):
        raise ValueError("a batch that holds the unit is in both worlds, and `rows` says which rows are the unit's")


def _check_labels(script: Script, hidden_asks: set[int]) -> None:
    for step in script:
        hidden = isinstance(step, Hidden)
        for one in (version(step, 0), version(step, 1)):
            if isinstance(one, Label | Again) and (one.ask in hidden_asks) != hidden:
                raise ValueError("a label is hidden where its Ask is, and only there; so is a request sent again")
            if isinstance(one, LabelMany):
                mine = {i for i, ask in enumerate(one.asks) if ask in hidden_asks}
                if mine != (set(step.rows) if isinstance(step, Hidden) else set()):
                    raise ValueError("a label is hidden where its Ask is, and only there")
