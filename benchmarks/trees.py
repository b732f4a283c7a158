"""Few-shot trees on River's Agrawal functions: the majority of 101 trees, 200 records each.

    python benchmarks/trees.py [--quick]

Beside each error stands the one that a first prototype had, on a sample of its own: a yardstick, no controlled
comparison. Everything is seeded; `--quick` takes functions 0 to 2.
"""

import sys
import time

import numpy as np
from river.datasets import synth

from confide.banks import StackedBank
from confide.learners import DecisionTree

PROTOTYPE = (0.000, 0.039, 0.000, 0.085, 0.058, 0.077, 0.063, 0.017, 0.082, 0.001)
COPIES, RECORDS, QUESTIONS = 101, 200, 4000


def main(quick: bool = False) -> None:
    """Print one line a function, then what a vote and a lesson cost."""
    lessons = votes = 0.0
    functions = range(3) if quick else range(10)
    print("function   error   prototype")
    for function in functions:
        stream = iter(synth.Agrawal(classification_function=function, seed=1))
        bank = StackedBank(DecisionTree(memory=RECORDS), COPIES, labels=2, features=9)
        records = [(bank.encode(list(x.values())), y) for x, y in (next(stream) for _ in range(COPIES * RECORDS))]
        start = time.perf_counter()
        for i, (x, y) in enumerate(records):
            bank.learn(i % COPIES, x, y)
        lessons += time.perf_counter() - start
        questions = [(bank.encode(list(x.values())), y) for x, y in (next(stream) for _ in range(QUESTIONS))]
        everyone = np.arange(COPIES)
        start = time.perf_counter()
        wrong = sum(bank.votes(x, everyone).argmax() != y for x, y in questions)
        votes += time.perf_counter() - start
        print(f"{function:8d}   {wrong / QUESTIONS:.3f}   {PROTOTYPE[function]:.3f}", flush=True)
    lesson = lessons / (len(functions) * COPIES * RECORDS) * 1e6
    print(f"a lesson takes {lesson:.1f} µs, a vote of all trees {votes / (len(functions) * QUESTIONS) * 1e6:.1f} µs")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
