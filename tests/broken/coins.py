"""Doubles whose coins, counts or halts hang on what is private, in the plain loop."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.pop.account import Account
from confide.pop.base import Answer, Xs
from confide.pop.fallback import Fallback
from confide.pop.lessons import Lesson
from confide.pop.loop import SILENCE, Loop, Outcome, Scores
from confide.pop.settings import Settings
from confide.pop.tickets import Key
from confide.privacy.gate import is_sure
from tests.broken.base import Broken, OpenLoop

__all__ = [
    "CoinOfTheSameStream",
    "CountsCapped",
    "CountsMalformed",
    "GateByLabels",
    "HaltsOnARecord",
    "HaltsOnLabels",
    "HaltsOnWrongLabels",
    "HaltsTheRounds",
    "NoDrawWhereCapped",
    "NoDrawWhereMalformed",
    "NoDrawWhereSure",
    "NoPollForMalformed",
    "NoRoundForMalformed",
    "NoRoundInBatches",
    "NoWordWhereClear",
    "OnePollABatch",
    "PollsAgain",
    "PollsTheTaught",
    "RefundsAgreement",
    "SamePoll",
    "Uncapped",
    "WrongInequality",
    "WrongShape",
]

# ---------------------------------------------------------------------- polls


class _SamePoll(Loop):
    kept: NDArray[np.int64] | None = None

    def poll(self) -> NDArray[np.int64]:
        if self.kept is None:
            self.kept = super().poll()
        return self.kept


class SamePoll(Broken):
    """The same poll in every round: where the unit's copy is in it, it is asked always and not with probability m/k."""

    loop_type = _SamePoll


class _OnePoll(Loop):
    batch, kept = False, None

    def poll(self) -> NDArray[np.int64]:
        poll = super().poll() if self.kept is None else self.kept
        self.kept = poll if self.batch else None
        return poll


class OnePollABatch(Broken):
    """One poll for a whole batch: a batch of one question asked often is as bad as the same poll in every round."""

    loop_type = _OnePoll

    def predict_many(self, xs: Xs, units: Any = None) -> list[Answer]:
        loop = self.operator.loop
        assert isinstance(loop, _OnePoll)
        loop.batch = True
        try:
            return super().predict_many(xs, units)
        finally:
            loop.batch, loop.kept = False, None


class _PollsAgain(Loop):
    def votes(self, x: Any, poll: NDArray[np.int64]) -> NDArray[np.int64]:
        counts = super().votes(x, poll)
        return counts if counts.max() > poll.size / 2 else super().votes(x, self.poll())


class PollsAgain(Broken):
    """A poll without a majority is drawn again: how often polls are drawn follows the votes, and the unit's is one."""

    loop_type = _PollsAgain


class _PollsTheTaught(Loop):
    def poll(self) -> NDArray[np.int64]:
        taught: Any = self.bank.state(trusted=True)["taught"]
        some: NDArray[np.int64] = taught[self.rng.subset(len(taught), min(len(taught), self.plan.polls))]
        return some


class PollsTheTaught(Broken):
    """Only copies that were taught are polled: who may be asked is private, and q is larger than what was paid for."""

    loop_type = _PollsTheTaught


# ---------------------------------------------------------------------- the gate


class _WrongInequality(OpenLoop):
    def sure(self, word: int, margin: int) -> bool:
        return not super().sure(word, margin)


class WrongInequality(Broken):
    """The word compared with the wrong inequality: sure where the table says unsure, so near-ties are shown."""

    loop_type = _WrongInequality


class _GateByLabels(OpenLoop):
    def sure(self, word: int, margin: int) -> bool:
        return bool(is_sure(np.uint64(word), self.plan.tables.gate.sure, margin + 2 * (self.lessons.taught % 3)))


class GateByLabels(Broken):
    """Which table the gate uses follows the number of labels taught: it is read at another margin."""

    loop_type = _GateByLabels


class _NoWordWhereClear(OpenLoop):
    def gate_word(self, margin: int) -> int:
        return 0 if margin >= self.plan.polls // 2 else super().gate_word(margin)


class NoWordWhereClear(Broken):
    """No gate word where the margin is large: how much is drawn tells of the votes, and large margins are exact."""

    loop_type = _NoWordWhereClear


class _Coin(Fallback):
    def __init__(self, loop: Loop, settings: Settings) -> None:
        super().__init__("coin", settings.index, loop.rng)
        self.needed = True

    def answer(self, x: Any) -> int | ValueError:
        return super().answer(x) if self.needed else 0


class _NeedsACoin(Loop):
    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Scores) -> tuple[int, int]:
        label, source = super().live(x, malformed, who, scores)
        assert isinstance(self.fallback, _Coin)
        self.fallback.needed = label < 0
        return label, source


class CoinOfTheSameStream(Broken):
    """The fallback's coin comes from the stream of the polls, where one is needed: polls then follow outcomes."""

    loop_type = _NeedsACoin

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.fallback = _Coin(loop, settings)


# ---------------------------------------------------------------------- the count


class _NoCap(Account):
    def capped(self, who: bytes | None) -> bool:
        return False


class Uncapped(Broken):
    """No cap: one person is counted unsure more than G times, and the halting gate hides a shift of G only."""

    def spoil(self, loop: Loop, settings: Settings) -> None:
        loop.account = _NoCap(loop.plan, loop.rng)


class _CountsCapped(OpenLoop):
    def counts(self, malformed: bool, capped: bool, sure: bool) -> bool:
        return not (sure or malformed)


