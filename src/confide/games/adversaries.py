"""Adversaries for the OnlineGame: random, worst margin, last drop."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from confide._checks import integer
from confide.games.laws import Curve, Law, Outcomes, Turned, outcomes, unsure_share, yardstick
from confide.games.moves import BOTTOM, Batch, Label, Round, View
from confide.planning.plan import Plan
from confide.privacy.halting import Halting


def tally(view: View) -> tuple[int, int]:
    """How many of the visible answers were unsure, and how many sure."""
    sure = [answer.sure for answer in view.answers if answer is not BOTTOM]
    return len(sure) - sum(sure), sum(sure)


@dataclass(frozen=True)
class RandomAdversary:
    """Asks and labels at random, and challenges in a random round with two random inputs.

    Parameters
    ----------
    rounds
        How many rounds it plays.
    features, labels
        The length of x, drawn from the normal distribution, and the labels to draw from.
    """

    rounds: int
    features: int
    labels: tuple[Any, ...] = (0, 1)

    def play(self, coins: np.random.Generator) -> Generator[Round, Any, None]:
        at, many = int(coins.integers(self.rounds)), len(self.labels)
        for i in range(self.rounds):
            first, second = ((coins.normal(size=self.features), self.labels[int(coins.integers(many))]) for _ in "ab")
            yield Round(first, second, challenge=True) if i == at else Round(first)


def silence(plan: Plan, people: bool = False) -> Batch | None:
    """The silent rounds of a plan, spent on questions that `SplitVote` copies learn nothing from; None without any."""
    if not plan.silent:
        return None
    xs, ys = np.tile([1.0, 0.0], (plan.silent, 1)), np.ones(plan.silent, dtype=np.int64)
    return Batch(xs, ys, [f"silent {i}" for i in range(plan.silent)] if people else None)


@dataclass(frozen=True)
class WorstMargin:
    """Drives the votes of `SplitVote` copies to the margin where the gate leaks most, and stays there.

    The plan's silent rounds are spent first. Then comes the challenge: at bit 0 a unanimous round with label 1, at bit
    1 a tie with label 0. From then on one copy votes 1 or 0, and the tie was unsure and counted. Then it asks for
    `ones` of the copies to vote 1, each time with a fresh turn, so that the changed vote always counts, until the
    mechanism halts. `score` is the exact log-likelihood of the unsure and sure answers by their number, read from the
    plan's tables; `law()` is its exact curve, and `laws()` has those of the counts.

    Parameters
    ----------
    plan
        The plan of the POP that it plays against; the learner is `SplitVote()`, with x of two features.
    ones
        Copies asked to vote 1; by default those of the yardstick.
    challenges
        How many challenge rounds it poses, all alike; with more than one the law is not exact, and not given.
    person
        Play against a POP for people: the challenge rounds are one person's, everybody else asks once.
    late
        The hidden labels come only after all hidden rounds, which are taken between visible ones.
    together
        The challenge is a row of the first batch, with the rows of others behind it.
    turned
        Score the turns and the order of the answers too: the whole likelihood of the view, whose law nobody can
        compute, so that a part of the games chooses the thresholds. With many copies it is hardly better.
    """

    plan: Plan
    ones: int = 0
    challenges: int = 1
    person: bool = False
    late: bool = False
    together: bool = False
    turned: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.plan.halting, Halting):
            raise ValueError("WorstMargin reads a halting table: the paper's plan has a noisy counter instead")
        integer(self.challenges, "challenges", 1)
        if not self.ones:
            object.__setattr__(self, "ones", yardstick(self.plan)[1])
        if not self.plan.copies < 2 * self.ones <= 2 * self.plan.copies:
            raise ValueError(f"ones={self.ones} must be a majority of the {self.plan.copies} copies")
        if (self.together or self.turned) and not self._plain:
            raise ValueError("together and turned are for one challenge that is labelled at once")
        if self.turned and self.ones == self.plan.copies:
            raise ValueError("turned needs copies on both sides: take fewer ones")

    @property
    def _plain(self) -> bool:
        return self.challenges == 1 and not self.late

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in ("person", "late", "together", "turned") if getattr(self, name))
        return f"{type(self).__name__}({self.plan.guarantee}, ones={self.ones}, challenges={self.challenges}{extra})"

    # ------------------------------------------------------------------ playing

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        plan, silent, unit = self.plan, silence(self.plan, self.person), "alice" if self.person else None
        loud, tie = ((1.0, 1.0), 1), ((0.5, 1.0), 0)
        if silent is not None:
            yield silent
        if self.late:
            for i in range(self.challenges):
                yield Round((loud[0], None), (tie[0], None), challenge=True, unit=unit)
                turn = coins.integers(plan.copies) / plan.copies
                yield Round(((self.ones / plan.copies, turn), None), unit=f"early {i}" if self.person else None)
            for i in range(1 if self.person else self.challenges):
                yield Label(plan.silent + 2 * i + 1, loud[1], tie[1])
        elif not self.together:
            for _ in range(self.challenges):
                yield Round(loud, tie, challenge=True, unit=unit)
        asked = 0
        for turns in self._turns(coins):
            xs = np.stack([np.full(turns.size, self.ones), turns], axis=1) / plan.copies
            units = [f"{asked + i}" for i in range(turns.size)] if self.person else None
            second = None
            if self.together and not asked:
                xs, second = np.concatenate([[loud[0]], xs]), {0: tie}
                units = None if units is None else ["alice", *units]
            yield Batch(xs, np.ones(len(xs), dtype=np.int64), units, second)  # the copies learn nothing of these
            asked += turns.size

    def _turns(self, coins: np.random.Generator) -> Generator[NDArray[np.int64], None, None]:
        """The turns of the visible rounds, batch by batch."""
        first, more = self._lengths
        asked, rows = 0, first
        while asked < self.plan.rounds - self.plan.silent - self.challenges * (2 if self.late else 1):
            yield coins.integers(self.plan.copies, size=rows)
            asked, rows = asked + rows, more

    @cached_property
    def _lengths(self) -> tuple[int, int]:
        """A first batch that usually meets the halt, and the length of those that follow: a batch has its own price."""
        law = self.worlds[0].halted.sum(axis=1) + self.worlds[0].alive
        mean = float((law * np.arange(law.size)).sum()) / max(self._shares[0], 1e-6)
        return max(1, round(1.15 * mean)), max(8, round(0.3 * mean))

    # ------------------------------------------------------------------ what is known of it

    @cached_property
    def _shares(self) -> tuple[float, float]:
        """P(unsure) of a visible round at bit 0 and bit 1: the changed vote was 1 before with probability ones/k."""
        k, g = self.plan.copies, min(self.challenges if not self.person else 1, self.plan.copies - self.ones)
        shares = []
        for votes_one in (True, False):
            total = 0.0
            for already in range(g + 1):
                weight = float(binom.pmf(already, g, self.ones / k))
                change = (g - already) if votes_one else -already
                total += weight * unsure_share(self.plan, self.ones + change)
            shares.append(total)
        return shares[0], shares[1]

    @cached_property
    def _hidden(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """At each bit the probabilities of 0, 1, … unsure answers counted in the hidden rounds."""
        plan, weights = self.plan, []
        most = min(self.challenges, plan.unit_unsure) if self.person else self.challenges
        for ones in (plan.copies, plan.copies // 2):
            each = unsure_share(plan, ones)
            law = binom.pmf(np.arange(most + 1), self.challenges, each)
            law[-1] = binom.sf(most - 1, self.challenges, each)  # a person's cap
            weights.append(tuple(law.tolist()))
        return weights[0], weights[1]

    @cached_property
    def worlds(self) -> tuple[Outcomes, Outcomes]:
        """The laws of (unsure, sure, halted) at both bits: a mixture over how often the hidden rounds were unsure."""
        halting, rounds = self.plan.halting, self.plan.rounds - self.plan.silent - self.challenges
        assert isinstance(halting, Halting)
        laws = []
        for share, weights in zip(self._shares, self._hidden, strict=True):
            parts = [(w, self._outcomes(share, halting, n, rounds)) for n, w in enumerate(weights) if w > 0]
            halted, alive = (sum(w * getattr(law, name) for w, law in parts) for name in ("halted", "alive"))
            laws.append(Outcomes(halted, alive))
        return laws[0], laws[1]

    def _outcomes(self, share: float, halting: Halting, hidden: int, rounds: int) -> Outcomes:
        return outcomes(share, halting, hidden, rounds)

    @cached_property
    def _curve(self) -> Curve:
        return Curve(*(law.flat for law in self.worlds))

    @cached_property
    def scores(self) -> tuple[Any, Any]:
        """The score of every outcome. One that neither world should show tells of a moved count if it comes early."""
        zero, one = self.worlds
        split = zero.halted.size
        scores = np.clip(self._curve.scores, -60.0, 60.0)
        halted = scores[:split].reshape(zero.halted.shape)
        counts = np.arange(zero.halted.shape[0])
        usual = float((zero.halted.sum(axis=1) * counts).sum())
        strange = zero.halted + one.halted < 1e-15
        halted[strange & (counts < usual)[:, None]] = 60.0
        return halted, scores[split:]

    @cached_property
    def _likelihood(self) -> Turned:
        return Turned.of(self.plan, self.ones, self._hidden)

    def law(self) -> Curve | None:
        """The exact curve of the score; None where none is known (several challenges, interleaved rounds, turns)."""
        return self._curve if self._plain and not self.turned else None

    def laws(self) -> tuple[Law, ...]:
        """The exact laws of `numbers`, where that of the score is known: what the right mechanism must show."""
        if self.law() is None:
            return ()
        zero, one = (law.flat for law in self.worlds)
        scores = np.concatenate([part.ravel() for part in self.scores])
        unsure, rounds = self.worlds[0].counts
        kinds = (("score", scores), ("unsure answers", unsure), ("answers", rounds))
        return tuple(Law(name, values, zero, one) for name, values in kinds)

    # ------------------------------------------------------------------ what was seen

    def numbers(self, view: View) -> list[float]:
        """The score, and the counts: all that a mechanism with this plan's tables has an exact law of."""
        unsure, sure = self._tally(view)
        return [self.score(view), float(unsure), float(unsure + sure)]

    def score(self, view: View) -> float:
        """The log-likelihood ratio of what was seen."""
        if self.turned:
            return self._turned_score(view)
        unsure, sure = self._tally(view)
        halted, alive = self.scores
        u = min(unsure, halted.shape[0] - 1)
        return float(halted[u, min(sure, halted.shape[1] - 1)] if view.halted else alive[u])

    def _tally(self, view: View) -> tuple[int, int]:
        return tally(View(view.answers[self.plan.silent :]))

    def _turned_score(self, view: View) -> float:
        live = [not answer.sure for answer in view.answers[self.plan.silent :] if answer is not BOTTOM]
        turns = np.concatenate([*self._turns(np.random.default_rng(view.coins))])[: len(live)]
        score = self._likelihood.score(turns, np.array(live, dtype=np.bool_), view.halted)
        return float(np.clip(score, -60.0, 60.0))


