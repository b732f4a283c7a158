"""The doubles that a replay catches, each with the cause that it must name.

A script runs in two worlds with identical coins; a violated line, with its round and cause, is the catch. Unless a hunt
says otherwise, a POP for people with G = 3, polls, silence and a monitor is asked, alone and in batches that hold the
unit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confide import POP, Monitor
from confide.games.replay import Ask, Disk, Script, replay
from confide.learners import Features, LogisticRegression
from confide.privacy.random import Random
from tests.broken import coins, compiled, copies, disk, guides, leans, seen
from tests.scripts import (
    GUIDED,
    HALTING,
    LEANING,
    LEANING_ALONE,
    POLLED,
    RANGED,
    TAUGHT,
    batch_script,
    crash_script,
    cut_script,
    disk_script,
    history_script,
    loader,
    make_pop,
    one_label_script,
    people_script,
    secret_word_script,
    shape_script,
    watched_script,
)


@dataclass(frozen=True)
class ReplayHunt:
    """A double, the correct thing in its place, and the cause that a replay must name."""

    name: str
    cause: str
    """A regular expression."""
    kind: type[POP] = POP
    learner: Any = None
    sound: Any = None
    """What takes the learner's place in the correct mechanism, where the learner is the double."""
    settings: Callable[[bool], dict[str, Any]] = lambda broken: {}
    script: Callable[[int], Script] = people_script
    first: int = 0
    """The seed to begin with: not every script has somebody who shares a copy with the unit."""

    def catch(self) -> str:
        """What the first replay says that says anything."""
        return next((line for line in map(self.run, range(self.first, self.first + 8)) if line), "")

    def run(self, seed: int, broken: bool = True) -> str:
        """What the replay says, or nothing. The routing follows the tape's seed, the questions the script's."""
        return self.replay(self.script(seed), seed, broken)

    def replay(self, script: Script, seed: int, broken: bool = True, **general: Any) -> str:
        learner = (self.learner if broken or self.sound is None else self.sound) or LogisticRegression()
        kind = self.kind if broken else POP

        def make(rng: Random) -> POP:  # settings anew: features may be an object that learns
            usual = {"plan": POLLED, "monitor": Monitor(1.0, rounds_per_unit=2, delay=5), **general}
            return make_pop(learner, kind, **{**usual, **self.settings(broken)})(rng)

        try:
            replay(make, script, load=loader(learner, kind), seed=seed)
        except AssertionError as violated:
            return str(violated)
        return ""


def _vocabulary(broken: bool) -> dict[str, Any]:
    return {"features": copies.SharedVocabulary() if broken else Features(numeric=["a", "b", "zebra"])}


def _scaler(broken: bool) -> dict[str, Any]:
    return {"features": copies.RunningMean() if broken else 2}


def _with(**settings: Any) -> Callable[[bool], dict[str, Any]]:
    return lambda broken: settings


_monitored = _with(monitor=Monitor(1.0, rounds_per_unit=1, delay=5), fallback="yes")
_constant = _with(fallback="no")
_halting = _with(plan=HALTING, after_halt="raise")  # rounds that are taken after a halt would hide some faults
_guided = _with(plan=GUIDED)
_taught = _with(plan=TAUGHT)
_ranged = _with(plan=RANGED)
_leaning = _with(plan=LEANING)
_leaning_alone = _with(plan=LEANING_ALONE, fallback="no")

_loads = functools.partial(people_script, loads=(True, False), parts=4)
_words = functools.partial(secret_word_script, word={"zebra": 1.0}, other={"a": 1.0})
_crashes = functools.partial(cut_script, crash=True)
_large = functools.partial(secret_word_script, word=[1000.0, 0.0], other=[0.5, 0.0])
_bad_batches = functools.partial(batch_script, malformed=True)


def _saved_batches(seed: int) -> Script:
    return [*batch_script(seed, parts=4), Disk(True)]  # it is saved, and the disk works


def _quiet(seed: int) -> Script:
    """Rounds that nobody labels."""
    return [Ask([i / 40, 0.5], f"person {i}") for i in range(40)]


_WORDS = r"drew \d+ words, and its copies, polls, gates and halting draws take \d+"
_COUNT = r"the count of unsure answers"
_OTHER = r"a lesson or a reset that was not its own changed it"
_TABLE = r"it said \w+ in a live round, which votes \(.*\), word, table and cap do not"
_HALT = r"it halted, and the halting word against the table at the count says otherwise"
_BEGAN = r"a halt may begin in a question only"
_VOTES = r"were counted, and the copies that its poll names voted"
_HOLDS = r"holds other sums than the labels that came"
_SUMS = rf"node \d+ {_HOLDS}"
_DUE = r"node \d+ was due by the number of rounds, and was not released|was released, and by the number of rounds"
_AGAIN = r"what it taught would be taught again"
_NOISE = r"node \d+ is not its sums with the noise that was drawn for it"
_EVERYBODY = r"what everybody sees|everybody sees \d+ rounds"

