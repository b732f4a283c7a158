"""Compile kernels that take long and that many tests need, with the core alone: while packages are unpacked."""

import numpy as np

from confide import POP, Plan
from confide.banks import TallyBank
from confide.learners import DecisionTree, ExtraTrees, LogisticRegression, Points

PLAN = Plan.paper(30.0, 1e-3, 300, copies=400, unsure=100)
XS, YS = np.arange(300.0).reshape(-1, 1) % 7, np.arange(300) % 2


def main() -> None:
    bank = TallyBank(Points(), PLAN.copies, points=9)
    POP(Points(), PLAN, labels=[0, 1], features=1, bank=bank).follow_many(XS, YS)
    plan = Plan.certified(8.0, 1e-4, 3000, 1)
    for copied in (LogisticRegression(), DecisionTree(memory=16), ExtraTrees(memory=16)):
        POP(copied, plan, labels=[0, 1], features=1).follow_many(XS, YS)
    POP(None, Plan.tight(8.0, 1e-4, 3000), labels=[0, 1], features=1).follow_many(XS, YS)


if __name__ == "__main__":
    main()
