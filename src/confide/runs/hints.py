"""What the owner of a file should hear before it is run: what a line in a schema would save. For the terminal alone."""

from __future__ import annotations

from pathlib import Path

from confide.data.rows import Stream
from confide.data.schema import alike
from confide.learners import Features
from confide.planning import outlook
from confide.planning.plan import Plan

__all__ = ["hints"]

_NAMED = 3  # columns that are named


def hints(stream: Stream, plan: Plan) -> list[str]:
    """One sentence each; the second quotes labels, which are of people's data unless they were declared."""
    if not Path(stream.name).is_file():
        return []
    said, features, guide = [], stream.features, plan.guide
    if guide is not None and guide.range_rounds and isinstance(features, Features):
        free = [repr(name) for name in features.numeric if name not in features.ranges]
        if free:
            some = ", ".join(free[:_NAMED]) + (f" and {len(free) - _NAMED} more" if len(free) > _NAMED else "")
            wait = (outlook.waiting(guide) - outlook.waiting(guide, ranges=False)) / plan.rounds
            said.append(
                f"no range is declared of {some}, so that the first {wait:.1%} of the rounds go into finding them in "
                "private; give low and high of numbers and dates in a schema, and the guide answers these too"
            )
    if pair := alike([str(label) for label in stream.labels]):
        said.append(f"the labels {pair[0]!r} and {pair[1]!r} differ by case only, and count as two: are they one?")
    return said
