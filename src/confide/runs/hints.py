"""What the owner of a file should hear before it is run: what is odd in the plan, what a schema would save.

For the owner alone, so in the terminal and in the operator's report.
"""

from __future__ import annotations

from itertools import islice

from confide.data.rows import Stream
from confide.data.schema import alike, listed
from confide.learners import Features
from confide.planning import outlook
from confide.planning.labels import ONE_SIDED
from confide.planning.linear import faint
from confide.planning.plan import Plan

_NAMED = 3  # columns that are named
_FIRST = 200  # rows that show which columns hold numbers


def hints(stream: Stream, plan: Plan) -> list[str]:
    """One sentence each; some are made of people's rows, and quote labels."""
    said = [warning for warning in plan.warnings if warning != ONE_SIDED]  # a file has all labels
    return said + (_of_file(stream, plan) if stream.files else [])


def _of_file(stream: Stream, plan: Plan) -> list[str]:
    said, features, guide = list(stream.hints), stream.features, plan.guide
    said += _absurd(stream, plan)
    if guide is not None and guide.range_rounds and isinstance(features, Features):
        held = {name for item in islice(stream.rows(), _FIRST) if item.x is not None for name in item.x}
        free = [name for name in features.numeric if name not in features.ranges and name in held]
        if free:
            rounds = stream.length or plan.horizon if plan.endless else plan.rounds
            finds = min(1.0, max(0, guide.range_rounds - guide.history) / rounds)
            said.append(
                f"no range is declared of {listed(free, _NAMED)}, so that the guide finds them in private; it answers "
                f"the first {finds:.1%} of the rounds without knowing them; give low and high of numbers and dates in "
                "a schema, and it has them from the start"
            )
    if pair := alike([str(label) for label in stream.labels]):
        said.append(f"the labels {pair[0]!r} and {pair[1]!r} differ by case only, and count as two: are they one?")
    return said


def _absurd(stream: Stream, plan: Plan) -> list[str]:
    """A plan that this stream cannot fill, and people who are too few to be learned from."""
    said, guide, rows = [], plan.guide, stream.length or plan.horizon
    if not plan.endless and 2 * rows <= plan.rounds:
        said.append(
            f"the plan is for {plan.rounds:,} rounds and the stream has {rows:,} rows{_never(plan, rows)}; plan with "
            f"--rounds {rows}, unless the rest will be run later"
        )
    if guide is None or stream.unit is None:
        return said
    enough = faint(plan.labels) * guide.deviation()
    people, each = set[str](), guide.unit_labels * (plan.promise.periods or 1)
    for item in stream.rows():
        if item.unit is not None:
            people.add(item.unit)
            if len(people) * each >= enough:
                return said
    said.append(
        f"column {stream.unit!r} names {len(people):,} people, of whom {len(people) * each:,} labels "
        f"teach the guide at most: about {enough:,.0f} are needed to stand out of the noise; protect rounds, if each "
        "row is another person's, or ask for a larger epsilon"
    )
    return said


def _never(plan: Plan, rows: int) -> str:
    """What does not come to pass in so few rounds."""
    silent = [] if not plan.copies or rows > plan.silent else ["no copy will answer"]
    if plan.guide is not None and rows < outlook.waiting(plan.guide):
        silent.append("the guide will have learned nothing")
    return f": {' and '.join(silent)}" if silent else ""
