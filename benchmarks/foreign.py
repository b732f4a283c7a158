"""How fast copies of River's and scikit-learn's models vote: rows a second of processor time.

    python benchmarks/foreign.py

500 copies, each taught 5 records of 10 numbers; every row polls 129 of them. "Declared" means that the bank knows the
names, so that River's models need not be rewound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from river import linear_model, naive_bayes, preprocessing, tree
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.tree import DecisionTreeClassifier

from confide.banks import ReplicaBank, bank_for
from confide.learners import DecisionTree, Features
from confide.privacy.random import Random

COPIES, POLL, WIDTH, LESSONS = 500, 129, 10, 2500
NAMES = [f"f{j}" for j in range(WIDTH)]
BANKS: dict[str, Callable[[], Any]] = {
    "Confide's DecisionTree": lambda: bank_for(DecisionTree(), COPIES, 2, Features(numeric=NAMES), Random(seed=1)),
    "scikit-learn's GaussianNB": lambda: bank(GaussianNB(), NAMES),
    "scikit-learn's SGDClassifier": lambda: bank(SGDClassifier(), NAMES),
    "scikit-learn's DecisionTreeClassifier, refit": lambda: bank(DecisionTreeClassifier(), NAMES),
    "scikit-learn's BernoulliNB, row by row": lambda: bank(BernoulliNB(), NAMES),
    "River's StandardScaler | LogisticRegression, declared": lambda: bank(scaled(), NAMES),
    "River's StandardScaler | LogisticRegression, rewound": lambda: bank(scaled(), None),
    "River's GaussianNB, declared": lambda: bank(naive_bayes.GaussianNB(), NAMES),
    "River's GaussianNB, rewound": lambda: bank(naive_bayes.GaussianNB(), None),
    "River's HoeffdingTreeClassifier, declared": lambda: bank(tree.HoeffdingTreeClassifier(), NAMES),
    "River's HoeffdingTreeClassifier, rewound": lambda: bank(tree.HoeffdingTreeClassifier(), None),
}


def scaled() -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def bank(model: Any, names: list[str] | None) -> ReplicaBank:
    return ReplicaBank(model, COPIES, 2, names, Random(seed=1))


def rate(ask: Callable[[int], Any], rows: int) -> float:
    """Rows a second of processor time: twice as many until it takes half a second, and all of them at most."""
    number = 2
    while True:
        start = time.process_time()
        ask(number)
        spent = time.process_time() - start
        if spent > 0.5 or number == rows:
            return number / spent
        number = min(rows, 2 * number)


def main() -> None:
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(10_000, WIDTH))
    ys = (xs[:, 0] + xs[:, 1] > 0).astype(np.int64)
    dicts = [dict(zip(NAMES, x, strict=True)) for x in xs.tolist()]
    polls = np.array([rng.permutation(COPIES)[:POLL] for _ in dicts])
    print(f"| {'copies of':54} | one by one | in a batch |\n|{'-' * 56}|-----------:|-----------:|")
    for name, make in BANKS.items():
        one = make()
        rows, _ = one.encode_many(dicts)
        one.learn_many(np.arange(LESSONS) % COPIES, rows[:LESSONS], ys[:LESSONS])
        single = rate(lambda n, one=one, rows=rows: [one.votes(rows[i], polls[i]) for i in range(n)], len(dicts))  # type: ignore[misc]
        batch = rate(lambda n, one=one, rows=rows: one.votes_many(rows[:n], polls[:n]), len(dicts))  # type: ignore[misc]
        print(f"| {name:54} | {single:10.0f} | {batch:10.0f} |", flush=True)


if __name__ == "__main__":
    main()
