"""Under a seed a plan of copies, of a guide, or of both gives the same integers, answers and sums as ever."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import POP, Plan
from confide.learners import Features, LogisticRegression
from confide.planning.agnostic import agnostic_plan

KNOWN = Path(__file__).with_name("same.json")

PLANS = {
    "guide": lambda: Plan.tight(4.0, 1e-5, 3000),
    "guide of three labels": lambda: Plan.tight(8.0, 1e-5, 3000, labels=3, history=100),
    "guide for people": lambda: Plan.tight(8.0, 1e-5, 3000, units="people", unit_labels=2),
    "copies": lambda: Plan.tight(8.0, 1e-5, 3000, copies=150, unsure=100, silent=500, guide=None, lean=None),
    "copies for people": lambda: Plan.tight(
        20.0, 1e-3, 3000, copies=150, unsure=100, silent=500, guide=None, lean=None, units="people", unit_unsure=2
    ),
    "lean": lambda: Plan.tight(20.0, 1e-3, 3000, copies=150, unsure=100, silent=500, guide=0.3, lean="fill"),
    "lean of three labels": lambda: Plan.tight(
        20.0, 1e-3, 3000, copies=150, unsure=100, silent=500, guide=0.3, lean="additive", labels=3
    ),
    "certified": lambda: Plan.certified(4.0, 1e-5, 3000, 1),
    "paper": lambda: Plan.paper(8.0, 1e-3, 2000, copies=3000, unsure=20),
    "agnostic": lambda: agnostic_plan(8.0, 1e-6, 100_000, factor=1.0, extra=1.0)[0],
}


def digest(*values: Any) -> str:
    made = blake2b(digest_size=12)
    for value in values:
        made.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        made.update(b"|")
    return made.hexdigest()


def numbers(plan: Plan) -> str:
    """Every number of a plan."""
    halting, lean, guide = plan.halting, plan.lean, plan.guide
    tables = [] if plan.gate is None else [plan.gate.sure]
    tables += [] if not hasattr(halting, "go") else [halting.go]  # type: ignore[union-attr]
    counter = vars(halting) if halting is not None and not hasattr(halting, "go") else None
    names = ("kind", "rounds", "copies", "polls", "unsure", "silent", "unit_unsure", "labels", "beta", "order", "units")
    plain = [getattr(plan, name) for name in (*names, "mistakes", "notes")]
    said = plan.guarantee.epsilon, plan.guarantee.delta, plan.guarantee.unit_unsure, plan.guarantee.unit_labels
    words = str(plan), plan.explain(), plan.guarantee.sentence
    return digest(
        *plain, *said, *tables, counter, None if lean is None else lean.params(),
        None if guide is None else guide.params(), plan.certificate, *words,
    )  # fmt: skip


def run(plan: Plan) -> str:
    """What a seeded run of all kinds of calls gives: answers, tickets, sources, counts, sums."""
    people, rng = plan.units == "people", np.random.default_rng(3)
    labels = list(range(plan.labels))
    features = Features(numeric={"a": (-1.0, 1.0), "b": None}, categorical={"c": 8})
    options: dict[str, Any] = {"labels": labels, "features": features, "units": plan.units or "rounds", "seed": 11}
    pop = POP(LogisticRegression() if plan.copies else None, plan, **options)

    def row() -> tuple[dict[str, Any], int]:
        a, b = rng.uniform(-1, 1), rng.normal()
        return {"a": a, "b": b, "c": "xyz"[int(rng.integers(3))]}, int((a > 0) + (b > 0.5)) % plan.labels

    def unit() -> str | None:
        return f"p{rng.integers(400)}" if people else None

    seen: list[Any] = []
    for _ in range(60):
        x, y = row()
        pop.teach(x, y, unit())
    rows = [row() for _ in range(100)]
    pop.teach_many([x for x, _ in rows], [y for _, y in rows], [unit() for _ in rows] if people else None)
    for _ in range(150):
        x, y = row()
        answer = pop.predict(x, unit())
        seen.append((answer.label, answer.source, answer.guide, answer.ticket))
        pop.learn(answer.ticket, y)
    for size in (300, 700):
        rows = [row() for _ in range(size)]
        got = pop.predict_many([x for x, _ in rows], [unit() for _ in rows] if people else None)
        seen += [(one.label, one.source, one.guide, one.ticket, one.error) for one in got]
        pop.learn_many([one.ticket for one in got], [y for _, y in rows])
    rows = [row() for _ in range(min(2500, plan.rounds))]
    done = pop.follow_many(
        [x for x, _ in rows], np.array([y for _, y in rows]), [unit() for _ in rows] if people else None
    )
    seen += [np.asarray(part) for part in done]
    sums = [] if pop.guide is None else pop.guide.sums
    return digest(*seen, *sums, pop.operator.unsure, pop.operator.taught, pop.rounds, pop.halt_reason)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_and_its_seeded_run_are_what_they_were(name: str) -> None:
    plan = PLANS[name]()
    known = json.loads(KNOWN.read_text())[name]
    assert numbers(plan) == known["plan"]
    assert run(plan) == known["run"]
    assert Plan.from_json(plan.to_json()) == plan


if __name__ == "__main__":
    made = {name: make() for name, make in PLANS.items()}
    KNOWN.write_text(json.dumps({k: {"plan": numbers(p), "run": run(p)} for k, p in made.items()}, indent=1) + "\n")
