"""What the settings name: learners, fallbacks and streams."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from confide import learners
from confide._checks import label_weights
from confide.data.datasets import open_stream
from confide.data.files import draft
from confide.data.pieces import Told
from confide.data.rows import Stream
from confide.data.schema import Schema, read_schema
from confide.runs.settings import Settings

LEARNERS: dict[str, Any] = {
    "trees": learners.DecisionTree,
    "forest": learners.ExtraTrees,
    "logistic": learners.LogisticRegression,
    "perceptron": learners.Perceptron,
    "pa": learners.PAClassifier,
    "gaussian-nb": learners.GaussianNB,
    "bernoulli-nb": learners.BernoulliNB,
    "knn": learners.KNNClassifier,
}


def learner_named(text: str) -> Any:
    """A learner by name, with parameters if wanted, or by import path.

    Examples
    --------
    >>> learner_named("logistic(learning_rate=0.3)").learning_rate
    0.3
    >>> learner_named("confide.learners:Perceptron")
    Perceptron(l2=0.0, scale=True, class_weight=None, warmup=1, labels=2)
    >>> learner_named("pa(depth=3)")
    Traceback (most recent call last):
    ...
    ValueError: --learner 'pa(depth=3)': there is no parameter 'depth'; there are C, scale, class_weight, warmup, labels
    """
    name, opened, _ = text.partition("(")
    thing = LEARNERS[name] if name in LEARNERS else _imported(text, name)
    makes = isinstance(thing, type) or (callable(thing) and not hasattr(thing, "predict"))
    if not makes:
        if opened:
            raise ValueError(f"--learner {text!r} is made already and takes no parameters")
        return thing
    options = _options(text) if opened else {}
    known = _parameters(thing)
    for option in options:
        if known is not None and option not in known:
            raise ValueError(f"--learner {text!r}: there is no parameter {option!r}; there are {', '.join(known)}")
    try:
        return thing(**options)
    except TypeError as error:
        raise ValueError(f"--learner {text!r} cannot be made: {error}") from None


def learner_of(settings: Settings) -> Any:
    """The learner of a run; None, which is our own model, where labels alone are protected and none is named."""
    if settings.protect == "labels" and settings.learner == Settings.learner:
        return None
    return learner_named(settings.learner)


def _imported(text: str, name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"no learner is called {name!r}: take {', '.join(LEARNERS)}, or module:Name")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules in the folder one stands in
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--learner {text!r} cannot be imported: {error}") from None


def _parameters(thing: Any) -> list[str] | None:
    """The names that a call takes; None where it takes any."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return None
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    return None if inspect.Parameter.VAR_KEYWORD in kinds else list(signature.parameters)


def _options(text: str) -> dict[str, Any]:
    try:
        call = ast.parse("f(" + text.partition("(")[2], mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
    except (SyntaxError, ValueError, AssertionError):
        raise ValueError(f"--learner {text!r}: write parameters as name(key=value, key=value)") from None


def fallback_named(text: str, stream: Stream) -> Any:
    """The fallback meant, for a stream's labels."""
    return fallback_of(text, stream.labels)


def fallback_of(text: str, labels: Sequence[Hashable]) -> Any:
    """The fallback meant: one of the labels first, else a coin or something to import."""
    for label in labels:
        if str(label) == text:
            return label
    if ":" in text:
        return learner_named(text)
    if text != "coin":
        raise ValueError(f"--fallback {text!r} must be coin, module:Name or one of the labels")
    return text


def weights_named(given: tuple[str, ...] | None, stream: Stream) -> dict[Hashable, float] | None:
    """The weights of labels that were asked for as label=weight, or that the stream declares; None for none.

    Examples
    --------
    >>> from confide.data.datasets import open_stream
    >>> weights_named(("missed=2.5",), open_stream("visits", rows=3))
    {'missed': 2.5}
    """
    return (dict(stream.label_weights) or None) if given is None else weights_of(given, stream.labels)


def weights_of(given: Sequence[str], labels: Sequence[Hashable]) -> dict[Hashable, float]:
    """The weights that were asked for as label=weight."""
    known, found = {str(label): label for label in labels}, dict[Hashable, float]()
    for one in given:
        name, _, weight = one.rpartition("=")
        try:
            found[known[name.strip()]] = float(weight)
        except KeyError:
            few = ", ".join(list(known)[:5]) + (", …" if len(known) > 5 else "")
            raise ValueError(f"--label-weights {one!r}: write label=weight, with one of the labels {few}") from None
        except ValueError:
            raise ValueError(f"--label-weights {one!r}: {weight!r} is no number; write label=weight, as x=5") from None
    label_weights(found, labels)
    return found


def schema_named(settings: Settings) -> Schema | None:
    """What is known of a file's columns: from a schema, or from a public sample."""
    if settings.schema is not None:
        return read_schema(Path(settings.schema))
    if settings.public is None:
        return None
    asked = Schema(label=settings.label, labels=settings.labels, unit=settings.unit)
    return draft(Path(settings.public), asked, ranges=True)[0]


def declared(settings: Settings) -> Settings:
    """The settings with the unit that their schema declares, unless another was asked for: it is never dropped."""
    if settings.schema is None or settings.unit is not None:
        return settings
    return settings.but(unit=read_schema(Path(settings.schema)).unit)


def streams(settings: Settings, told: Told | None = None) -> tuple[Stream, Stream | None]:
    """The stream to run, and its history if there is one; `told` hears which file is read the first time."""
    columns: dict[str, Any] = {"label": settings.label, "unit": settings.unit, "schema": schema_named(settings)}
    columns |= {"drop": settings.drop, "order": settings.order, "told": told}
    rows, seed = settings.rounds, settings.stream_seed
    stream = open_stream(settings.stream, rows=rows, seed=seed, labels=settings.labels, **columns)
    if settings.history is None:
        return stream, None
    history = open_stream(settings.history, labels=[str(label) for label in stream.labels], **columns)
    if history.names != stream.names:
        raise ValueError("--history has other columns than the stream: they must be the same, in the same order")
    return stream, history
