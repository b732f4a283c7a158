"""Any model of one's own, taught randomized labels: River's, scikit-learn's, refitted ones, or an own class.

What the noise does is undone where the model lets us. One that counts is given outputs as they are: the label that
leads among outputs leads among true labels too, and the probabilities that it tells, which are those of outputs,
become those of labels by the known law. One that is taught by slopes of a logarithmic loss, and takes weights, is given
each output with the probability that it is no replacement, so that its loss is the corrected one
(docs/proofs/labels.md). A model that counts would confirm itself by such weights: they depend on its own answer.
"""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from confide.arrays import Flags, Floats, Ints
from confide.banks.base import Failures
from confide.contained import Caught, contained
from confide.errors import ConfideWarning, StateError
from confide.extras import need
from confide.labels.base import Taught
from confide.labels.default import Default
from confide.labels.fitting import Fit, next_fit
from confide.learners.base import Stacked, fresh
from confide.learners.called import Labels, NoLabel, called_by, values_of
from confide.learners.foreign import FromRiver, FromSklearn, as_learner, last_step, made
from confide.learners.refit import Refit, classifies
from confide.learners.rowwise import Heard
from confide.privacy.response import Response

__all__ = ["Doubled", "OneByOne", "Rows", "model_for"]

_FIRST, _MEMORY = 64, 1 << 18
"""Labels before a model is fitted for the first time, and rows that are kept for it."""

_ASKED = 64
"""So many questions without one answer say that there will be none."""

_UNKEPT = frozenset(["response", "beside", "_spoken", "_known"])
"""What a pickle of a model does not have."""

_FAILED = (
    "your model raised {kind}, {where}: where it does, the label that came out most often is answered, and what it is "
    "not taught is lost; {so_far}this is said once, and operator.failures counts how often. A column of words and "
    "numbers, or with gaps, is the usual cause: teach some rows to a copy of the model, with labels made up, to see it"
)
_OTHER = (
    "your model answered something that is none of the labels {labels}{kind}: where it does, the label that came out "
    "most often is answered; this is said once, and operator.failures counts how often"
)
_SHOWN = 8
"""Labels that are named."""


def model_for(learner: Any, labels: Labels, response: Response, features: Any = None) -> Taught:
    """The model meant, which has learned nothing: None for our own.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> model_for(DecisionTreeClassifier(), ["no", "yes"], Response.best(1.0, 2))
    Doubled(DecisionTreeClassifier)
    """
    if learner is None:
        return Default(features, response)
    made(learner)
    if isinstance(learner, Refit):
        plain = Refit(learner.estimator)
        if (learner.memory, learner.warmup) != (plain.memory, plain.warmup):
            raise ValueError(
                f"where labels alone are protected the last {_MEMORY:,} rows are kept, and Refit's memory and warmup "
                "have no meaning: leave them out"
            )
        learner = learner.estimator
    online = any(hasattr(learner, name) for name in ("learn_one", "partial_fit", "learn"))
    if hasattr(learner, "fit") and hasattr(learner, "predict") and not online:
        return Doubled(learner, labels, response, features)
    return OneByOne(as_learner(learner, labels), labels, response, features)


_NAMES = frozenset([str])


_NUMBERS = (
    "a scikit-learn model with partial_fit takes arrays of numbers: make them of dicts by features=Features(…), or "
    "give a pipeline that encodes dicts, which is fitted anew"
)


class Rows(NamedTuple):
    """Rows as they were asked."""

    values: list[Any]
    refused: Flags


def _read(x: Any, width: int | None) -> Any:
    """A row of its own, so that its asker cannot change it later: a dict, or an array."""
    if type(x) is dict and width is None and x and _NAMES.issuperset(map(type, x)):  # as nearly all are
        return x.copy()
    if type(x) is np.ndarray and x.ndim == 1 and x.size and width in (None, x.size):  # or this
        return x.copy()
    found: Any = None
    with contained:  # x may be any object at all
        if isinstance(x, Mapping):
            found = dict(x)
            if not all(isinstance(name, str) for name in found):
                found = None
        elif isinstance(x, np.ndarray) and x.ndim == 1:
            found = x.copy()
        elif isinstance(x, Sequence) and not isinstance(x, str | bytes):
            found = _array(list(x))
    if found is None or len(found) == 0:
        raise ValueError(
            "x must be a dict of features with names, or a one-dimensional array; of a pandas row: x.to_dict()"
        )
    if width is not None and (isinstance(found, dict) or len(found) != width):
        raise ValueError(f"x must be an array of {width} features, as declared")
    return found


