"""Scripts for two worlds: the unit's data replaced by anything, at every entry point of every mechanism."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from confide import POP, Monitor, Plan
from confide.banks import TallyBank
from confide.games.replay import (
    Ask,
    AskMany,
    Cut,
    Disk,
    Follow,
    Forget,
    Hidden,
    Label,
    LabelMany,
    Load,
    Script,
    Step,
    Teach,
    TeachMany,
)  # fmt: skip
from confide.learners import (
    DecisionTree,
    Features,
    GaussianNB,
    Halving,
    HashedFeatures,
    Intervals,
    LogisticRegression,
    Points,
    Refit,
)  # fmt: skip
from confide.planning.copies import Copies
from confide.planning.design import certify
from confide.planning.guarantee import Guarantee
from confide.planning.guided import GuidePlan
from confide.planning.promise import Promise
from confide.privacy.gate import Gate
from confide.privacy.halting import Halting
from confide.privacy.lean import Lean
from confide.privacy.random import Random
from confide.privacy.weigh import Weights

LABELS = ["no", "yes"]
THREE = [*LABELS, "often"]


@functools.cache
def small_plan(
    unit_unsure: int = 1, copies: int = 12, polls: int = 12, unsure: int = 120, silent: int = 6, rounds: int = 400,
    labels: int = 2, start: float = 1e-9, lean: Literal["", "fill", "additive"] = "", beside: float = 0.0,
) -> Plan:  # fmt: skip
    """A plan for a few copies: a steep gate, an ε that nobody would run. One that halts early cannot be loaded."""
    share = Fraction(polls, copies)
    halting = Halting.best(order=2, cost=1.0, unsure=unsure, start=start, survive=1e-3, shift=unit_unsure)
    how: dict[str, Any] = {"order": 2, "delta": 0.02, "poll_fraction": share, "beside": beside}
    design: dict[str, Any] = {"order": 2, "poll_fraction": share, "margins": polls, "tie_sure": 1e-6}
    leans: Lean | Weights | None = None
    if lean and labels == 2:  # wide enough that votes and offsets both count
        leans = {"fill": Lean.fill, "additive": Lean.additive}[lean](**design, cost=1.0, offsets=9, clip=3.0)
        gate = leans.envelope()
        got = certify(leans.envelope(), halting, lean=leans, **how)
    elif lean:
        gate = Gate.best(**design, cost=2.5)
        leans = Weights.beside(gate, order=2, cost=0.5, poll_fraction=share)
        got = certify(gate, halting, lean=leans, labels=labels, **how)
    else:
        gate = Gate.best(**design, cost=3.0)
        got = certify(gate, halting, **how)
    beta = max(0.01, rounds * float(halting.table[: unsure + 1].max()))
    part = Copies(copies, polls, unsure, silent, unit_unsure, labels, 2, beta, gate, halting, leans)
    return Plan(Promise(got.epsilon, got.delta, rounds, labels), (part,), "tight", Guarantee(got.epsilon, got.delta))


@functools.cache
def guided_plan(
    unit_unsure: int = 1, unit_labels: int = 1, history: int = 0, ranges: int = 0, alone: bool = False,
    copies: int = 12, polls: int = 12, start: float = 1e-9, rounds: int = 400, labels: int = 2,
    lean: Literal["", "fill", "additive"] = "", apart: bool = False,
) -> Plan:  # fmt: skip
    """A plan with a guide whose leaves are short, beside copies or alone; the noise is small, so that it learns."""
    guide = GuidePlan(
        rounds=rounds, history=history, labels=labels, leaves=-(-(rounds + history) // 5), leaf=5,
        growth=0, clip=1 << (15 if labels == 2 else 16), scale=1 << 16, unit_labels=unit_labels, sigma2=1 << 56,
        factor_scale=1 << 6, column_scale=1 << 6, node_values=1 << 24, range_rounds=ranges,
        range_norm=(1 << 16) * (ranges > 0), range_sigma2=1 << 28, range_values=(1 << 24) * (ranges > 0),
        warm_leaves=-(-ranges // 5), warm_sigma2=1 << 56, warm_factor_scale=1 << 6, warm_column_scale=1 << 6,
        warm_step=0.5, step=0.5, memory=60.0, momentum=0.0, apart=apart,
    )  # fmt: skip
    if alone:
        return Plan(Promise(guide.epsilon(0.01), 0.01, rounds, unit_labels=unit_labels), (guide,), "tight")
    bare = small_plan(
        unit_unsure, copies, polls, start=start, rounds=rounds, labels=labels, lean=lean, beside=guide.price().at(2)
    )
    return bare.but(guide=guide, unit_labels=unit_labels)


# ---------------------------------------------------------------------- anything at all


class Raises:
    """Whatever is done with it, it raises this."""

    def __init__(self, error: type[BaseException]) -> None:
        vars(self)["error"] = error

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__dict__", "__deepcopy__", "__reduce_ex__"):
            return object.__getattribute__(self, name)
        raise object.__getattribute__(self, "__dict__")["error"]("private")

    def _raise(self, *_: Any) -> Any:
        raise object.__getattribute__(self, "__dict__")["error"]("private")

    __array__ = __float__ = __len__ = __iter__ = __getitem__ = __eq__ = __bool__ = __str__ = __repr__ = _raise  # type: ignore[assignment]
    __hash__ = _raise  # type: ignore[assignment]


class BadFloat:
    """A number that fails when it is looked at."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error("private")