class CountsCapped(Broken):
    """Capped rounds are counted all the same: the fallback answers, but the count shifts by more than G."""

    loop_type = _CountsCapped


class _CountsMalformed(OpenLoop):
    def counts(self, malformed: bool, capped: bool, sure: bool) -> bool:
        return malformed or not (sure or capped)


class CountsMalformed(Broken):
    """Rounds that cannot be read are counted, capped or not: the count shifts by more than G."""

    loop_type = _CountsMalformed


class _Refunds(Loop):
    def learn(self, key: Key, label: int) -> Lesson:
        waiting = self.tickets.take(key, self.account.rounds)
        if label == waiting.answered:
            self.account.unsure = max(0, self.account.unsure - 1)
        self.lessons.add(waiting.copy, waiting.x, label)
        return Lesson(key, waiting, label, -1)


class RefundsAgreement(Broken):
    """The count falls by one whenever a label agrees with its answer: more is shown than was paid for."""

    loop_type = _Refunds


# ---------------------------------------------------------------------- rounds and halting draws


class _NoDrawWhereCapped(OpenLoop):
    def draws(self, malformed: bool, capped: bool, sure: bool) -> bool:
        return not capped


class NoDrawWhereCapped(Broken):
    """No halting draw for capped rounds: a round that cannot halt tells that its asker's share is used up."""

    loop_type = _NoDrawWhereCapped


class _NoDrawWhereSure(OpenLoop):
    def draws(self, malformed: bool, capped: bool, sure: bool) -> bool:
        return not (sure or malformed or capped)


class NoDrawWhereSure(Broken):
    """A halting draw only where an unsure answer was counted: no halt in a hidden round tells that it was sure."""

    loop_type = _NoDrawWhereSure


class _NoDrawWhereMalformed(OpenLoop):
    def draws(self, malformed: bool, capped: bool, sure: bool) -> bool:
        return not malformed


class NoDrawWhereMalformed(Broken):
    """No halting draw where a question cannot be read: what was in a round decides whether it can halt the run."""

    loop_type = _NoDrawWhereMalformed


class _NoPollForMalformed(Loop):
    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Scores) -> tuple[int, int]:
        return SILENCE if malformed else super().live(x, malformed, who, scores)


class NoPollForMalformed(Broken):
    """No poll, no gate word and no halting draw for a malformed question: an error returned too early."""

    loop_type = _NoPollForMalformed


class _WrongShape(Loop):
    def encode(self, x: Any) -> tuple[Any, BaseException | None]:
        try:
            row = np.array(x, dtype=np.float64)
        except Exception:
            return super().encode(x)
        return (row, None) if row.shape == (1,) else super().encode(x)

    def live(self, x: Any, malformed: bool, who: bytes | None, scores: Scores) -> tuple[int, int]:
        if np.shape(x) == (1,):
            raise ValueError("x has the wrong shape")
        return super().live(x, malformed, who, scores)


class WrongShape(Broken):
    """An encoded row of another shape raises after its round was taken and before its halting draw."""

    loop_type = _WrongShape


class _NoRound(Loop):
    def ask(self, x: Any, who: bytes | None) -> Outcome:
        _, malformed = self.encode(x)
        return super().ask(x, who) if malformed is None else Outcome(-1, error=malformed)


class NoRoundForMalformed(Broken):
    """A malformed question takes no round: every later row shifts, and the number of rounds counts the bad ones."""

    loop_type = _NoRound


class NoRoundInBatches(Broken):
    """Bad rows are taken out of a batch before it is asked: the compiled loop never sees their rounds."""

    def predict_many(self, xs: Xs, units: Any = None) -> list[Answer]:
        bad = self.readable(xs)
        good = [i for i in range(len(xs)) if i not in bad]
        some = super().predict_many([xs[i] for i in good], None if units is None else [units[i] for i in good])
        answers = iter(some)
        return [Answer(None, False, "", bad[i]) if i in bad else next(answers) for i in range(len(xs))]


# ---------------------------------------------------------------------- halts


class _HaltsOnARecord(Loop):
    def teach(self, x: Any, y: Hashable, who: bytes | None) -> None:
        super().teach(x, y, who)
        if float(np.ravel(x)[0]) > 0.95:
            self.account.halted = "budget"


class HaltsOnARecord(Broken):
    """The run halts when one particular record is taught: everybody sees that it was."""

    loop_type = _HaltsOnARecord


class _HaltsOnWrongLabels(Loop):
    wrong, most, reason = 0, 8, "budget"

    def learn(self, key: Key, label: int) -> Lesson:
        lesson = super().learn(key, label)
        self.wrong += lesson.label != lesson.waiting.answered
        return lesson

    def ask(self, x: Any, who: bytes | None) -> Outcome:
        outcome = super().ask(x, who)
        if self.wrong >= self.most:
            self.account.halted = self.reason
        return outcome


class HaltsOnWrongLabels(Broken):
    """The run halts after so many labels that differ from their answers: an exact count, the unit's in it."""

    loop_type = _HaltsOnWrongLabels


class _HaltsTheRounds(_HaltsOnWrongLabels):
    reason = "rounds"


class HaltsTheRounds(Broken):
    """The same under another name: it says that its rounds are over."""

    loop_type = _HaltsTheRounds


class _HaltsOnLabels(OpenLoop):
    def count(self) -> int:
        return self.account.unsure + 30 * self.lessons.taught


class HaltsOnLabels(Broken):
    """The halting draw is made at unsure + 30·labels: the number of labels shifts it by far more than G."""

    loop_type = _HaltsOnLabels