def _array(values: list[Any]) -> NDArray[Any]:
    if all(isinstance(value, int | float | np.number) for value in values):
        return np.array(values, dtype=np.float64)
    out = np.empty(len(values), dtype=np.object_)
    out[:] = values
    return out


class _Own:
    """What all models of others have: rows as they come, failures that are counted, pickles on request."""

    beside = False
    """Whether fits run beside the answers."""

    def __init__(self, response: Response, labels: Labels, features: Any) -> None:
        self.response, self.labels = response, labels
        self.failures = Failures()
        self.learned = self.answered = False
        """Whether it ever did."""
        whole = isinstance(features, int) and not isinstance(features, bool)
        self._width: int | None = features if whole else None

    def read(self, x: Any) -> Any:
        """The row that x is, or a ValueError."""
        return _read(x, self._width)

    def read_many(self, xs: Any) -> Rows:
        """The same of many."""
        found = Rows([None] * len(xs), np.zeros(len(xs), dtype=np.bool_))
        for i, x in enumerate(xs):
            try:
                found.values[i] = self.read(x)
            except ValueError:
                found.refused[i] = True
        return found

    @property
    def in_vain(self) -> str:
        """What it has failed to do at all, in words; empty where it has not."""
        if not self.learned and self.failures.lessons:
            return "learn anything"
        return "" if self.answered or self.failures.votes < _ASKED else "answer any question"

    def _asked(self, ask: Callable[..., tuple[int, Floats | None]], *given: Any) -> tuple[int, Floats | None] | None:
        """What it answers; None where it fails, which is counted, or has learned nothing yet."""
        with (caught := Caught()):
            try:
                found = ask(*given)
                if not self.learned:
                    return None
                self.answered = self.answered or found[0] >= 0
                return found
            except NoLabel as error:
                self._failed(Failures(votes=1, no_label=1), self._other(error.kind))
                return None
        words = _FAILED.format(kind=caught.kind, where="when it was asked", so_far="")
        self._failed(Failures(votes=1, raised=1), words)
        return None

    def _other(self, kind: str) -> str:
        labels = values_of(self.labels)
        shown = ", ".join(map(repr, labels[:_SHOWN])) + ", …" * (len(labels) > _SHOWN)
        return _OTHER.format(labels=f"[{shown}]", kind=kind and f", but a value of type {kind}")

    def _untaught(self, kind: str, where: str = "when it was taught a label", so_far: str = "") -> None:
        self._failed(Failures(lessons=1), _FAILED.format(kind=kind, where=where, so_far=so_far))

    def _failed(self, once: Failures, words: str) -> None:
        if not any(self.failures):
            with contained:  # whoever makes errors of warnings: the round goes on
                warnings.warn(words, ConfideWarning, stacklevel=2)
        self.failures = self.failures.plus(once)

    def state(self) -> Mapping[str, NDArray[Any]]:
        """A pickle: models of others have no other form."""
        held = {name: value for name, value in vars(self).items() if name not in _UNKEPT}
        try:
            return {"pickle": np.frombuffer(pickle.dumps(held), dtype=np.uint8)}
        except Exception:
            raise StateError("this model cannot be pickled: avoid lambdas in it") from None

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a pickle that nobody else could write."""
        vars(self).update(pickle.loads(state["pickle"].astype(np.uint8).tobytes()), _known=None)


class _Voice(Protocol):
    """How one kind of model is asked and taught, by numbers of labels."""

    weighs: bool
    """Whether it is taught by slopes, and takes weights."""

    def number(self, x: Any) -> int: ...

    def shares(self, x: Any) -> Floats | None: ...

    def tell(self, x: Any, out: int, weight: float) -> None: ...


class OneByOne(_Own):
    """A model that learns row by row, as a learner: River's, scikit-learn's with `partial_fit`, or an own class.

    Parameters
    ----------
    learner
        As `as_learner` makes it; it is taught.
    labels
        All labels, or their number.
    response
        The law of what it is taught.
    features
        A number, where all rows are arrays of this length.
    """

    def __init__(self, learner: Any, labels: Labels, response: Response, features: Any = None) -> None:
        super().__init__(response, labels, features)
        self.learner = learner

    def read(self, x: Any) -> Any:
        """The row that x is; a dict is refused where it takes numbers alone."""
        row = super().read(x)
        if isinstance(row, dict) and isinstance(self.learner, FromSklearn):
            raise ValueError(_NUMBERS)
        return row

    def __repr__(self) -> str:
        return f"OneByOne({type(getattr(self.learner, 'model', self.learner)).__name__})"

    _spoken: tuple[Any, _Voice] | None = None  # the learner that it is of, and its voice
    _known: tuple[Any, Floats] | None = None  # the row asked last, and what was said of it, until anything is taught

    @property
    def _voice(self) -> _Voice:
        if self._spoken is None or self._spoken[0] is not self.learner:
            kinds: dict[type, Callable[..., _Voice]] = {FromRiver: _River, FromSklearn: _Sklearn}
            self._spoken = self.learner, kinds.get(type(self.learner), _Plain)(self.learner, self.labels)
        return self._spoken[1]

    def answer(self, row: Any) -> tuple[int, Floats | None]:
        """The model's label, −1 where it abstains or fails; and probabilities, where it tells any."""
        return self._asked(self._answered, self._voice, row) or (-1, None)

    def answer_many(self, rows: Sequence[Any]) -> list[tuple[int, Floats | None]]:
        """The same of many rows; scikit-learn's probabilities of all at once."""
        voice = self._voice
        said = _together(voice.many, rows) if self.learned and isinstance(voice, _Sklearn) else None
        if said is None:
            return [self.answer(row) for row in rows]
        pairs = zip(rows, said, strict=True)
        return [self._asked(self._answer_of, row, one, voice.weighs) or (-1, None) for row, one in pairs]

    def _answered(self, voice: _Voice, row: Any) -> tuple[int, Floats | None]:
        said = voice.shares(row)
        return (voice.number(row), None) if said is None else self._answer_of(row, said, voice.weighs)

    def _answer_of(self, row: Any, said: Floats, weighs: bool) -> tuple[int, Floats | None]:
        if not weighs:
            return int(said.argmax()), self.response.undone(said)
        self._known = row, said
        return int(said.argmax()), said

    def teach(self, row: Any, out: int) -> None:
        """Teach what came out, with its weight where the model is one for it; whatever it raises is counted."""
        known = self._known
        self._teach(self._voice, row, out, known[1] if known is not None and known[0] is row else None)

    def _teach(self, voice: _Voice, row: Any, out: int, known: Floats | None = None) -> None:
        """`known` is what the model says of the row now, where that was asked already."""
        self._known = None
        with (caught := Caught()):
            weight = 1.0
            said = voice.shares(row) if known is None and voice.weighs else known
            if said is not None:
                gain = self.response.advantage * float(said[out])
                weight = gain / (self.response.lie + gain)
            voice.tell(row, out, weight)
            self.learned = True
            return
        self._untaught(caught.kind)

    def follow(self, rows: Rows, outs: Ints) -> Ints:
        """One after the other; in compiled code where a learner of ours is taught every row."""
        if isinstance(self.learner, Stacked) and outs.size and (outs >= 0).all() and not rows.refused.any():
            with contained:  # it raises before it learns anything, where a row is none that it takes
                found = self.learner.follow(np.array(rows.values), outs)
                found[0] = found[0] if self.learned else -1
                self.learned = self.answered = True
                return found
        found, voice = np.full(outs.size, -1), self._voice
        for i, (x, refused, out) in enumerate(zip(rows.values, rows.refused.tolist(), outs.tolist(), strict=True)):
            if refused:
                continue
            asked = self._asked(self._followed, voice, x)
            found[i] = -1 if asked is None else asked[0]
            if out >= 0:
                self._teach(voice, x, out, asked and asked[1])
        return found

    def _followed(self, voice: _Voice, x: Any) -> tuple[int, Floats | None]:
        said = voice.shares(x) if voice.weighs else None
        return voice.number(x) if said is None else int(said.argmax()), said


