"""Two hundred scikit-learn pipelines that vote together, on a Ray cluster or in one place: the same answers.

    pip install "confide[ray,sklearn]"
    python examples/cluster.py                  # a cluster that is started here
    RAY_ADDRESS=10.0.0.5:6379 python examples/cluster.py
    python examples/cluster.py --where threads  # or local: the same answers, to the last bit

Each pipeline (a scaler, then a linear model) is taught what its own few people told it, and nobody else's. A question
is put to 51 of them, drawn anew each time, and Confide's gate says whether enough of them agree to answer. The promise
here is a weak one, as two hundred copies can give no better: docs/epsilon.md says what ε means.
"""

from __future__ import annotations

import argparse
import hashlib
import time

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import confide
from confide.banks.ray import place_named

COPIES, BATCH = 200, 256


def rows(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Made-up people: the sum of their first two numbers tells the label, with some doubt."""
    dice = np.random.default_rng(3)
    xs = dice.normal(size=(number, 6))
    return xs, (xs[:, 0] + xs[:, 1] + dice.normal(size=number) / 4 > 0).astype(np.int64)


def main(given: list[str] | None = None) -> str:
    """Run it, and return a digest of all answers."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--where", choices=["local", "threads", "ray"], default="ray")
    ask.add_argument("--rounds", type=int, default=4096)
    asked = ask.parse_args(given)
    learner = confide.learners.Refit(make_pipeline(MaxAbsScaler(), SGDClassifier(random_state=0)), memory=32)
    plan = confide.Plan.tight(
        60.0,
        1e-3,
        asked.rounds,
        copies=COPIES,
        polls=51,
        unsure=asked.rounds // 3,
        silent=asked.rounds // 4,
        guide=None,
    )
    place = place_named(asked.where)
    pop = confide.POP(learner, plan, labels=[0, 1], features=6, bank=place, seed=1)  # seeded: to be compared
    xs, ys = rows(asked.rounds)
    began, answers = time.perf_counter(), np.zeros(0, dtype=np.int64)
    for start in range(0, asked.rounds, BATCH):
        done = pop.follow_many(xs[start : start + BATCH], ys[start : start + BATCH])
        answers = np.concatenate([answers, done.answers])
    last = slice(asked.rounds // 2, None)
    print(f"{pop!r}")
    print(f"wrong in the second half: {(answers[last] != ys[last]).mean():.1%}; {time.perf_counter() - began:.1f} s")
    digest = hashlib.sha256(answers.tobytes()).hexdigest()[:16]
    print(f"answers: {digest}, wherever the copies live")
    return digest


if __name__ == "__main__":
    main()
