"""The foundation's numbers: gates, certificates beside the paper's constants, tightness, planner and table times.

python benchmarks/foundation.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from constant import constant_query_epsilon
from rich.console import Console
from rich.table import Table

from confide import Plan
from confide.planning.design import reach
from confide.planning.paper import PaperRequest, size
from confide.privacy.gate import Gate
from confide.privacy.renyi import epsilon_from_renyi, renyi_from_epsilon

console = Console(width=118)


def best_gate(epsilon: float, delta: float, reports: int) -> tuple[Gate, int, float]:
    """The gate alone, exactly `reports` unsure answers: the order with the smallest product of both margins."""
    ties = 1e-9 / reports
    rest = delta - reports * ties
    best: tuple[float, Gate, int] | None = None
    for order in range(2, 80):
        renyi = renyi_from_epsilon(epsilon, order, rest)
        if renyi <= 0:
            continue
        gate = Gate.best(order=order, cost=renyi / reports, tie_sure=ties)
        margin = reach(gate, 1e-3) * reach(gate, 0.5)
        if best is None or margin < best[0]:
            best = margin, gate, order
    assert best is not None
    _, gate, order = best
    return gate, order, epsilon_from_renyi(gate.cost(order=order) * reports, order, rest)


def gates() -> None:
    table = Table(title="The gate alone at δ = 10⁻⁶: votes above half (v/2) at which unsure falls to ½ and 10⁻³")
    for heading in ("ε", "unsure", "½ at", "10⁻³ at", "design note", "order", "certified ε", "exact attack ε", "ratio"):
        table.add_column(heading, justify="right")
    for epsilon, reports, note in (
        (1, 100, "132, 480"),
        (1, 1000, "313, 1304"),
        (2, 1000, "167, 689"),
        (4, 1000, "89, 373"),
    ):
        gate, order, certified = best_gate(epsilon, 1e-6, reports)
        attack = constant_query_epsilon(gate, reports=reports, delta=1e-6)[0]
        table.add_row(
            *(
                f"{epsilon}",
                f"{reports}",
                f"{reach(gate, 0.5) / 2:.1f}",
                f"{reach(gate, 1e-3) / 2:.1f}",
                note,
                f"{order}",
            ),
            *(f"{certified:.5f}", f"{attack:.4f}", f"{attack / certified:.3f}"),
        )
    console.print(table)


def certificates(quick: bool) -> None:
    table = Table(
        title="Certified mistakes at δ = 10⁻⁶, T = 10⁶, every copy polled; the paper's k read literally beside"
    )
    for heading in (
        "ε",
        "d",
        "copies",
        "expected",
        "with prob. 0.95",
        "early halt ≤",
        "design note",
        "paper's k",
        "seconds",
    ):
        table.add_column(heading, justify="right")
    rows = [
        (1, 1, "12 095, 16 792"),
        (1, 3, "16 634, 71 458"),
        (2, 1, "4 649, 6 646"),
        (4, 1, "1 786, 2 644"),
        (4, 3, "2 881, 12 369"),
    ]
    for epsilon, d, note in rows[:1] + rows[3:4] if quick else rows:
        start = time.perf_counter()
        plan = Plan.certified(epsilon, 1e-6, 10**6, mistakes=d)
        took = time.perf_counter() - start
        certificate = plan.certificate
        assert certificate is not None
        literal = size(PaperRequest(epsilon, 1e-6, 10**6, d)).copies
        table.add_row(
            *(f"{epsilon}", f"{d}", f"{plan.copies:,}", f"{certificate.expected_mistakes:,.0f}"),
            *(f"{certificate.mistakes:,}", f"{certificate.early_halt:.1e}", note, f"{literal:.2e}", f"{took:.1f}"),
        )
    console.print(table)


def timed(work: Callable[[], object], times: int = 5) -> str:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def times() -> None:
    table = Table(title="Times, warm: median of 5 (smallest to largest)")
    table.add_column("what")
    table.add_column("time", justify="right")
    plan = Plan.tight(1.0, 1e-6, 10**6, copies=10**6, polls=129, unsure=1000, guide=None)
    assert plan.guarantee.epsilon <= 1
    table.add_row(
        "Plan.tight, copies = 10⁶, polls = 129",
        timed(lambda: Plan.tight(1.0, 1e-6, 10**6, copies=10**6, polls=129, unsure=1000, guide=None)),
    )
    table.add_row("Plan.tight, everything chosen, 10⁶ rounds", timed(lambda: Plan.tight(1.0, 1e-6, 10**6, guide=None)))
    table.add_row("table of 10⁵ margins", timed(lambda: Gate.best(order=30, cost=1e-7, margins=100_000)))
    gate = Gate.best(order=30, cost=1e-7, margins=100_000)
    table.add_row("its rigorous check", timed(lambda: gate.cost(order=30)))
    table.add_row("its rigorous check with polls", timed(lambda: gate.cost(order=30, poll_fraction=0.1)))
    console.print(table)


def people() -> None:
    table = Table(title="People: copies for (1, 10⁻⁶), 10⁶ rounds, 3000 unsure answers planned, 129 polled")
    for heading in ("unit", "copies", "ratio", "50 rounds a person by group privacy instead"):
        table.add_column(heading, justify="right")
    base = Plan.tight(1.0, 1e-6, 10**6, unsure=3000, guide=None)
    for shift in (1, 3, 10):
        plan = base if shift == 1 else Plan.tight(1.0, 1e-6, 10**6, unsure=3000, unit_unsure=shift, guide=None)
        unit = "round" if shift == 1 else f"person, G = {shift}, any number of rounds"
        needed = f"ε = {50 * base.guarantee.epsilon:.0f}, δ = 1 (nothing)" if shift == 1 else "not needed"
        table.add_row(unit, f"{plan.copies:,}", f"{plan.copies / base.copies:.2f}", needed)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    quick = parser.parse_args().quick
    gates()
    certificates(quick)
    people()
    times()


if __name__ == "__main__":
    main()
