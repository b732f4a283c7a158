"""POPs so small that every outcome of every coin is counted, in fractions: what the proof pages are checked on.

Two levels. On the *tape's* level (`tape_leak`) everything but visible gate words and halting draws is fixed, and the
adversary chooses it: votes and counts of the two laws that are compared, as far apart as a lemma says. On the *game's*
level (`game_leak`) hidden coins are random, hidden answers flow between members of a group, and copies are taught.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, product

F = Fraction
Votes = tuple[int, ...]
Law = dict[int | None, Fraction]
"""The probability of each label, and of None for unsure."""


@dataclass(frozen=True)
class Tables:
    """P(unsure) by margin, P(halt) by count, and how many of the copies are asked (0: all)."""

    unsure: tuple[Fraction, ...]
    halt: tuple[Fraction, ...]
    copies: int = 3
    polls: int = 0

    def gate(self, votes: Votes) -> Law:
        """The law of one round's outcome, by the votes of the copies that were asked; ties to label 0."""
        ones = sum(votes)
        top, margin = int(2 * ones > len(votes)), abs(2 * ones - len(votes))
        unsure = self.unsure[min(margin, len(self.unsure) - 1)]
        return {None: unsure, top: 1 - unsure}

    def polled(self, votes: Votes) -> Law:
        """The same for a random poll of all copies."""
        m = self.polls or self.copies
        subsets = list(combinations(votes, m))
        return mix([(F(1, len(subsets)), self.gate(subset)) for subset in subsets])

    def stops(self, count: int) -> Fraction:
        return self.halt[min(count, len(self.halt) - 1)]


def mix(parts: list[tuple[Fraction, Law]]) -> Law:
    out: Law = defaultdict(F)
    for weight, law in parts:
        for outcome, chance in law.items():
            out[outcome] += weight * chance
    return dict(out)


def pairs(tables: Tables, apart: int) -> list[tuple[Law, Law]]:
    """All pairs of laws of a visible round, given the tape, in which at most `apart` copies vote differently."""
    k, found = tables.copies, []
    if not tables.polls:
        for first in range(k + 1):
            for second in range(max(0, first - apart), min(k, first + apart) + 1):
                laws = [tables.gate((1,) * ones + (0,) * (k - ones)) for ones in (first, second)]
                found.append((laws[0], laws[1]))
        return found
    assert apart == 1
    m, q = tables.polls, F(tables.polls, k)
    for others in product((0, 1), repeat=m):  # S′, of which the first gives way to the unit's copy
        for first, second in product((0, 1), repeat=2):
            heads = [tables.gate((own, *others[1:])) for own in (first, second)]
            laws = [mix([(1 - q, tables.gate(others)), (q, law)]) for law in heads]
            found.append((laws[0], laws[1]))
    return found


def tape_leak(grow: Fraction, tables: Tables, schedule: str, apart: int = 1) -> Fraction:
    """max over adaptive adversaries of Σ over views of (P − grow·Q)⁺, for two laws on one tape.

    The schedule has a letter for each round: "v" a visible one; "o" a hidden one whose unsure answer may be counted in
    one law and not in the other; "s" a hidden one that counts in both or in neither. "m" is no round but a noisy bit
    that everybody sees: the unit's, which may differ between the laws, told truly three times in four.
    """
    visible = pairs(tables, apart)
    steps = {"o": list(product((0, 1), repeat=2)), "s": [(0, 0), (1, 1)]}

    truth, lie = F(3, 4), F(1, 4)
    bits = [[(truth, truth), (lie, lie)], [(truth, lie), (lie, truth)]]

    @cache
    def worth(ratio: Fraction, i: int, first: int, second: int) -> Fraction:
        """P is 1 and Q is `ratio` so far; the two counts."""
        if i == len(schedule):
            return max(F(0), 1 - grow * ratio)
        if schedule[i] == "m":
            return max(sum((after(p, ratio * q, i, first, second) for p, q in noisy), F(0)) for noisy in bits)
        if schedule[i] != "v":
            return max(draw(F(1), ratio, i, first + a, second + b) for a, b in steps[schedule[i]])
        best = F(0)
        for one, other in visible:
            total = F(0)
            for outcome, chance in one.items():
                more = int(outcome is None)
                total += draw(chance, ratio * other.get(outcome, F(0)), i, first + more, second + more)
            best = max(best, total)
        return best

    def after(p: Fraction, q: Fraction, i: int, first: int, second: int) -> Fraction:
        return p * worth(q / p, i + 1, first, second)

    def draw(p: Fraction, q: Fraction, i: int, first: int, second: int) -> Fraction:
        h, g = tables.stops(first), tables.stops(second)
        total = max(F(0), p * h - grow * q * g)
        alive = p * (1 - h)
        return total + (alive * worth(q * (1 - g) / alive, i + 1, first, second) if alive else 0)

    return worth(F(1), 0, 0, 0)


