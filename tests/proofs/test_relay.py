"""The proof of docs/proofs/relay.md on relays so small that every outcome of every coin is counted.

Two worlds of the real POP, step by step, with one unit whose question or label differs: what everybody sees in both, an
answer or unsure and whether the halves changed places, with its probability in each. The sum of P^α·Q^{1−α} over all of
it is at most what the code's own price says; a relay that is broken in one place passes it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

import confide
from confide.errors import TicketError
from confide.learners import LogisticRegression
from confide.planning.copies import Copies
from confide.planning.design import Spending, spends
from confide.planning.plan import Plan
from confide.planning.promise import Promise
from confide.pop.account import Account
from confide.pop.legs import Legs
from confide.pop.loop import Loop
from confide.privacy.gate import Gate, lead
from confide.privacy.halting import Halting

pytestmark = pytest.mark.claim("relay.md")

HALF = 5
"""Copies in a half: if three of four vote 1, the margin is 3 or 1 with the vote of the fifth, and the top the same."""
ORDER = 2
WORD = 1 << 64


# ------------------------------------------------------------------------------------------------- a relay to count out


class Told:
    """A bank whose copies vote for what they were last told, and for 0 if nothing."""

    labels, nbytes = 2, 0

    def __init__(self) -> None:
        self.copies, self.told = 2 * HALF, [-1] * (2 * HALF)

    def encode(self, x: Any) -> Any:
        return x

    def encode_many(self, xs: Any) -> tuple[Any, dict[int, str]]:
        return list(xs), {}

    def votes(self, x: Any, poll: Any) -> Any:
        ones = sum(self.told[copy] == 1 for copy in poll.tolist())
        return np.array([len(poll) - ones, ones])

    def votes_many(self, xs: Any, polls: Any) -> Any:
        return np.array([self.votes(x, poll) for x, poll in zip(xs, polls, strict=True)])

    def learn(self, copy: int, x: Any, y: int) -> None:
        self.told[copy] = y

    def learn_many(self, copies: Any, xs: Any, ys: Any) -> int:
        for one, y in zip(copies.tolist(), ys.tolist(), strict=True):
            self.told[one] = y
        return len(ys)

    def reset(self, copies: Any) -> None:
        for one in copies:
            self.told[one] = -1

    def state(self, trusted: bool = False) -> Any:
        return {"told": np.array(self.told)}

    def load_state(self, state: Any, trusted: bool = False) -> None:
        self.told = state["told"].tolist()


class Forced:
    """A generator that gives what it was told to give."""

    secure = one_stream = False

    def __init__(self) -> None:
        self.copy, self.given = 0, list[int]()

    def below(self, n: int) -> int:
        assert n == HALF
        return self.copy

    def word(self) -> int:
        return self.given.pop(0)


@cache
def planned(live: int, silent: int) -> Plan:
    """A plan with real tables, too small to be one that anybody would run."""
    gate = Gate([0.998, 0.998, 0.998, 0.96, 0.96, 0.82])
    halting = Halting([int(WORD * (1 - h)) for h in (0.1, 0.17, 0.31, 0.5, 0.73, 0.92, 1.0)])
    part = Copies(2 * HALF, HALF, 1, silent, 1, 2, ORDER, 0.95, gate, halting, None, live + silent)
    return Plan(Promise(100.0, 0.09, None, 2, "rounds"), (part,))


def priced(plan: Plan) -> Spending:
    """What the code says it costs."""
    assert plan.gate is not None and isinstance(plan.halting, Halting)
    return spends(plan.gate, plan.halting, order=ORDER, poll_fraction=plan.poll_fraction, relay=True)


class World:
    """The real POP, whose words are forced."""

    def __init__(self, plan: Plan) -> None:
        self.bank = Told()
        made = LogisticRegression(), plan
        self.pop = confide.POP(*made, labels=[0, 1], features=1, bank=self.bank, seed=1, fallback=0)
        self.loop: Loop = self.pop.operator.loop
        self.rng: Any = Forced()
        self.loop.rng = self.loop.routing._rng = self.rng
        self.ticket = self.mine = ""

    def key(self) -> Any:
        account = self.loop.account
        waits = repr(self.loop.lessons._queue)
        return account.legs, account.count, tuple(self.bank.told), waits, self.mine

    def ask(self, sure: bool, on: bool) -> tuple[Fraction, int, int, int]:
        """A round of these outcomes: its probability, the top label, the count at the draw, and the leg after it."""
        plan, account = self.loop.plan, self.loop.account
        assert plan.gate is not None and isinstance(plan.halting, Halting)
        before = account.count
        self.rng.copy, self.rng.given, self.loop.last = 0, [1 if sure else WORD - 1, 1 if on else WORD - 1], None
        answer = self.pop.predict([0.0])
        self.ticket = answer.ticket
        assert account.legs is not None
        if self.loop.last is None:  # silent: there is one outcome
            self.rng.given = []
            return Fraction(int(sure and on)), -1, 0, account.legs.number
        assert not self.rng.given
        top, margin = lead(self.loop.last)
        s = Fraction(int(plan.gate.sure[min(margin, plan.gate.sure.size - 1)]), WORD)
        count = before + (not sure)
        go = Fraction(int(plan.halting.go[min(count, plan.halting.visible)]), WORD)
        return (s if sure else 1 - s) * (go if on else 1 - go), top, count, account.legs.number


@dataclass
class Node:
    """Two worlds in which the same was seen."""

    worlds: tuple[World, World]
    p: Fraction = Fraction(1)
    q: Fraction = Fraction(1)
    votes: int = -1
    """The leg in which the unit's copy votes; −1 before it was asked."""
    survived: bool = False
    """Whether it went on at the last certified count in this leg."""

    def key(self) -> Any:
        return *(world.key() for world in self.worlds), self.votes, self.survived, self.p / self.q


