"""Writes the state folder v1 beside this file: a small run of state version 1, kept so that it loads for ever.

Run it with `python tests/states/make_v1.py`, only while version 1 is not yet released.
"""

import shutil
from fractions import Fraction
from pathlib import Path

from confide import POP, Gate, Guarantee, Halting, Monitor, Plan
from confide.learners import LogisticRegression
from confide.planning.design import certify

COPIES = 24


def plan() -> Plan:
    """A steep gate for a few copies, and an ε that nobody would run."""
    gate = Gate.best(order=2, cost=3.0, margins=COPIES, tie_sure=1e-6)
    halting = Halting.best(order=2, cost=1.0, unsure=40, start=2.0**-40, survive=1e-3, shift=2)
    got = certify(gate, halting, order=2, delta=0.02, poll_fraction=Fraction(1))
    return Plan(
        kind="tight",
        rounds=500,
        copies=COPIES,
        polls=COPIES,
        unsure=40,
        silent=5,
        unit_unsure=2,
        labels=2,
        beta=0.01,
        order=2,
        gate=gate,
        halting=halting,
        guarantee=Guarantee(got.epsilon, got.delta, 2),
    )


def write(folder: Path) -> None:
    """Ten people teach; then a snapshot; then two more unsure answers and a forgetting, in the journal alone."""
    learner, monitor = LogisticRegression(learning_rate=0.2), Monitor(epsilon=0.5, rounds_per_unit=2, delay=3)
    settings = {"labels": ["no", "yes"], "fallback": "no", "features": 2, "units": "people", "ticket_life": 50}
    pop = POP(learner, plan(), monitor=monitor, seed=1, **settings)  # type: ignore[arg-type]
    for i in range(100):
        pop.teach([i % 7 - 3.0, i % 3 - 1.0], "yes" if i % 7 > 3 else "no", unit=f"person {i % 10}")
    tickets = [pop.predict([0.5, 0.5], unit=f"person {i}").ticket for i in range(8)]
    pop.learn(tickets[1], "yes")
    pop.save(folder)
    pop.forget("person 3")
    for who in ("ann", "ann", "bob"):
        pop.predict([0.0, 0.0], unit=who)
    pop.close()
    (folder / "lock").unlink()


if __name__ == "__main__":
    here = Path(__file__).parent / "v1"
    shutil.rmtree(here, ignore_errors=True)
    write(here)
