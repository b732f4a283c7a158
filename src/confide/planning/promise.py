"""What is promised: to whom, about what of theirs, for how many rounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from confide._checks import Numbers, integer
from confide.planning.arguments import promised_delta, whole_number
from confide.planning.periods import Periods
from confide.privacy.renyi import check_epsilon

DELTA = 1e-6
"""δ where none is said."""

Units = Literal["rounds", "people"]
Protect = Literal["rows", "labels"]

_BY_PERIOD = ("per", "periods")  # not written where caps are for life


@dataclass(frozen=True)
class Promise(Numbers):
    """What each unit is promised.

    Parameters
    ----------
    epsilon, delta
        Whatever a unit told the system changes the probability of what all others see by a factor of at most e^ε,
        except with probability δ; 10⁻⁶ by default.
    rounds
        For how many rounds; None for as many as there will be: then it has no end.
    labels
        How many labels there are; they are public. None leaves it to whoever knows them; a plan has two then.
    units
        Who is protected: each round ("rounds") or each person ("people"); None leaves it to whoever runs the plan.
    protect
        What of theirs is protected: all that they send ("rows"), or the labels alone ("labels"); then δ may be 0.
    unit_labels
        Labels of one unit that are learned from, at most; a round has one. With `per` so many in each period.
    per, periods
        Another promise to people: (ε, δ) for what one person told within one period, of so many rounds, and a larger ε,
        which the plan says, for all that they ever told. A person teaches in so many periods, and then no more.

    Examples
    --------
    >>> Promise(epsilon=1.0, rounds=10_000).protect
    'rows'
    >>> Promise(epsilon=1.0, delta=0.5, rounds=10_000)
    Traceback (most recent call last):
    ...
    ValueError: delta=0.5 promises nothing: all may be told with that probability; 1e-6 is usual
    """

    epsilon: float
    delta: float = DELTA
    rounds: int | None = None
    labels: int | None = None
    units: Units | None = None
    protect: Protect = "rows"
    unit_labels: int = 1
    per: int | None = None
    periods: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)
        if self.protect != "labels" or self.delta != 0:  # randomized labels need none
            promised_delta(self.delta)
        if self.rounds is not None:
            whole_number("rounds", self.rounds)
        if self.labels is not None:
            integer(self.labels, "labels", at_least=2)
        integer(self.unit_labels, "unit_labels", at_least=1)
        if self.units not in (None, "rounds", "people"):
            raise ValueError(f"units={self.units!r} must be 'rounds' or 'people'")
        if self.protect not in ("rows", "labels"):
            raise ValueError(f"protect={self.protect!r} must be 'rows' or 'labels'")
        self._check_periods()

    def _check_periods(self) -> None:
        if self.per is None and self.periods is None:
            return
        if self.per is None or self.periods is None:
            raise ValueError("per says how many rounds a period has, periods in how many a person teaches: give both")
        if self.units != "people" or self.protect != "rows":
            raise ValueError(
                "per and periods are a promise to people, and to all that they tell: plan with units='people', "
                "protect='rows', or leave per and periods out"
            )
        whole_number("per", self.per)
        whole_number("periods", self.periods)
        Periods(self.per, self.periods, self.unit_labels).check(self.rounds)

    @property
    def counted(self) -> Periods | None:
        """How labels are counted by periods; None where they are counted for life."""
        return None if self.per is None or self.periods is None else Periods(self.per, self.periods, self.unit_labels)

    def params(self) -> dict[str, Any]:
        """What makes the same promise again: JSON's kinds of values only."""
        return {name: value for name, value in asdict(self).items() if value is not None or name not in _BY_PERIOD}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> Promise:
        """The promise that `params` describes; unknown or missing names are refused."""
        if {*params, *_BY_PERIOD} != {each.name for each in fields(cls)}:
            raise ValueError("these are not the numbers of a promise: read the plan again from its file")
        return cls(**params)