def _accepts(method: Any, name: str) -> bool:
    with contained:
        return name in inspect.signature(method).parameters
    return False


class _River:
    def __init__(self, learner: FromRiver, labels: Labels) -> None:
        self._learner, self._called = learner, learner.hears
        last = last_step(learner.model)
        linear = type(last).__module__.startswith("river.linear_model") and hasattr(last, "predict_proba_one")
        sloped = linear and type(last).__name__ in ("LogisticRegression", "SoftmaxRegression")
        self.weighs = sloped and _accepts(last.learn_one, "w")

    def number(self, x: Any) -> int:
        return self._called.number(self._learner.model.predict_one(self._learner.named(x)))

    def shares(self, x: Any) -> Floats | None:
        model = self._learner.model
        if not hasattr(model, "predict_proba_one"):
            return None
        said = model.predict_proba_one(self._learner.named(x))
        found = [float(said.get(value, 0.0)) for value in self._called.values]
        total = sum(found)
        if not total > 0:  # it knows nothing yet, and abstains; a weight is as of one that holds all for equally likely
            return np.full(len(found), 1.0 / len(found)) if self.weighs else None
        return np.array([share / total for share in found])

    def tell(self, x: Any, out: int, weight: float) -> None:
        self._learner.told(x, out, **({"w": weight} if self.weighs else {}))