class BadDict(Mapping[str, Any]):
    """A dict that fails when it is read."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __getitem__(self, key: str) -> Any:
        raise self.error("private")

    def __iter__(self) -> Iterator[str]:
        raise self.error("private")

    def __len__(self) -> int:
        return 2


def anything(dice: random.Random) -> Any:
    """An x that nobody expects."""
    error = dice.choice(
        [RuntimeError, OverflowError, TypeError, KeyError, ZeroDivisionError, RecursionError, MemoryError]
    )
    loop: list[Any] = []
    loop.append(loop)
    things: list[Callable[[], Any]] = [
        lambda: None, lambda: "text", lambda: b"bytes", lambda: 10**401, lambda: [10**401, 0], lambda: [1.0],
        lambda: [float("nan"), 0.0], lambda: [float("inf"), 0.0], lambda: [1e300, 0.0], lambda: [], lambda: {},
        lambda: {"a": 10**401}, lambda: {"a": float("nan")}, lambda: {"a": "text", "b": {"c": 1}}, lambda: {1: 2.0},
        lambda: {"a": BadFloat(error)}, lambda: [BadFloat(error), 1.0], lambda: BadDict(error), lambda: Raises(error),
        lambda: {"a": Raises(error)}, lambda: loop, lambda: {"\ud800": 1.0}, lambda: {"a": "\ud800"}, lambda: {1, 2},
        lambda: np.array([["x", 1]], dtype=object), lambda: np.zeros((2, 2)), lambda: np.array(3.0), lambda: object(),
        lambda: (x for x in (1.0, 2.0)), lambda: [[1.0, 2.0]], lambda: {"a": [1, 2]}, lambda: 3 + 4j,
    ]  # fmt: skip
    return dice.choice(things)()


# ---------------------------------------------------------------------- mechanisms


class Own:
    """A learner that somebody wrote: it remembers the last label, and fails now and then."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.lessons = 0

    def predict(self, x: Any) -> int | None:
        if self.lessons % 5 == 3:
            raise ArithmeticError("private")
        return self.last

    def learn(self, x: Any, y: int) -> None:
        self.lessons += 1
        if self.lessons % 7 == 4:
            raise ArithmeticError("private")
        self.last = y


def make_pop(learner: Any, **settings: Any) -> Callable[[Random], POP]:
    """A maker of POPs on a given tape."""
    settings = {"plan": small_plan(), "features": 2, **settings}
    labels = LABELS if settings["plan"].labels == 2 else THREE
    return lambda rng: POP(learner, labels=labels, seed=rng, **{"after_halt": "raise", **settings})