Step = tuple[Any, ...]
"""("ask",) · ("hidden", unsure in each world) · ("teach", copy of the learners, label) · ("label", in each world, or
None)."""


@dataclass
class Seen:
    """The law of all that is seen, as far as a divergence needs it."""

    good: dict[Fraction, Fraction] = field(default_factory=dict)
    """By P/Q the mass of Q."""
    bad: Fraction = Fraction(0)
    """The mass of P outside of the good event."""

    def renyi(self) -> float:
        moment = sum(float(q) * float(ratio) ** ORDER for ratio, q in self.good.items())
        return math.log(moment) / (ORDER - 1) if moment else -math.inf

    def leak(self, epsilon: float) -> float:
        """What P has above e^ε·Q, at most: all that is bad is counted."""
        over = (float(q) * max(0.0, float(ratio) - math.exp(epsilon)) for ratio, q in self.good.items())
        return float(self.bad) + sum(over)


def law(plan: Plan, steps: Sequence[Step], turned: bool = False) -> Seen:
    """Play the steps in both worlds, all outcomes of all coins."""
    seen, nodes = Seen(), [Node((World(plan), World(plan)))]
    for step in steps:
        merged: dict[Any, Node] = {}
        for node in nodes:
            for after in _after(plan, node, step, seen, turned):
                other = merged.setdefault(after.key(), after)
                if other is not after:
                    other.p, other.q = other.p + after.p, other.q + after.q
        nodes = list(merged.values())
    for node in nodes:
        ratio = node.p / node.q
        seen.good[ratio] = seen.good.get(ratio, Fraction(0)) + node.q
    return seen


def _after(plan: Plan, node: Node, step: Step, seen: Seen, turned: bool) -> Iterator[Node]:
    kind, *rest = step
    own: Any = rest[::-1] if turned and len(rest) == 2 and kind in ("hidden", "label") else rest
    if kind == "teach":
        for world in node.worlds:
            world.rng.copy = rest[0]
            world.pop.teach([0.0], rest[1])
        yield node
        return
    if kind == "label":
        for world, y in zip(node.worlds, own, strict=True):
            if y is not None:
                world.pop.learn(world.mine, y)
                with pytest.raises(TicketError):  # a retry is refused, whatever became of the label
                    world.pop.learn(world.mine, y)
        yield node
        return
    assert isinstance(plan.halting, Halting)
    last, (legs, other_legs) = plan.halting.visible, [world.loop.account.legs for world in node.worlds]
    if legs is None or legs != other_legs:  # which everybody sees
        seen.bad += node.p
        return
    live = node.worlds[0].loop.account.rounds >= legs.start
    for sure in (True, False) if kind == "ask" and live else (True,):
        for on in (True, False) if live else (True,):
            both = copy.deepcopy(node.worlds)
            came = [
                world.ask(sure if kind == "ask" or not live else not own[i], on) for i, world in enumerate(both)
            ]
            if kind == "hidden":  # its answer's own word is on the tape: only the draw is seen
                came = [_given(plan, one, own[i], live) for i, one in enumerate(came)]
                for world in both:
                    world.mine = world.ticket
            (p, top, count, leg), (q, other, _, leg_) = came
            p, q = node.p * p, node.q * q
            votes = node.votes if kind == "ask" else legs.number + live
            split = kind == "ask" and live and sure and top != other
            stays = leg == legs.number
            survived = stays and (node.survived or (live and count >= last))
            if split or (votes == legs.number and survived) or q == 0 or leg != leg_:
                seen.bad += p
            elif p or q:
                yield Node(both, p, q, votes, survived)