class _Sklearn:
    def __init__(self, learner: FromSklearn, labels: Labels) -> None:
        self._learner, self._labels = learner, learner.called
        model = learner.model
        linear = type(model).__name__ == "SGDClassifier" and getattr(model, "loss", None) == "log_loss"
        self.weighs = linear and _accepts(model.partial_fit, "sample_weight")

    def number(self, x: Any) -> int:
        return self._labels.number(self._learner.predict(x))

    def shares(self, x: Any) -> Floats | None:
        found = self.many([x])
        return None if found is None else found[0]

    def many(self, xs: Sequence[Any]) -> Floats | None:
        """Those of several rows."""
        learner = self._learner
        if not learner.taught or not hasattr(learner.model, "predict_proba"):
            return None
        return _shares(learner.model, np.array(xs), learner.heard)

    def tell(self, x: Any, out: int, weight: float) -> None:
        if self.weighs and weight == 0.0:
            return  # what surely is a replacement has no slope; scikit-learn refuses a row that weighs nothing
        self._learner.told(x, out, **({"sample_weight": np.array([weight])} if self.weighs else {}))


class _Plain:
    weighs = False

    def __init__(self, learner: Any, labels: Labels) -> None:
        self._learner, self._called = learner, called_by(learner, labels)

    def number(self, x: Any) -> int:
        return self._called.number(self._learner.predict(x))

    def shares(self, x: Any) -> Floats | None:
        return None

    def tell(self, x: Any, out: int, weight: float) -> None:
        self._learner.learn(x, self._called.values[out])


def _shares(model: Any, xs: Any, heard: Heard) -> Floats:
    """A fitted model's probabilities, by number of label."""
    said = np.asarray(model.predict_proba(xs), dtype=np.float64)
    found, columns = np.zeros((len(said), heard.array.size)), heard.numbers(np.asarray(model.classes_))
    if (columns < 0).any():
        raise NoLabel("the model tells probabilities of something else than the labels")
    found[:, columns] = said
    return found


def _together(ask: Callable[[Sequence[Any]], Any], rows: Sequence[Any]) -> Any:
    """What a model says of many rows at once; None where it tells nothing, or fails at one."""
    with contained:
        return ask(rows)
    return None