def tallied_pop(learner: Any, points: int | None = None, **settings: Any) -> Callable[[Random], POP]:
    """The same with votes that are tallied."""
    settings = {"plan": small_plan(), "features": 1, **settings}
    copies = settings["plan"].copies
    return lambda rng: make_pop(learner, **settings, bank=TallyBank(learner, copies, points=points))(rng)


def public(x: Any) -> str:
    """A public model."""
    return (
        "yes" if np.size(x) == 2 and not isinstance(x, dict) and float(np.sum(np.asarray(x, dtype=float))) > 0 else "no"
    )


PEOPLE = {"units": "people", "plan": small_plan(2), "monitor": Monitor(1.0, rounds_per_unit=2, delay=3)}
POLLED = small_plan(1, copies=20, polls=7)
SOON = small_plan(2, start=0.05)
"""It halts after about twenty rounds."""


GUIDED = guided_plan(2, 2, history=30)
ALONE = guided_plan(1, 2, history=12, ranges=10, alone=True)
LEANING = guided_plan(copies=20, polls=7, history=20, lean="fill")
THREE_LED = guided_plan(2, 2, copies=20, polls=7, history=20, labels=3, lean="additive")


def makers() -> dict[str, tuple[Callable[[Random], Any], bool]]:
    """Every kind of bank and plan; whether x is a dict."""
    from river import compose, linear_model, naive_bayes, preprocessing
    from sklearn.naive_bayes import GaussianNB as Bayes
    from sklearn.tree import DecisionTreeClassifier

    named = Features(numeric=["a", "b"], categorical={"c": 3})
    ranged = Features(numeric={"a": (-1.0, 1.0), "b": (-1.0, 1.0)}, categorical={"c": 3})
    return {
        "fused": (make_pop(LogisticRegression(), fallback=public), False),
        "fused, polled": (make_pop(DecisionTree(memory=12), plan=POLLED), False),
        "fused, people": (make_pop(GaussianNB(), **PEOPLE), False),
        "fused, people, polled": (make_pop(LogisticRegression(), **{**PEOPLE, "plan": small_plan(2, 20, 7)}), False),
        "fused, dicts": (make_pop(named | LogisticRegression(), features=None, fallback="no"), True),
        "hashed, people": (make_pop(HashedFeatures(8) | GaussianNB(), **{**PEOPLE, "features": None}), True),
        "soon halted": (make_pop(LogisticRegression(), plan=small_plan(1, silent=0, start=0.05)), False),
        "soon halted, people": (
            make_pop(LogisticRegression(), **{**PEOPLE, "plan": SOON, "after_halt": "fallback"}), False,
        ),
        "few rounds": (
            make_pop(LogisticRegression(), plan=small_plan(1, rounds=30), monitor=Monitor(1.0, delay=2)), False,
        ),
        "stacked, plain": (make_pop(Halving(np.eye(4, dtype=int)), features=1, plan=POLLED), False),
        "points": (make_pop(Points(), features=1), False),
        "tallied points": (tallied_pop(Points(), points=4), False),
        "tallied intervals, people": (tallied_pop(Intervals(4), **{**PEOPLE, "features": 1}), False),
        "refit": (make_pop(Refit(DecisionTreeClassifier(max_depth=2, random_state=0), memory=6), **PEOPLE), False),
        "scikit-learn": (make_pop(Bayes()), False),
        "river": (make_pop(naive_bayes.GaussianNB(), features=None, **{**PEOPLE}), True),
        "river, pipeline": (
            make_pop(
                compose.Pipeline(preprocessing.OneHotEncoder(), preprocessing.StandardScaler(),
                                 linear_model.LogisticRegression()),
                features=None,
            ), True,
        ),
        "somebody's own": (make_pop(Own(), features=None), True),
        "guided": (make_pop(LogisticRegression(), plan=guided_plan(history=20)), False),
        "guided, people": (make_pop(DecisionTree(memory=12), **{**PEOPLE, "plan": GUIDED}), False),
        "guided, people, dicts": (
            make_pop(named | GaussianNB(), features=None,
                     **{**PEOPLE, "plan": guided_plan(2, 3, copies=20, polls=7, ranges=8)}), True,
        ),
        "guided, soon halted, people": (
            make_pop(HashedFeatures(8) | LogisticRegression(), **{
                **PEOPLE, "plan": guided_plan(2, 2, start=0.05), "after_halt": "fallback", "features": None,
            }), True,
        ),
        "guide alone": (make_pop(None, plan=guided_plan(history=20, alone=True), features=ranged), True),
        "guide alone, people": (
            make_pop(None, plan=ALONE, units="people", label_weights=[2.0, 3.0], fallback="no"), False,
        ),
        "guide alone, few rounds, people": (
            make_pop(None, plan=guided_plan(1, 2, alone=True, rounds=40), units="people", features=None,
                     after_halt="fallback"), True,
        ),
        "guide alone, counting": (
            make_pop(None, plan=guided_plan(history=12, ranges=10, alone=True, apart=True), after_halt="fallback"),
            False,
        ),
        "leaning": (make_pop(LogisticRegression(), plan=small_plan(lean="fill", unsure=300)), False),
        "leaning, people, polled": (
            make_pop(GaussianNB(), **{**PEOPLE, "plan": small_plan(2, 20, 7, unsure=300, lean="additive")}), False,
        ),
        "leaning, somebody's own": (make_pop(Own(), features=None, plan=small_plan(1, 20, 7, lean="fill")), True),
        "leaning, guided": (make_pop(LogisticRegression(), plan=LEANING, after_halt="fallback"), False),
        "leaning, guided, people": (
            make_pop(LogisticRegression(), **{**PEOPLE, "plan": guided_plan(2, 2, history=20, lean="fill")}), False,
        ),
        "leaning, soon halted, people": (
            make_pop(DecisionTree(memory=12), **{
                **PEOPLE, "plan": guided_plan(2, 2, start=0.05, lean="fill"), "after_halt": "fallback",
            }), False,
        ),
        "leaning, three labels": (make_pop(LogisticRegression(), plan=small_plan(labels=3, lean="additive")), False),
        "leaning, guided, three labels, people": (
            make_pop(DecisionTree(memory=12), **{**PEOPLE, "plan": THREE_LED, "after_halt": "fallback"}), False,
        ),
    }  # fmt: skip


