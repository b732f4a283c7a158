"""How fast copies of River's and scikit-learn's models vote: rows a second of processor time.

    python benchmarks/foreign.py            about a minute
    python benchmarks/foreign.py --quick    a fifth of that, with wider errors

500 copies, each taught 5 records of 10 numbers; every row polls 129 of them. "Declared" means that the bank knows the
names, so that River's models need not be rewound.
"""

from __future__ import annotations

import argparse
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


def rate(ask: Callable[[int], Any], rows: int, least: float) -> float:
    """Rows a second of processor time: twice as many until it takes so many seconds, and all of them at most."""
    number = 2
    while True:
        start = time.process_time()
        ask(number)
        spent = time.process_time() - start
        if spent > least or number == rows:
            return number / spent
        number = min(rows, 2 * number)


def rates(one: Any, rows: Any, polls: Any, least: float) -> tuple[float, float]:
    """One by one, and in a batch."""
    single = rate(lambda n: [one.votes(rows[i], polls[i]) for i in range(n)], len(polls), least)
    return single, rate(lambda n: one.votes_many(rows[:n], polls[:n]), len(polls), least)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the time for each number")
    least = 0.1 if parser.parse_args().quick else 0.5  # seconds of a number
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
        single, batch = rates(one, rows, polls, least)
        print(f"| {name:54} | {single:10.0f} | {batch:10.0f} |", flush=True)


if __name__ == "__main__":
    main()