@dataclass(frozen=True)
class LastDrop:
    """Challenges when one more unsure answer would halt, then looks whether it did.

    Silent rounds come first. It asks ties of `SplitVote` copies, which are unsure, until it has seen `at` of them; it
    knows the count, since everybody but one round is under its control. Then comes the challenge, a unanimous round or
    a tie, and after it only unanimous rounds: what it sees is how long the mechanism goes on. `score` is the exact
    log-likelihood of that.

    Parameters
    ----------
    plan
        The plan of the POP that it plays against.
    at
        Unsure answers before the challenge; by default where the halting table leaks most.
    watch
        Rounds that it watches after the challenge.
    """

    plan: Plan
    at: int = -1
    watch: int = 12

    def __post_init__(self) -> None:
        if not isinstance(self.plan.halting, Halting):
            raise ValueError("LastDrop reads a halting table: the paper's plan has a noisy counter instead")
        if self.at < 0:
            object.__setattr__(self, "at", max(range(self.plan.halting.visible), key=self._leak))

    def __repr__(self) -> str:
        return f"LastDrop({self.plan.guarantee}, at={self.at}, watch={self.watch})"

    def _leak(self, at: int) -> float:
        """Total variation of the number of rounds survived, times the probability of coming so far."""
        h = self.plan.halting.table  # type: ignore[union-attr]
        reach = float(np.exp(np.log1p(-np.minimum(h[: at + 1], 1 - 1e-12)).sum()))
        steps = np.arange(self.watch + 1)
        law = [np.append(g ** steps[:-1] * (1 - g), g**self.watch) for g in (1 - h[at], 1 - h[at + 1])]
        return reach * float(np.abs(law[0] - law[1]).sum()) / 2

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        unsure, silent = 0, silence(self.plan)
        if silent is not None:
            yield silent
        while unsure < self.at:
            left = self.at - unsure
            seen = yield Batch(np.tile([0.5, 0.0], (left, 1)), np.ones(left, dtype=np.int64))
            unsure += sum(not one.sure for one in seen)
        yield Round(((1.0, 0.0), None), ((0.5, 0.0), None), challenge=True)
        yield Batch(np.tile([1.0, 0.0], (self.watch, 1)), np.ones(self.watch, dtype=np.int64))

    def score(self, view: View) -> float:
        """The log-likelihood ratio of the rounds survived after the challenge; 0 where it never came to it."""
        if BOTTOM not in view.answers:
            return 0.0
        h = self.plan.halting.table  # type: ignore[union-attr]
        after = len(view.answers) - view.answers.index(BOTTOM) - 1
        drawn = after + 1  # one draw after the challenge, one after each round that followed
        stay = float(np.log1p(-min(h[self.at + 1], 1 - 1e-12)) - np.log1p(-h[self.at]))
        end = float(np.log(h[self.at + 1]) - np.log(h[self.at]))
        return (drawn - 1) * stay + (end if view.halted else stay)