# ---------------------------------------------------------------------- scripts


class Writer:
    """Writes a script of random steps, some of them the unit's."""

    def __init__(
        self, seed: int, dicts: bool, people: bool, wild: float = 0.5, fused: bool = True, width: int = 2,
        loads: bool = False, labels: Sequence[str] = LABELS, cuts: bool = False,
    ) -> None:  # fmt: skip
        self.dice = random.Random(seed)
        self.labels, self.cuts = list(labels), cuts
        self.known: list[Any] = []
        self.dicts, self.people, self.wild, self.fused, self.width, self.loads = (
            dicts,
            people,
            wild,
            fused,
            width,
            loads,
        )
        self.steps: list[Step | Hidden] = []
        self.asks, self.open, self.hidden_open, self.cases, self.spent = 0, list[int](), list[int](), 0, False
        self.asked: dict[int, Any] = {}

    def x(self) -> Any:
        if self.known and self.dice.random() < 0.25:  # what was asked or taught before
            return self.dice.choice(self.known[-8:])
        self.known.append(self.fresh_x())
        return self.known[-1]

    def fresh_x(self) -> Any:
        if self.width == 1:
            return [float(self.dice.randrange(4))]
        first, second = self.dice.uniform(-1, 1), self.dice.choice([-1.0, 0.0, 0.5, 1.0])
        return {"a": first, "b": second, "c": self.dice.choice("uvw")} if self.dicts else [first, second]

    def odd_x(self) -> Any:
        return anything(self.dice)

    def wild_x(self) -> Any:
        return self.odd_x() if self.dice.random() < self.wild else self.x()

    def y(self, x: Any = None) -> Any:
        """Mostly what x says, so that copies come to agree and are sure of something."""
        if self.dice.random() < 0.1 or not (isinstance(x, list | dict) and x):
            return self.dice.choice(self.labels)
        first = x.get("a") if isinstance(x, dict) else x[0]
        return self.labels[int(type(first) is float and first > (1.5 if self.width == 1 else 0.0))]

    def number(self, x: Any) -> int:
        """A label to follow with: sometimes none."""
        return -1 if self.dice.random() < 0.2 else self.labels.index(self.y(x))

    def wild_y(self) -> Any:
        return (
            self.dice.choice(["maybe", None, float("nan"), ["no"], 7, Raises(TypeError)])
            if self.dice.random() < 0.3
            else self.y()
        )

    def someone(self) -> str | None:
        return f"person {self.dice.randrange(30)}" if self.people else None

    def units(self, n: int) -> list[str] | None:
        return [f"person {self.dice.randrange(30)}" for _ in range(n)] if self.people else None

    def visible(self) -> None:
        kind = self.dice.random()
        n = self.dice.randrange(1, 6)
        if self.loads and kind < 0.05:
            self.steps.append(Load(saved=kind < 0.02))
            return
        if self.cuts and kind < 0.15:
            n = self.dice.randrange(3, 18)
            xs = [self.x() for _ in range(n)]
            self.steps.append(self.cut(Follow(xs, [self.number(x) for x in xs], self.units(n))))
            self.asks += n
        elif kind < 0.4:
            self.steps.append(Ask(self.x() if self.dice.random() < 0.95 else self.odd_x(), self.someone()))
            self._opened([self.steps[-1].x])
        elif kind < 0.55:
            xs = [self.x() if self.dice.random() < 0.9 else self.odd_x() for _ in range(n)]
            self.steps.append(AskMany(xs, self.units(n)))
            self._opened(xs)
        elif kind < 0.65 and self.fused:
            xs = [self.x() for _ in range(n)]
            self.steps.append(Follow(xs, [self.number(x) for x in xs], self.units(n)))
            self.asks += n
        elif kind < 0.85 and self.open:
            ask = self.open.pop(self.dice.randrange(len(self.open)))
            self.steps.append(Label(ask, self.y(self.asked[ask])))
        elif kind < 0.9 and len(self.open) > 2:
            some = [self.open.pop(), self.open.pop(0)]
            self.steps.append(LabelMany(some, [self.y(self.asked[ask]) for ask in some]))
        elif kind < 0.92:
            x = self.x()
            self.steps.append(Teach(x, self.y(x), self.someone()))
        elif kind < 0.97:
            xs = [self.x() for _ in range(n)]
            self.steps.append(TeachMany(xs, [self.y(x) for x in xs], self.units(n)))
        elif self.people:
            self.steps.append(Forget(self.someone() or ""))

    def cut(self, batch: AskMany | Follow) -> Cut:
        """A batch that does not come to its end."""
        return Cut(batch, self.dice.randrange(1, 4), self.loads and self.dice.random() < 0.5)

    def _opened(self, xs: list[Any], hidden: int | None = None) -> None:
        """These were asked; their labels may come."""
        for i, x in enumerate(xs):
            self.asks += 1
            self.asked[self.asks] = x
            (self.hidden_open if i == hidden else self.open).append(self.asks)

    def hidden(self) -> None:
        """One thing of the unit, replaced by another; what only its bringer knows of, now and then without a disk."""
        before = len(self.steps)
        self._hidden()
        new = self.steps[before:]
        private = new and all(isinstance(one, Hidden) and isinstance(one.first, Label | Forget | None) for one in new)
        if self.loads and private and self.dice.random() < 0.3:
            self.steps[before:] = [Disk(False), *new, Disk(True)]

    def _hidden(self) -> None:
        if self.spent and not self.people:
            if self.hidden_open:
                ask = self.hidden_open.pop()
                self.steps.append(
                    Hidden(Label(ask, self.wild_y()), self.dice.choice([None, Label(ask, self.wild_y())]))
                )
                self.cases += 1
            return
        who, kind, n = ("the unit" if self.people else None), self.dice.random(), self.dice.randrange(2, 6)
        self.cases += 1
        if kind < 0.35:
            self.steps.append(Hidden(Ask(self.wild_x(), who), Ask(self.wild_x(), who)))
            self._opened([None], hidden=0)
        elif kind < 0.55:
            self._hidden_batch(n, follow=self.fused and self.dice.random() < 0.4)
        elif kind < 0.7 and self.hidden_open and self.people:
            ask = self.hidden_open.pop(self.dice.randrange(len(self.hidden_open)))
            if self.dice.random() < 0.3:  # it tries once more later
                self.hidden_open.append(ask)
            if self.open and self.dice.random() < 0.4:  # with somebody else's, who must not notice
                asks = [ask, self.open.pop()]
                y = self.y(self.asked[asks[1]])
                both = [LabelMany(asks, [self.wild_y(), y]) for _ in range(2)]
                self.steps.append(Hidden(*both, rows=(0,)))
                return
            pair = [Label(ask, self.wild_y()), self.dice.choice([None, Label(ask, self.wild_y())])]
            self.dice.shuffle(pair)
            self.steps.append(Hidden(*pair))
        elif kind < 0.8:
            row = self.dice.randrange(n)
            xs, units = [self.x() for _ in range(n)], self.units(n)
            ys = [self.y(x) for x in xs]
            self.steps.append(self._pair(lambda x, y: TeachMany(*self._with(row, xs, x, ys, y, units)), row))
        elif kind < 0.9 or not self.people:
            pair2: list[Any] = [
                Teach(self.wild_x(), self.wild_y(), who),
                self.dice.choice([None, Teach(self.wild_x(), self.y(), who)]),
            ]
            self.steps.append(Hidden(*pair2))
        else:
            self.steps.append(Hidden(Forget("the unit"), None))
        self.spent = True

    def _with(self, row: int, xs: list[Any], x: Any, ys: list[Any], y: Any, units: list[str] | None) -> tuple[Any, ...]:
        xs, ys = [*xs[:row], x, *xs[row + 1 :]], [*ys[:row], y, *ys[row + 1 :]]
        whose = None if units is None else [*units[:row], "the unit", *units[row + 1 :]]
        return xs, ys, whose

    def _pair(self, make: Callable[[Any, Any], Step], row: int) -> Hidden:
        return Hidden(make(self.wild_x(), self.wild_y()), make(self.wild_x(), self.wild_y()), rows=(row,))

    def _hidden_batch(self, n: int, follow: bool) -> None:
        row, xs, units = self.dice.randrange(n), [self.x() for _ in range(n)], self.units(n)
        ys: list[Any] = [self.number(x) for x in xs]

        def one(x: Any, y: Any) -> Step:
            rows, labels, whose = self._with(row, xs, x, ys, self.dice.randrange(-1, len(self.labels)), units)
            return Follow(rows, labels, whose) if follow else AskMany(rows, whose)

        cut = self.cuts and self.dice.random() < 0.7
        how = self.dice.getstate()

        def either(x: Any, y: Any) -> Step:
            self.dice.setstate(how)
            batch = one(x, y)
            assert isinstance(batch, AskMany | Follow)
            return self.cut(batch) if cut else batch

        self.steps.append(self._pair(either if cut else one, row))
        if follow or cut:
            self.asks += n
        else:
            self._opened(xs, hidden=row)

    def taught(self, history: int) -> None:
        """History in which one record is the unit's, before anything is asked."""
        row, n = self.dice.randrange(min(history, 12)), history
        xs, units = [self.x() for _ in range(n)], [f"reader {i}" for i in range(n)] if self.people else None
        ys = [self.y(x) for x in xs]
        self.steps.append(self._pair(lambda x, y: TeachMany(*self._with(row, xs, x, ys, y, units)), row))
        self.spent = True

    def write(self, hidden: int, between: int, history: int | None = None) -> Script:
        if history is None:
            history = self.dice.choice([0, 3, 150, 150, 150])  # few copies vote at first, or most of them do
        xs = [self.x() for _ in range(history)]
        readers = [f"reader {i}" for i in range(len(xs))] if self.people else None
        if xs:
            self.steps.append(TeachMany(xs, [self.y(x) for x in xs], readers))
        for _ in range(6):
            self.visible()
        for _ in range(hidden):
            self.hidden()
            for _ in range(self.dice.randrange(between + 1)):
                self.visible()
        return self.steps
