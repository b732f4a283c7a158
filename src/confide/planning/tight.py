"""The search behind `Plan.tight`: what the user gives is kept, the rest is chosen, and what cannot be is refused.

Nothing here is trusted: `design.certify` reads the finished tables. Proof page: docs/proofs/halting.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from confide._checks import Numbers
from confide.planning.arguments import BETA, check_rare
from confide.planning.design import Budget, Built, Found, Split, draft, reach, search, sketch
from confide.planning.leaning import built
from confide.planning.parts import TooRare, Unreachable
from confide.privacy.gate import LEAST_TIE_SURE, Gate

DISSENT = 0.1
"""Where the user leaves the number of copies open: room for this share of the poll to disagree."""

POLLS = 129
"""Copies asked in a round unless the user says otherwise: enough votes, and a round stays cheap at any k."""

SILENT = 0.4
"""Share of the rounds in which copies only learn, unless the user says otherwise."""

MOST_COPIES = 10**9
"""Beyond this the search for copies gives up."""


RELAY = (
    "a relay is for rounds, not for people, and has two equal halves: give an even number of copies, and rounds, which "
    "are those of one leg"
)
"""The refusal of any other relay."""


class Refused(ValueError):
    """A refusal whose words are made when somebody reads them.

    They name the nearest plan that works, and finding it takes a search. A caller that tries many promises, and reads
    no refusal, does not wait for that search.
    """

    def __init__(self, words: Callable[[], str]) -> None:
        super().__init__()
        self._words = words

    def __str__(self) -> str:
        if not self.args:
            try:
                self.args = (self._words(),)
            except Unreachable as error:
                self.args = error.args
        return str(self.args[0])

    def __repr__(self) -> str:
        return f"ValueError({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ValueError, (str(self),)


def check_words(units: str | None, unit_unsure: int, unit_labels: int, lean: str | None, labels: int) -> None:
    """Refuse units and leans that there are not."""
    if units not in (None, "rounds", "people"):
        raise ValueError(f"units={units!r} must be 'rounds' or 'people'")
    if units == "rounds" and (unit_unsure, unit_labels) != (1, 1):
        raise ValueError("a round is asked once and labelled once: leave unit_unsure and unit_labels out")
    if lean not in ("auto", "fill", "additive", None) or (lean == "fill" and labels != 2):
        raise ValueError(f'lean={lean!r} must be "auto", None, "additive", or for two labels "fill"')


def voters(copies: int | None, polls: int | None, unit_unsure: int, relay: bool) -> int | None:
    """Copies that vote at a time: all that are asked for, or a relay's half."""
    if relay and unit_unsure != 1:
        raise ValueError("a relay is for rounds, each of which is answered once: leave unit_unsure out")
    half = copies if copies is None or not relay else copies // 2
    if half is not None and polls is not None and polls > half:
        raise ValueError(f"polls={polls} asks more than the {half} copies that vote: ask all of them, or fewer")
    return half