def _given(plan: Plan, one: tuple[Fraction, int, int, int], unsure: bool, live: bool) -> tuple[Fraction, int, int, int]:
    """The halting draw alone of a round."""
    assert isinstance(plan.halting, Halting)
    p, top, count, leg = one
    if live and p:
        assert plan.gate is not None
        s = [Fraction(int(sure), WORD) for sure in plan.gate.sure]
        for each in {1 - x for x in s} if unsure else set(s):
            draw = p / each if each else Fraction(-1)
            go = Fraction(int(plan.halting.go[min(count, plan.halting.visible)]), WORD)
            if draw in (go, 1 - go):
                return draw, top, count, leg
    return p, top, count, leg


# ---------------------------------------------------------------------------------------------------------- the scripts

READY: tuple[Step, ...] = tuple(("teach", one, 1) for one in (1, 2, 3))
"""Three learners vote 1 then, one votes 0, and the unit's copy decides."""


def script(rounds: int, hidden: int, unsure: tuple[bool, bool], labels: dict[int, tuple[Any, Any]]) -> list[Step]:
    """Rounds, one of them the unit's; before each the learners are made ready, after some the unit's label comes."""
    steps = list[Step]()
    for i in range(rounds):
        steps += READY
        steps.append(("hidden", *unsure) if i == hidden else ("ask",))
        steps += [("label", *labels[i])] if i in labels else []
    return steps


# ------------------------------------------------------------------------------------------ the theorem, leg by leg


def bound(plan: Plan) -> float:
    """R of the theorem's two legs, for legs of so few rounds: the best adaptive adversary against each, exactly."""
    assert plan.gate is not None and isinstance(plan.halting, Halting)
    unsure = [1 - int(s) / WORD for s in plan.gate.sure]
    halts, last = [1 - int(go) / WORD for go in plan.halting.go], plan.halting.visible
    pairs = [(unsure[v], unsure[w]) for v in range(HALF + 1) for w in range(HALF + 1) if abs(v - w) <= 2]

    def power(p: float, q: float) -> float:
        return p**ORDER * q ** (1 - ORDER) if p else 0.0

    @cache
    def votes(n: int, left: int) -> float:
        """The leg in which the unit's copy votes: the counts are equal, and going on at the last one is bad."""
        if left == 0:
            return 1.0
        then = [halts[m] + (1 - halts[m]) * (votes(m, left - 1) if m < last else 0.0) for m in (n, n + 1)]
        return max(power(p, q) * then[1] + power(1 - p, 1 - q) * then[0] for p, q in pairs)

    @cache
    def counted(n: int, a: int, b: int, left: int) -> float:
        """The leg in which the unit was asked, after its round: the votes are equal."""
        return 1.0 if left == 0 else max(
            t * draw(n + 1, a, b, left - 1) + (1 - t) * draw(n, a, b, left - 1) for t in unsure
        )

    def draw(n: int, a: int, b: int, left: int) -> float:
        p, q = halts[min(n + a, last)], halts[min(n + b, last)]
        return power(p, q) + power(1 - p, 1 - q) * counted(n, a, b, left)

    ways = [(n, a, b, left) for n in range(plan.live) for a in (0, 1) for b in (0, 1) for left in range(plan.live - n)]
    return math.log(max(1.0, *(draw(*way) for way in ways)) * votes(0, plan.live)) / (ORDER - 1)


ONE, TWO, QUIET = (1, 0), (2, 0), (1, 2)
"""Legs of one round, of two, and of one after two silent ones."""

UNITS: dict[str, tuple[tuple[bool, bool], dict[int, tuple[Any, Any]]]] = {
    "another label": ((True, False), {0: (1, 0)}),
    "no label in one world": ((False, True), {0: (1, None)}),
    "a label after a swap": ((True, False), {1: (1, 0)}),
    "before a swap in one world, after the next in the other": ((True, False), {0: (1, None), 2: (None, 1)}),
    "after its copy's reset, in one world": ((True, False), {3: (1, None)}),
    "nothing but an answer": ((True, False), {}),
}


@pytest.mark.parametrize("numbers", [ONE, TWO, QUIET])
@pytest.mark.parametrize("unit", UNITS)
def test_all_that_is_ever_seen_costs_two_legs(numbers: tuple[Any, ...], unit: str) -> None:
    plan, (unsure, labels) = planned(*numbers), UNITS[unit]
    price, most = priced(plan), bound(plan)
    assert most <= price.renyi
    for hidden in (0, 1):
        for turned in (False, True):
            shifted = {at + hidden: both for at, both in labels.items()}
            seen = law(plan, script(5 if numbers == TWO else 6, hidden, unsure, shifted), turned)
            total = seen.bad + sum(ratio * q for ratio, q in seen.good.items())
            assert total == 1 and sum(seen.good.values()) <= 1
            assert seen.renyi() <= most + 1e-12
            assert seen.bad <= price.bad
            epsilon = plan.price().epsilon(0.09)
            assert seen.leak(epsilon) <= 0.09


