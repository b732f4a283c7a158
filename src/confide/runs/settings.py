"""What a run was asked to do: one structure for the command line, the runner, its checkpoints and its report."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from confide.planning.arguments import promised_delta
from confide.planning.plan import Plan
from confide.planning.promise import DELTA
from confide.privacy.lean import Lean
from confide.privacy.renyi import check_epsilon

VERSION = 3
"""The version of settings as JSON: this one is written, and no other is read."""

EPSILON = 1.0
"""The promise where none is asked for."""

LEANS = ("none", "fill", "additive")
"""The words for a lean. If none is given, the planner decides."""

BATCH = 25
"""The smallest batch where labels come late. Every batch is written to the disk, so it must not be too small."""

_LISTS = ("labels", "label_weights", "drop", "order")
_PLANNED = ("epsilon", "delta", "rounds", "copies", "polls", "unsure", "silent", "unit_unsure", "beta")

_ROWS_ONLY = (
    "delta", "copies", "polls", "unsure", "silent", "unit_unsure", "guide", "beta", "label_weights", "monitor",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """A run, as it was asked for; what is None was left out, and is chosen by the planner or read from the stream.

    Parameters
    ----------
    stream, learner, fallback
        As `confide run` takes them.
    plan
        A plan file; its numbers win, and what contradicts it is refused.
    epsilon, delta
        The promise, all in all.
    protect
        "rows": what was asked and what was right; "labels": only what was right.
    rounds, copies, polls, unsure, silent, unit_unsure, unit_labels, beta
        As for `confide.Plan.tight`.
    guide
        Whether a guide may have a part of the budget, or all of it.
    lean
        What is answered when the copies are unsure: "none" for the guide's answer, or "fill" or "additive".
    unit
        The column that names the person to protect; None protects rounds.
    history
        Labelled rows to teach first.
    delay
        Labels come this many rounds later, give or take a batch of 25 rounds or an eighth of the delay.
    label, labels, schema, public, drop, order
        How a file is read: the label's column and all labels, a file of declared kinds or a public sample, columns to
        leave out, columns to sort by.
    label_weights
        label=weight, for labels of which the guide is to make more, or less, than 1; a schema's if left out.
    monitor
        The part of ε that pays for a private accuracy.
    strict
        Refuse a stream with a bad row.
    ray
        Keep the copies on a Ray cluster; may change from one part of a run to the next.
    twin
        Teach something non-private everything, for comparison.
    stream_seed
        Of a generated stream: public.
    seed
        For tests and replays only: nothing is promised then.

    Examples
    --------
    >>> print(Settings("visits.csv", learner="logistic", labels=("yes", "no")).command)
    confide run visits.csv --learner logistic --labels yes,no
    >>> Settings(delay=-1)
    Traceback (most recent call last):
    ...
    ValueError: delay=-1 must be at least 0 rounds
    """

    stream: str = "visits"
    learner: str = "trees"
    plan: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    protect: str = "rows"
    rounds: int | None = None
    copies: int | None = None
    polls: int | None = None
    unsure: int | None = None
    silent: int | None = None
    unit: str | None = None
    unit_unsure: int | None = None
    unit_labels: int | None = None
    guide: bool = True
    lean: str | None = None
    beta: float | None = None
    history: str | None = None
    delay: int = 0
    label: str | None = None
    labels: tuple[str, ...] | None = None
    label_weights: tuple[str, ...] | None = None
    schema: str | None = None
    public: str | None = None
    drop: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    fallback: str = "coin"
    monitor: float | None = None
    strict: bool = False
    ray: bool = False
    twin: bool = True
    stream_seed: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        epsilon = EPSILON if self.epsilon is None else check_epsilon(self.epsilon)
        if self.delta is not None:
            promised_delta(self.delta)
        if self.rounds is not None and self.rounds < 1:
            raise ValueError(f"rounds={self.rounds} must be at least 1")
        if self.delay < 0:
            raise ValueError(f"delay={self.delay} must be at least 0 rounds")
        if self.monitor is not None and not 0 < self.monitor < (epsilon if self.plan is None else math.inf):
            raise ValueError(f"--monitor {self.monitor:g} must be a part of --epsilon {epsilon:g}: a tenth is usual")
        if self.lean not in (None, *LEANS):
            raise ValueError(f"lean {self.lean!r} must be one of {', '.join(LEANS)}")
        if self.protect not in ("rows", "labels"):
            raise ValueError("--protect must be rows, what was asked and what was right, or labels, the second alone")
        for name in _ROWS_ONLY if self.protect == "labels" else ():
            if getattr(self, name) not in (None, True):
                instead = "; a learner of your own may weigh them (--learner)" if name == "label_weights" else ""
                raise ValueError(f"{_option(name)} has no meaning with --protect labels: leave it out{instead}")
        if self.schema is not None and self.public is not None:
            raise ValueError("--schema and --public both say what columns are: give one of them")

    @property
    def people(self) -> bool:
        """Whether people are protected, over all their rounds."""
        return self.unit is not None

    @property
    def latest(self) -> int:
        """Rounds after which a label has come, whatever batch its question was in."""
        return self.delay + self.batch

    @property
    def batch(self) -> int:
        """Rounds asked at once where labels come late: a label may come so many rounds later still."""
        return max(BATCH, self.delay // 8)

    @property
    def command(self) -> str:
        """The command line that asks for the same."""
        words = ["confide run", shlex.quote(self.stream)]
        for field in fields(self)[1:]:
            value, option = getattr(self, field.name), _option(field.name)
            if value == field.default:
                continue
            if field.name in ("twin", "guide"):
                words.append(f"--no-{field.name}")
            elif value is True:
                words.append(option)
            else:
                text = ",".join(value) if isinstance(value, tuple) else f"{value:g}" if _whole(value) else str(value)
                words.append(f"{option} {shlex.quote(text)}")
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"version": VERSION, **plain}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Settings that `to_json` wrote."""
        given = dict(saved)
        version = given.pop("version", 1)
        if version != VERSION:
            raise ValueError(
                f"these settings have version {version}, and this Confide reads {VERSION}: "
                "go on with the Confide that wrote them, or start a new run"
            )
        if unknown := sorted(given.keys() - {field.name for field in fields(cls)}):
            raise ValueError(f"the settings have an unknown entry, {unknown[0]!r}: they were not written by Confide")
        for name in _LISTS:
            if given.get(name) is not None:
                given[name] = tuple(given[name])
        return cls(**given)

    def filed(self) -> Plan | None:
        """The plan in the file that was named, unless something else that was asked for contradicts it."""
        if self.plan is None:
            return None
        try:
            plan = Plan.from_json(Path(self.plan).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise ValueError(f"cannot read {self.plan}: {why}") from None
        if plan.promise.protect != self.protect:
            raise ValueError(
                f"{self.plan} protects {plan.promise.protect}, and this run {self.protect}: say --protect "
                f"{plan.promise.protect}, or take another plan"
            )
        promise = {"epsilon": plan.guarantee.epsilon, "delta": plan.guarantee.delta}
        for name in _PLANNED:
            asked = getattr(self, name)
            if asked is None or (name == "rounds" and plan.endless):  # a run of it may be as long as one likes
                continue
            said = promise[name] if name in promise else getattr(plan, name)
            if not math.isclose(asked, said, rel_tol=1e-3 if name in promise else 1e-9):
                option = f"--{name.replace('_', '-')} {asked:,}"
                raise ValueError(f"{option} contradicts {self.plan}, which says {said:,}: leave it out")
        learned = plan.promise.unit_labels if plan.public else None
        if self.unit_labels not in (None, learned) or (plan.guide is not None and not self.guide):
            option = f"--unit-labels {self.unit_labels}" if self.guide else "--no-guide"
            raise ValueError(f"{option} contradicts {self.plan}: leave it out")
        if self.lean not in (None, said := leaning(plan)):
            raise ValueError(f"--lean {self.lean} contradicts {self.plan}, which says {said}: leave it out")
        return plan

    def tight(self, labels: int, length: int | None, history: int = 0, endless: bool = False) -> Plan:
        """What `Plan.tight` makes of these settings, for so many labels, rows and records: one promise, one plan."""
        rounds = length if self.rounds is None else self.rounds
        if rounds is None and not endless:
            raise ValueError("say how many rounds there will be with --rounds")
        epsilon = EPSILON if self.epsilon is None else self.epsilon
        if self.protect == "labels":
            most = 1 if self.unit_labels is None else self.unit_labels
            units: Any = "people" if self.people else "rounds"
            return Plan.labels_alone(epsilon, labels, rounds=rounds, units=units, unit_labels=most)
        if self.monitor is not None:
            epsilon = math.nextafter(epsilon - self.monitor, 0.0)  # the two together must not exceed the promise
        given = {name: getattr(self, name) for name in (*_PLANNED[3:], "unit_labels")}
        given = {name: value for name, value in given.items() if value is not None}
        if self.lean is not None:
            given["lean"] = None if self.lean == "none" else self.lean
        if self.guide:
            given["history"] = history
        else:
            given["guide"] = None
        given["units"] = "people" if self.people else "rounds"
        return Plan.tight(epsilon, DELTA if self.delta is None else self.delta, rounds, labels=labels, **given)

    def last(self, plan: Plan) -> int:
        """The last round of a run: the plan's, or one that was asked for."""
        return min(plan.horizon, self.rounds or plan.horizon)

    def lasts(self, plan: Plan, length: int | None) -> int:
        """Rounds that a run has, at the most, on a stream of so many rows."""
        if plan.endless and self.rounds is None and length is None:
            raise ValueError("neither plan nor stream has an end: say how many rounds there will be with --rounds")
        return min(self.last(plan), length or plan.horizon) if plan.endless else plan.rounds

    def but(self, **changes: Any) -> Self:
        """The same with some changes."""
        return replace(self, **changes)


def leaning(plan: Plan) -> str:
    """How a plan leans, by its name here."""
    if plan.lean is None:
        return "none"
    return plan.lean.kind if isinstance(plan.lean, Lean) else "additive"


def _option(name: str) -> str:
    return f"--no-{name}" if name == "guide" else f"--{name.replace('_', '-')}"


def _whole(value: Any) -> bool:
    return isinstance(value, float) and float(f"{value:g}") == value