class Doubled(_Own):
    """A scikit-learn estimator, or a whole pipeline, that is fitted anew to all rows, twice while they double.

    It is fitted after 64 labels, 96, 128, 192, 256, and so on; the last 262,144 rows are kept, and then it is fitted as
    often as all of them are new (`confide.labels.fitting`). The moments depend on how many labels came alone. Dicts
    become a table of pandas, as a pipeline with `ColumnTransformer` takes it, or stay dicts for one that begins with
    `DictVectorizer`; sequences an array.

    Parameters
    ----------
    estimator
        Anything with scikit-learn's `fit(X, y)` and `predict(X)`; it is cloned for every fit.
    labels, response, features
        As for `OneByOne`.
    """

    def __init__(self, estimator: Any, labels: Labels, response: Response, features: Any = None) -> None:
        super().__init__(response, labels, features)
        classifies(estimator)
        if isinstance(_first_and_last(estimator)[1], Refit):
            raise ValueError("a pipeline is fitted anew as a whole: put Refit around it, or leave Refit out")
        self.estimator = estimator
        self.taught = 0
        self._rows: list[Any] = []
        self._outs: list[int] = []
        self._model: Any = None
        self._next: Fit[Any] | None = None
        self._heard = Heard(values_of(labels))

    def __repr__(self) -> str:
        return f"Doubled({type(self.estimator).__name__})"

    def read(self, x: Any) -> Any:
        """The row that x is; refused where it takes a table and there is no pandas."""
        row = super().read(x)
        if isinstance(row, dict) and not self._takes_dicts:
            _frame()
        return row

    def answer(self, row: Any) -> tuple[int, Floats | None]:
        """The label by the last fit, −1 before the first; and probabilities, where it tells any."""
        return self.answer_many([row])[0]

    def answer_many(self, rows: Sequence[Any]) -> list[tuple[int, Floats | None]]:
        """The same of many rows; those of one kind are asked at once, and where one of them fails, each by itself."""
        found: list[tuple[int, Floats | None]] = [(-1, None)] * len(rows)
        if self._model is None:
            return found
        alike: dict[Any, list[int]] = {}
        for i, row in enumerate(rows):
            alike.setdefault(_kind(row), []).append(i)
        for places in alike.values():
            some = [rows[i] for i in places]
            said = _together(self._told, some) if len(some) > 1 else None
            for k, i in enumerate(places):
                found[i] = (self._asked(self._one, rows[i]) if said is None else said[k]) or (-1, None)
            self.answered |= said is not None
        return found

    def _one(self, row: Any) -> tuple[int, Floats | None]:
        return self._told([row])[0]

    def _told(self, rows: Sequence[Any]) -> list[tuple[int, Floats | None]]:
        xs = self._table(rows)
        if hasattr(self._model, "predict_proba"):
            said = _shares(self._model, xs, self._heard)
            return [(int(one.argmax()), self.response.undone(one)) for one in said]
        numbers = self._heard.numbers(np.asarray(self._model.predict(xs)))
        if (numbers < 0).any():
            raise NoLabel("the model answered something else than a label")
        return [(number, None) for number in numbers.tolist()]

    def teach(self, row: Any, out: int) -> None:
        """Keep what came out, and fit anew if that is due."""
        if len(self._rows) < _MEMORY:
            self._rows.append(row)
            self._outs.append(out)
        else:
            self._rows[self.taught % _MEMORY], self._outs[self.taught % _MEMORY] = row, out
        self.taught += 1
        if self.taught == next_fit(self.taught - 1, _FIRST, _MEMORY, halfway=True):
            self._next = self._begun()
        if self._next is not None and self.taught >= self._next.at:
            fit, self._next = self._next, None
            model = fit.result()
            if model is None:  # the last fit stays
                never = "it has never been fitted; " if self._model is None else ""
                self._untaught(fit.raised, f"in its fit to {self.taught:,} labels", never)
            else:
                self._model, self.learned = model, True

    def follow(self, rows: Rows, outs: Ints) -> Ints:
        """All rows between two fits are asked together."""
        found, at = np.full(outs.size, -1), 0
        came = np.cumsum(~rows.refused & (outs >= 0))
        while at < outs.size:
            before = int(came[at - 1]) if at else 0
            due = next_fit(self.taught, _FIRST, _MEMORY, halfway=True)
            left = (due if self._next is None else min(due, self._next.at)) - self.taught
            until = min(outs.size, int(np.searchsorted(came, before + left)) + 1)
            asked = [i for i in range(at, until) if not rows.refused[i]]
            found[asked] = [label for label, _ in self.answer_many([rows.values[i] for i in asked])]
            for i in asked:
                if outs[i] >= 0:
                    self.teach(rows.values[i], int(outs[i]))
            at = until
        return found

    def _begun(self) -> Fit[Any]:
        """A fit to all that is kept now."""
        rows, outs = list(self._rows), self._heard.array[np.array(self._outs)]

        def made() -> Any:
            model = fresh(self.estimator)
            model.fit(self._table(rows), outs)
            return model

        return Fit(made, self.taught, self.beside)

    def state(self) -> Mapping[str, NDArray[Any]]:
        """As of any model of others; a fit under way is waited for."""
        if self._next is not None:
            self._next.result()
        return super().state()

    @property
    def _takes_dicts(self) -> bool:
        return type(_first_and_last(self.estimator)[0]).__name__ in ("DictVectorizer", "FeatureHasher")

    def _table(self, rows: Sequence[Any]) -> Any:
        if not isinstance(rows[0], dict):
            return np.array(rows)
        return rows if self._takes_dicts else _frame()(rows)


def _kind(row: Any) -> Any:
    """Rows of one kind make a table whose columns are what each row's alone would be."""
    if isinstance(row, dict):
        return tuple((name, type(value)) for name, value in row.items())
    return row.dtype, row.shape


def _first_and_last(estimator: Any) -> tuple[Any, Any]:
    """The first and the last step of a pipeline; an estimator itself is both."""
    ends = [estimator, estimator]
    for at in (0, -1):
        while isinstance(steps := getattr(ends[at], "steps", None), list) and steps:
            ends[at] = steps[at][1]
    return ends[0], ends[1]


def _frame() -> Any:
    """What makes a table of dicts."""
    return need("pandas", "sklearn", "a scikit-learn model that is asked dicts").DataFrame