def test_the_bound_is_nearly_reached() -> None:
    for numbers in (ONE, TWO):
        plan = planned(*numbers)
        found = max(
            law(plan, script(5, hidden, unsure, {hidden: (1, 0)})).renyi()
            for hidden in (0, 1)
            for unsure in ((True, False), (False, True))
        )
        assert found >= 0.99 * bound(plan), numbers


def test_more_legs_tell_nothing_more() -> None:
    plan, (unsure, labels) = planned(*ONE), UNITS["another label"]
    assert law(plan, script(8, 0, unsure, labels)).renyi() == pytest.approx(
        law(plan, script(3, 0, unsure, labels)).renyi(), rel=1e-12
    )


# ------------------------------------------------------------------------------------------ relays that are broken


def _kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Legs, "keeps", lambda self, copy, number: True)


def _twice(patch: pytest.MonkeyPatch) -> None:
    add = confide.pop.lessons.Lessons.add

    def both(self: Any, one: int, x: Any, label: int) -> None:
        add(self, one, x, label)
        add(self, (one + HALF) % (2 * HALF), x, label)

    patch.setattr(confide.pop.lessons.Lessons, "add", both)


def _at_labels(patch: pytest.MonkeyPatch) -> None:
    receive = Loop._receive

    def swapping(self: Loop, key: Any, label: int) -> Any:
        assert self.account.legs is not None
        self.account._swap(self.account.legs)
        return receive(self, key, label)

    patch.setattr(Loop, "_receive", swapping)


def _on(patch: pytest.MonkeyPatch) -> None:
    swap = Account._swap

    def counting_on(self: Account, legs: Legs) -> None:
        over = self._over
        swap(self, legs)
        self._over = over

    patch.setattr(Account, "_swap", counting_on)


def _late(patch: pytest.MonkeyPatch) -> None:
    swap = Account._swap

    def a_leg_later(self: Account, legs: Legs) -> None:
        over = self._over
        swap(self, legs)
        before, self.before = getattr(self, "before", over), self._over  # type: ignore[attr-defined]
        self._over = before

    patch.setattr(Account, "_swap", a_leg_later)


def _never_reset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Loop, "renew", lambda self: None)


BROKEN: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[Any, ...], tuple[bool, bool], dict[int, Any], int]]
BROKEN = {
    "a late label is taught to the copy's next life": (_kept, ONE, (True, False), {0: (1, None), 2: (None, 1)}, 6),
    "a label is taught in both halves": (_twice, ONE, (True, False), {0: (1, 0)}, 5),
    "a swap at a number of labels": (_at_labels, TWO, (True, False), {0: (1, None)}, 4),
    "the count goes on over a swap": (_on, ONE, (True, False), {0: (1, 0)}, 5),
    "the count begins anew a leg later": (_late, ONE, (True, False), {0: (1, 0)}, 5),
    "who has voted is not reset": (_never_reset, ONE, (True, False), {0: (1, 0)}, 5),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_relay_costs_more(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, numbers, unsure, labels, rounds = BROKEN[how]
    plan = planned(*numbers)
    most, price = bound(plan), priced(plan)
    before = [law(plan, script(rounds, 0, unsure, labels), turned) for turned in (False, True)]
    assert all(seen.renyi() <= most + 1e-12 and seen.bad <= price.bad for seen in before)
    broken(monkeypatch)
    after = [law(plan, script(rounds, 0, unsure, labels), turned) for turned in (False, True)]
    assert any(seen.renyi() > most * 1.01 or seen.bad > price.bad for seen in after)


def test_a_person_who_is_taught_in_two_generations_is_not_covered() -> None:
    plan = planned(*ONE)
    steps = script(6, 0, (True, False), {0: (1, 0)})
    second = next(i for i, step in enumerate(steps) if step == ("ask",) and i > 2 * len(READY))
    steps[second : second + 1] = [("hidden", True, False), ("label", 1, 0)]
    assert max(law(plan, steps, turned).renyi() for turned in (False, True)) > 1.01 * bound(plan)


def test_asking_half_of_the_copies_has_its_price_at_half_of_them() -> None:
    part = planned(*ONE).voters
    assert part is not None and part.poll_fraction == Fraction(HALF, HALF) and part.copies == 2 * HALF
    gate, halting = part.gate, part.halting
    assert isinstance(halting, Halting)
    how: dict[str, Any] = {"order": ORDER, "relay": True}
    wrong = spends(gate, halting, poll_fraction=Fraction(HALF, 2 * HALF), **how)
    assert wrong.renyi < 0.9 * priced(planned(*ONE)).renyi
