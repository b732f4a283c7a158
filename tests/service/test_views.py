"""What everyone may see of a model: numbers that nobody takes for what they are not."""

from __future__ import annotations

from confide import POP, Monitor, Plan
from confide.service.metrics import public_text
from confide.service.views import public

PLAN = Plan.tight(8.0, 1e-4, 600)


def monitored(units: str) -> POP:
    pop = POP(
        None, PLAN, labels=["a", "b"], features=1, units=units,  # type: ignore[arg-type]
        monitor=Monitor(1.0, rounds_per_unit=3 if units == "people" else 1, delay=1),
    )  # fmt: skip
    for i in range(20):
        pop.predict([1.0], unit=f"p{i % 2}" if units == "people" else None)
    return pop


def test_nobody_can_make_a_rate_of_a_count_that_holds_only_each_persons_first_rounds() -> None:
    """20 rounds of two people, of which 6 can be counted: the number 20 stands nowhere beside the mistakes."""
    shown = public("spam", monitored("people"), 10, 10)
    assert set(shown["monitor"]) == {"mistakes", "error", "rounds_per_unit"}
    assert shown["monitor"]["rounds_per_unit"] == 3
    text = public_text({"spam": shown}).decode()
    assert 'confide_monitor{model="spam",number="rounds_per_unit"} 3.0' in text
    assert 'number="rounds"' not in text and "among the first rounds_per_unit of each" in text


def test_of_rounds_the_monitor_says_of_how_many() -> None:
    shown = public("spam", monitored("rounds"), 10, 10)
    assert set(shown["monitor"]) == {"mistakes", "rounds", "error"} and shown["monitor"]["rounds"] == 19
    assert 'number="rounds"} 19.0' in public_text({"spam": shown}).decode()