@dataclass(frozen=True)
class TightRequest(Numbers):
    """What `Plan.tight` is asked for; see there. None is chosen."""

    epsilon: float
    delta: float
    rounds: int
    copies: int | None = None
    unsure: int | None = None
    polls: int | None = None
    silent: int | None = None
    unit_unsure: int = 1
    labels: int = 2
    beta: float = BETA
    dissent: float = DISSENT
    guide: float = 0.0
    """The part of the Rényi budget that is kept for a guide."""
    lean: str | None = None
    """"fill" or "additive", or None for a coin when unsure."""
    relay: bool = False
    """Whether there are two halves of so many `copies` each: then `rounds` are those of a leg."""

    @property
    def live(self) -> int:
        """Rounds that are not silent."""
        return self.rounds - (int(SILENT * self.rounds) if self.silent is None else self.silent)

    @property
    def usual_unsure(self) -> int:
        """√rounds, or a tenth of the live ones."""
        return max(1, min(round(math.sqrt(self.rounds)), self.live // 10))

    def target(self, unsure: int) -> Target:
        """What tables for so many unsure answers must do."""
        polls = default_polls(self.copies) if self.polls is None else self.polls
        numbers = self.epsilon, self.delta, self.live, unsure, self.unit_unsure, self.beta, polls
        return Target(*numbers, unsure / (2 * self.live), self.guide, self.lean, self.labels, self.relay)


def best(asked: TightRequest) -> Found:
    """The plan that was asked for, or ValueError with the nearest that can be had."""
    unsure, live = asked.usual_unsure if asked.unsure is None else asked.unsure, asked.live
    if unsure > live:
        raise ValueError(f"unsure={unsure} is more than the {live} live rounds; plan for a tenth of them at most")
    check_rare(asked.beta, asked.rounds, live)
    target = asked.target(unsure)
    copies, (gate, halting, got, lean) = _tables(asked, target)
    notes = _notes(asked, copies, target, gate)
    return Found(copies, target.polls, unsure, gate, halting, got, silent=asked.rounds - live, lean=lean, notes=notes)


def most_unsure(asked: TightRequest, often: float) -> int:
    """The most unsure answers, up to a part of the live rounds, that the copies given leave room for; at least √T.

    More of them are a smaller cost each, a flatter gate, and more copies that it needs.
    """
    assert asked.copies is not None
    least = asked.usual_unsure
    low, high = least, max(least, int(often * asked.live))
    while high > 1.02 * low:
        middle = math.isqrt(low * high) + 1
        target = replace(asked.target(middle), lean=None)
        try:
            needed = target.fewest_copies((1 - 2 * asked.dissent) * target.polls)
        except Unreachable:  # not for any number of copies
            needed = None
        low, high = (middle, high) if needed is not None and needed <= asked.copies else (low, middle - 1)
    return low


def check_dissent(dissent: float) -> None:
    """Refuse what is no minority of a poll."""
    if not 0 <= dissent < 0.5:
        raise ValueError(f"dissent={dissent} must be a share of the poll from 0 to below 1/2; 0.1 is usual")


def default_polls(copies: int | None) -> int:
    """129, or every copy where there are not many more."""
    return copies if copies is not None and copies < 2 * POLLS else POLLS


def _tables(asked: TightRequest, target: Target) -> tuple[int, Built]:
    """Copies and tables, or ValueError in the words of the arguments."""
    try:
        if target.unsure * LEAST_TIE_SURE >= target.delta:
            raise TooRare
        copies = asked.copies
        if copies is None:
            copies = target.fewest_copies((1 - 2 * asked.dissent) * target.polls)
            if copies is None:
                raise Refused(functools.partial(target.refuse_polls, asked.dissent))
        tables = target.tables(copies)
        if asked.copies is None:
            while not target.sure_enough(tables) and copies < MOST_COPIES:  # a lean's gate is a little less often sure
                copies = math.ceil(copies * 1.05)
                tables = target.tables(copies)
    except TooRare:
        raise Refused(target.refuse_delta) from None
    except Unreachable:
        raise Refused(target.refuse_epsilon) from None
    if not target.sure_enough(tables):
        raise Refused(functools.partial(target.refuse_copies, copies, polls_given=asked.polls is not None))
    return copies, tables


def _notes(asked: TightRequest, copies: int, target: Target, gate: Gate) -> tuple[str, ...]:
    """What was chosen, and why."""
    polls, notes = target.polls, []
    if asked.silent is None:
        silent = asked.rounds - asked.live
        said = "a leg's rounds" if asked.relay else "the rounds"
        notes.append(f"silent={silent:,}: copies learn for 40 % of {said} before their votes are used")
    if asked.unsure is None:
        notes.append(f"unsure={target.unsure:,}: the square root of the rounds")
    if asked.polls is None:
        notes.append(f"polls={polls:,}: copies asked in a round; more ask more precisely and take longer")
    if asked.copies is None:
        notes.append(
            f"copies={target.both(copies):,}: the fewest that leave room for {asked.dissent:.0%} of a poll to dissent; "
            f"each is taught {labels_each(asked.rounds, copies)}{' a leg' if asked.relay else ''}"
        )
    notes.append(
        f"the gate answers when the winning label leads by {reach(gate, target.allowed) / polls:.0%} of the poll "
        f"({reach(gate, 0.5) / polls:.0%} for even odds)"
    )
    return tuple(notes)


def labels_each(rounds: int, copies: int) -> str:
    """How many labels a copy is taught, in words."""
    each = rounds / copies
    return f"about {each:,.0f} labels" if each >= 1.5 else "about one label" if each >= 0.95 else "less than one label"


@dataclass(frozen=True)
class Target(Numbers):
    """What the tables must do; knows them for each number of copies."""

    epsilon: float
    delta: float
    live: int
    unsure: int
    shift: int
    beta: float
    polls: int
    allowed: float
    """The rate of unsure answers that unanimous copies may have."""
    guide: float = 0.0
    lean: str | None = None
    labels: int = 2
    relay: bool = False

    def both(self, copies: int) -> int:
        """All copies: of a relay two halves of so many."""
        return 2 * copies if self.relay else copies

    def budget(self, copies: int, margins: int | None = None) -> Budget:
        """The budget of tables for so many copies."""
        start = min(0.25, self.beta / max(1, self.live))
        share = Fraction(self.polls, copies)
        return Budget(self.epsilon, self.delta, self.unsure, start, self.shift, share, margins, self.guide, self.relay)

    def split(self, copies: int) -> Split:
        """The split of the budget whose gate falls to the allowed rate soonest."""
        return _steepest(self, copies)

    def tables(self, copies: int) -> Built:
        """Finished tables for so many copies."""
        return built(self.budget(copies, margins=max(2, self.polls)), self.split(copies), self.lean, self.labels)

    def sure_enough(self, tables: Built) -> bool:
        """Whether unanimous polls are unsure no more often than is allowed."""
        gate = tables.gate
        return bool(gate.table[min(self.polls, gate.sure.size - 1)] <= self.allowed)

    def needs(self, copies: int, split: Split) -> float:
        """The margin that the tables for this many copies need."""
        gate = sketch(self.budget(copies, margins=max(256, 4 * self.polls)), split)
        return math.inf if gate is None else reach(gate, self.allowed) * (1 + 1e-3)

    def fewest_copies(self, margin: float) -> int | None:
        """The fewest copies whose gate falls to the allowed rate within `margin` votes of the poll, if any do."""
        high = max(2 * self.polls, 64)
        split = self.split(high)
        while self.needs(high, split) > margin:
            high *= 2
            if high > MOST_COPIES:
                return None
        split = self.split(high)
        low = max(self.polls, high // 2)
        while high - low > max(1, high // 200):
            middle = (low + high) // 2
            low, high = (low, middle) if self.needs(middle, split) <= margin else (middle, high)
        return high

    def works(self, copies: int) -> bool:
        """Whether finished tables for this many copies are sure enough of unanimous polls."""
        try:
            return self.sure_enough(self.tables(copies))
        except Unreachable:
            return False

    def refuse_copies(self, copies: int, polls_given: bool) -> str:
        """Why these copies will not do, and the nearest plans that would: each of them was tried."""
        ways = [self._more_copies(copies, polls_given), self._other_unsure(copies)]
        if self.polls < copies and replace(self, polls=copies).works(copies):
            ways.append(f"polls={copies} (all)")
        can = " can, or ".join(way for way in ways if way)
        return (
            f"copies={self.both(copies)} cannot reach epsilon={self.epsilon:g} with unsure={self.unsure} and "
            f"polls={self.polls} over {self.live:,} live rounds: even unanimous copies would be unsure too often; "
            + (f"{can} can" if can else "ask for a larger epsilon")
        )

    def refuse_polls(self, dissent: float) -> str:
        """Why so few polls will not do with any number of copies, and how many would."""
        said = (
            f"polls={self.polls} cannot reach epsilon={self.epsilon:g} with unsure={self.unsure} for any number of "
            "copies; "
        )
        polls = self.polls
        while polls < 5000:
            polls = 2 * polls + 1
            if replace(self, polls=polls).fewest_copies((1 - 2 * dissent) * polls) is not None:
                return f"{said}polls={polls} can"
        return f"{said}ask more of them, or plan for a larger share of unsure answers"

    def refuse_epsilon(self) -> str:
        """Why ε is out of reach, and the nearest that is not."""
        said = f"epsilon={self.epsilon:g} at delta={self.delta:g}, unsure={self.unsure} and unit_unsure={self.shift} "
        said += "needs longer tables than can be made; "
        other = self.epsilon
        while (other := float(f"{other * 1.25:.2g}")) <= 50:
            if replace(self, epsilon=other).in_reach():
                return f"{said}epsilon={other:g} is in reach"
        return f"{said}ask for a larger epsilon, fewer unsure answers or a smaller unit_unsure"

    def refuse_delta(self) -> str:
        """Why δ is out of reach, and the nearest that is not."""
        said = f"delta={self.delta:g} is below what 64-bit tables can keep over unsure={self.unsure} answers; "
        other = 10.0 ** math.ceil(math.log10(self.unsure * LEAST_TIE_SURE))
        while other < 0.01:
            if replace(self, delta=other).in_reach():
                return f"{said}delta={other:.0e} is in reach"
            other *= 10
        return f"{said}ask for a larger delta, or fewer unsure answers"

    def in_reach(self) -> bool:
        """Whether ε and δ leave anything for tables, whatever the copies."""
        order = max(2, round(1 + math.log(1 / self.delta) / self.epsilon * 1.35))
        drafted = draft(self.budget(self.polls), Split(order))
        return drafted is not None and drafted[1] * LEAST_TIE_SURE * 10 <= self.delta

    def _more_copies(self, copies: int, polls_given: bool) -> str | None:
        more = self.fewest_copies(float(self.polls))
        if more is None:
            return None
        for _ in range(40):
            if more > copies and self.works(more):
                same = polls_given or default_polls(more) == self.polls
                all_ = self.both(more)
                return f"copies={all_}" if same else f"copies={all_} with polls={self.polls}"
            more = math.ceil(more * 1.005)
        return None

    def _other_unsure(self, copies: int) -> str | None:
        """Fewer unsure answers make the gate steeper, more of them allow a higher rate: either may do."""
        split = self.split(copies)
        for factor in (0.8, 0.6, 0.4, 0.25, 0.15, 0.1, 0.05, 0.02, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0):
            number = round(self.unsure * factor)
            if not 1 <= number <= self.live:
                continue
            other = replace(self, unsure=number, allowed=number / (2 * self.live))
            if other.needs(copies, split) <= self.polls and other.works(copies):
                return f"unsure={number}"
        return None


@functools.lru_cache(maxsize=256)
def _steepest(target: Target, copies: int) -> Split:
    """See `Target.split`: most of what planning takes, and asked for again by refusals and by whoever plans twice."""
    # A table somewhat longer than the poll tells which split is steepest; its end stands for what lies beyond.
    budget = target.budget(copies, margins=max(256, 4 * target.polls))

    def lead(gate: Gate) -> float:
        found = reach(gate, target.allowed)
        beyond = math.log(max(1.0, float(gate.table[-1]) / target.allowed))
        return found if math.isfinite(found) else gate.sure.size * (2 + beyond)

    return search(budget, lead)