REPLAYS = [
    # copies that are not apart
    ReplayHunt("the label goes to two copies", rf"copy \d+: {_OTHER}", copies.TeachesTwo),
    ReplayHunt(
        "the label goes to two copies, compiled", rf"copy \d+: {_OTHER}", copies.TeachesTwoCompiled, script=batch_script
    ),
    ReplayHunt("labels go to the copies in turn", rf"copy \d+: {_OTHER}", copies.RoutesInTurn, script=one_label_script),
    ReplayHunt("the question decides whose lesson it is", rf"copy \d+: {_OTHER}", copies.RoutesByQuestion),
    ReplayHunt("predict changes every copy", r"copy \d+: a question changed it", copies.NoRewind),
    ReplayHunt(
        "answers are taught, compiled", r"copy \d+: a question changed it", copies.NoRewindCompiled, script=batch_script
    ),
    ReplayHunt("questions teach without labels", r"copy \d+: a question changed it", copies.ScalesByQuestions),
    ReplayHunt(
        "copies share a random stream",
        r"copy \d+: its memory .* share a random stream",
        learner=copies.SharedStream(),
        sound=LogisticRegression(),
    ),
    ReplayHunt(
        "copies share a memory",
        r"copy \d+: its vote .* reads what copies share",
        learner=copies.SharedMemory(),
        sound=LogisticRegression(),
    ),
    ReplayHunt("a shared scaler in front", r"encoded in two ways: something that learns", settings=_scaler),
    ReplayHunt("a shared vocabulary", r"changed by the unit.*a vocabulary", settings=_vocabulary, script=_words),
    ReplayHunt("a batch is scaled as a whole", _VOTES, copies.BatchScaled, script=batch_script),
    ReplayHunt("forgetting resets two copies", rf"copy \d+: {_OTHER}", copies.ResetsTwo),
    ReplayHunt("a batch of records ends at a bad row", r"copy \d+: its memory differs", copies.TeachStopsAtTheFirst),
    ReplayHunt("a batch of labels ends at a bad one", r"copy \d+: its memory differs", copies.LearnStopsAtTheFirst),
    # what others see
    ReplayHunt("answers show the last label taught", r"not the top label|fallback answered", seen.ShowsTheLastLabel),
    ReplayHunt(
        "answers show the last label taught, compiled",
        r"not the top label",
        seen.ShowsTheLastLabelCompiled,
        script=batch_script,
    ),
    ReplayHunt("the fallback is the majority label", r"fallback answered .* it is not public", seen.MajorityFallback),
    ReplayHunt(
        "the fallback is the copies' label",
        r"where the fallback, which is public, says",
        seen.CopiesAsFallback,
        settings=_constant,
    ),
    ReplayHunt("silence that ends on a count of labels", _WORDS, seen.SilentByLabels),
    ReplayHunt("tickets evicted by count", r"what others see|the error that others see", seen.EvictsByCount, first=1),
    ReplayHunt(
        "an exception shown to its asker",
        r"the error that others see is .*ArithmeticError",
        seen.ShowsExceptions,
        learner=seen.Touchy(),
        script=_large,
        first=1,
    ),
    ReplayHunt(
        "errors that count others' labels", r"what others see|the error that others see", seen.ErrorsTellOfOthers
    ),
    ReplayHunt("a reset that others notice", r"the error that others see", seen.TellsOfForgetting, first=2),
    ReplayHunt("a bad row refuses its batch", r"0 words", seen.BatchRefused, script=_bad_batches),
    ReplayHunt("a count that is shown", _EVERYBODY, seen.ShowsTheCount),
    ReplayHunt("a guarantee that follows the count", r"what everybody sees", seen.ShowsSpending, first=1),
    ReplayHunt(
        "a monitor that follows what can be read",
        r"which rounds the monitor counts hangs on private data",
        seen.WatchesReadable,
        settings=_monitored,
        script=lambda seed: watched_script(),
    ),
    ReplayHunt("a monitor that ticks where it can be read", r"the monitor's ticks are", seen.TicksWhereReadable),
    ReplayHunt(
        "a monitor of the taught copies",
        r"which rounds the monitor counts|monitor's inputs differ",
        seen.WatchesTheTaught,
        settings=_monitored,
        first=4,
    ),
    # coins, counts and halts
    ReplayHunt("the same poll in every round", _WORDS, coins.SamePoll),
    ReplayHunt("one poll for a whole batch", _WORDS, coins.OnePollABatch, script=batch_script),
    ReplayHunt("one poll for a block, compiled", _VOTES, compiled.OnePollABlock, script=batch_script),
    ReplayHunt("a poll without majority is drawn again", _WORDS, coins.PollsAgain),
    ReplayHunt("only taught copies are polled", f"{_WORDS}|{_VOTES}", coins.PollsTheTaught),
    ReplayHunt("the wrong inequality", _TABLE + f"|{_COUNT}", coins.WrongInequality),
    ReplayHunt(
        "the wrong inequality, compiled", _TABLE + f"|{_COUNT}", compiled.WrongInequalityCompiled, script=batch_script
    ),
    ReplayHunt("a gate chosen by a count of labels", _TABLE + f"|{_COUNT}", coins.GateByLabels),
    ReplayHunt(
        "a gate chosen by a count of labels, compiled",
        _TABLE + f"|{_COUNT}",
        compiled.GateByLabelsCompiled,
        script=batch_script,
    ),
    ReplayHunt("no gate word where the margin is large", _WORDS, coins.NoWordWhereClear),
    ReplayHunt("the fallback's coin from the polls' stream", _WORDS, coins.CoinOfTheSameStream),
    ReplayHunt("no cap", rf"{_COUNT} grew by 1, and 0 .*capped", coins.Uncapped),
    ReplayHunt("no cap, compiled", rf"{_COUNT} grew by .*capped", compiled.UncappedCompiled, script=batch_script),
    ReplayHunt("capped rounds are counted", rf"{_COUNT} grew by 1, and 0 .*capped", coins.CountsCapped),
    ReplayHunt("malformed rounds are counted", rf"{_COUNT} grew by .*malformed", coins.CountsMalformed),
    ReplayHunt(
        "shares are not counted, compiled", r"the shares of people", compiled.SharesNotCounted, script=batch_script
    ),
    ReplayHunt(
        "labels that agree give the count back", rf"{_COUNT} moved in a step that asks nothing", coins.RefundsAgreement
    ),
    ReplayHunt(
        "labels that agree give the count back, compiled",
        rf"{_COUNT} grew by",
        compiled.RefundsAgreementCompiled,
        script=batch_script,
    ),
    ReplayHunt("no halting draw for capped rounds", _WORDS, coins.NoDrawWhereCapped),
    ReplayHunt("no halting draw for sure rounds", _WORDS, coins.NoDrawWhereSure),
    ReplayHunt("no halting draw for malformed questions", _WORDS, coins.NoDrawWhereMalformed),
    ReplayHunt(
        "no halting draw for malformed questions, compiled",
        rf"{_WORDS}|{_VOTES}",
        compiled.NoDrawWhereMalformedCompiled,
        script=_bad_batches,
    ),
    ReplayHunt("no poll for malformed questions", _WORDS, coins.NoPollForMalformed),
    ReplayHunt("a wrong shape skips the draws", _WORDS, coins.WrongShape, script=shape_script),
    ReplayHunt("a malformed question takes no round", _WORDS + r"|rounds were taken", coins.NoRoundForMalformed),
    ReplayHunt(
        "malformed rows leave their batch", _WORDS + r"|rounds were taken", coins.NoRoundInBatches, script=_bad_batches
    ),
    ReplayHunt("a halt when one record is taught", _BEGAN, coins.HaltsOnARecord),
    ReplayHunt("a halt on a count of wrong labels", _HALT, coins.HaltsOnWrongLabels),
    ReplayHunt("rounds that end on a count of wrong labels", r"as if its rounds were over", coins.HaltsTheRounds),
    ReplayHunt("a halt at unsure + 30·labels", _HALT, coins.HaltsOnLabels),
    ReplayHunt(
        "a halt at unsure + 30·labels, compiled",
        rf"{_HALT}|{_VOTES}",
        compiled.HaltsOnLabelsCompiled,
        script=batch_script,
    ),
    ReplayHunt(
        "a chunk goes on after its halt, compiled",
        r"rounds were taken, and \d+ were to be taken",
        compiled.GoesOnToTheEnd,
        settings=_halting,
        script=batch_script,
    ),
    # what is durable
    ReplayHunt(
        "rounds taken after the guide learned, interrupted", _AGAIN, guides.TakesRoundsAfterwards, settings=_guided,
        script=cut_script,
    ),
    ReplayHunt(
        "rounds taken after the guide learned, crashed", _AGAIN, guides.TakesRoundsAfterwards, settings=_ranged,
        script=_crashes,
    ),
    ReplayHunt(
        "bad records take no row", r"the guide has \d+ sums after 3 rounds, and \d+ were released in 4",
        guides.DropsBadRecords, settings=_taught, script=history_script,
    ),
    ReplayHunt("a resume that forgets", r"forgot what was spent", disk.ForgetsSpending, script=_loads),
    ReplayHunt("randomness restored", r"brought back randomness", disk.RestoresCoins, script=_loads),
    ReplayHunt(
        "a load remembers the forgotten",
        r"brought back what it knew of a person who was forgotten",
        disk.RevivesTheForgotten,
        script=crash_script,
    ),
    ReplayHunt(
        "a load takes tickets of the forgotten",
        r"a ticket that was used, or whose person was forgotten",
        disk.RevivesTickets,
        script=crash_script,
    ),
    ReplayHunt(
        "a load takes used tickets again",
        r"a ticket that was used, or whose person was forgotten",
        disk.RevivesUsedTickets,
        script=crash_script,
    ),
    ReplayHunt("entries where unsure only", r"0 entries were written", disk.WritesWhereUnsure, script=_loads),
    ReplayHunt(
        "entries that name the answered only",
        r"the entry names others than those who asked",
        disk.EntersTheAnswered,
        settings=_halting,
        script=_saved_batches,
    ),
    ReplayHunt(
        "a label's failed write stops everybody",
        r"the error that others see is .*could not be written",
        disk.LabelsStopEverybody,
        script=disk_script,
    ),
    ReplayHunt(
        "a failed write is passed over",
        r"answered though what was spent could not be written",
        disk.FailsOpen,
        script=disk_script,
    ),
    ReplayHunt(
        "answers leave before they are durable",
        r"over before what it spent was durable",
        disk.AnswersBeforeDurable,
        script=_loads,
    ),
    ReplayHunt(
        "a halt is seen before it is durable",
        r"a halt could be seen before it was durable",
        disk.HaltBeforeDurable,
        settings=_halting,
        script=_saved_batches,
    ),
    # the guide
    ReplayHunt("a guide's cap ignored", _SUMS, guides.CapIgnored, settings=_guided),
    ReplayHunt("gradients at exact sums", _SUMS, guides.GradientsAtExactSums, settings=_guided),
    ReplayHunt("a range counted twice a person", rf"ranges 0 {_HOLDS}", guides.CountsRowsTwice, settings=_ranged),
    ReplayHunt("leaves cut by labels", _DUE, guides.LeavesByLabels, settings=_guided),
    ReplayHunt("empty leaves left out", _DUE, guides.SkipsEmptyLeaves, settings=_guided, script=_quiet),
    ReplayHunt("one noise for two nodes", _NOISE, guides.NoiseTwice, settings=_guided),
    ReplayHunt("half of a node's noise", _NOISE, guides.HalfNoise, settings=_guided),
    ReplayHunt(
        "a node redrawn after a load",
        r"the guide has \d+ sums after \d+ rounds, and \d+ were released|the sums released fell",
        guides.RedrawsANode,
        settings=_guided,
        script=_loads,
    ),
    ReplayHunt(
        "a ticket taught again after a crash",
        rf"a ticket that was used|{_HOLDS}",
        disk.RevivesUsedTickets,
        settings=_guided,
        script=crash_script,
    ),
    ReplayHunt(
        "a node used before it is durable",
        r"a sum was used before it was durable",
        guides.UsedBeforeDurable,
        settings=_guided,
        script=_loads,
    ),
    ReplayHunt("a step from the data", r"θ is not what released sums", guides.StepFromLabels, settings=_guided),
    ReplayHunt(
        "a batch product whose last bit depends on other rows",
        r"a row's score in a batch is not, bit for bit",
        guides.BatchProduct,
        settings=_guided,
        script=batch_script,
    ),
    ReplayHunt("a map of exact counts", r"the guide's map is not the one", guides.MapOfExactCounts, settings=_ranged),
    # the lean
    ReplayHunt("a second poll for the lean", _WORDS, leans.PollsForTheLean, settings=_leaning),
    ReplayHunt(
        "a lean in capped rounds",
        r"where the fallback, which is public, says|it named lean as its source, and it is fallback",
        leans.LeansWhereCapped,
        settings=_leaning_alone,
    ),
    ReplayHunt(
        "the lean's probabilities shown", r"what others see .*'odds'", leans.ShowsTheOdds, settings=_leaning_alone
    ),
    ReplayHunt(
        "offsets of a batch product",
        r"the lean's offsets come from scores that are not, bit for bit",
        leans.OffsetsOfAProduct,
        settings=_leaning,
        script=batch_script,
    ),
]