# ------------------------------------------------------------------------------------------------- the game itself

Known = tuple[int, ...]
"""The hidden answers so far, 1 for unsure: all members of the group know all of them."""
State = tuple[Known, tuple[int, ...], int]
"""What the group knows, what each member's copy was told, the count."""
Belief = dict[State, Fraction]


@dataclass(frozen=True)
class Procedure:
    """What one member does in one world: from what the group knows, how many copies vote 1; then what it teaches."""

    ask: tuple[int, ...]
    """Votes for 1, by the number of unsure answers known so far."""
    say: tuple[int, ...]
    """The label, by the parity of the unsure answers known so far, its own included."""


def hidden(belief: Belief, member: int, does: Procedure, tables: Tables) -> dict[bool, Belief]:
    """By whether it halts: the round of a member of the group."""
    out: dict[bool, Belief] = {False: defaultdict(F), True: defaultdict(F)}
    for (known, told, count), p in belief.items():
        ones = does.ask[min(sum(known), len(does.ask) - 1)]
        unsure = tables.polled((1,) * ones + (0,) * (tables.copies - ones)).get(None, F(0))
        for answer, chance in ((1, unsure), (0, 1 - unsure)):
            now = (*known, answer)
            label = does.say[sum(now) % 2]
            stop = tables.stops(count + answer)
            state = now, (*told[:member], label, *told[member + 1 :]), count + answer
            for halts, h in ((True, stop), (False, 1 - stop)):
                if p * chance * h:
                    out[halts][state] += p * chance * h
    return out


def asked(belief: Belief, question: tuple[int, ...], tables: Tables) -> dict[tuple[int | None, bool], Belief]:
    """By outcome and halt: a visible round. The question says of each copy 0, 1, or 2 for "what you were told"."""
    out: dict[tuple[int | None, bool], Belief] = defaultdict(lambda: defaultdict(F))
    for (known, told, count), p in belief.items():
        votes = tuple(told[i] if i < len(told) and say == 2 else say % 2 for i, say in enumerate(question))
        for outcome, chance in tables.polled(votes).items():
            now = count + (outcome is None)
            stop = tables.stops(now)
            for halts, h in ((True, stop), (False, 1 - stop)):
                if p * chance * h:
                    out[outcome, halts][known, told, now] += p * chance * h
    return out


def questions(tables: Tables, members: int) -> Iterator[tuple[int, ...]]:
    """Every way to make the copies vote in which a member's copy votes as told, and unanimity, for the count."""
    rest = tables.copies - members
    yield (1,) * tables.copies
    for own in product((0, 1, 2), repeat=members):
        if 2 in own:
            for ones in range(rest + 1):
                yield own + (1,) * ones + (0,) * (rest - ones)


def game_leak(
    grow: Fraction, tables: Tables, schedule: str, worlds: tuple[tuple[Procedure, ...], tuple[Procedure, ...]]
) -> Fraction:
    """max over adaptive adversaries of Σ over views of (P − grow·Q)⁺ in the game itself, for given hidden procedures.

    "h" is the round of the next member of the group, "v" a visible round.
    """
    members = len(worlds[0])

    def worth(first: Belief, second: Belief, i: int) -> Fraction:
        p, q = sum(first.values(), F(0)), sum(second.values(), F(0))
        if not p or not q or i == len(schedule):
            return max(F(0), p - grow * q)
        if schedule[i] == "h":
            member = schedule[:i].count("h")
            one, other = (
                hidden(belief, member, world[member], tables)
                for belief, world in zip((first, second), worlds, strict=True)
            )
            return worth(one[False], other[False], i + 1) + worth(one[True], other[True], len(schedule))
        best = F(0)
        for question in questions(tables, members):
            left, right = asked(first, question, tables), asked(second, question, tables)
            total = F(0)
            for seen in left.keys() | right.keys():
                after = len(schedule) if seen[1] else i + 1
                total += worth(left.get(seen, {}), right.get(seen, {}), after)
            best = max(best, total)
        return best

    start: Belief = {((), (0,) * members, 0): F(1)}
    return worth(start, start, 0)
