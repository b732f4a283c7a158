"""The games: their rules, and who sees what."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

import confide
from confide.games import (
    BOTTOM,
    AdaptiveInput,
    AdaptiveQuery,
    Batch,
    ChallengeATGame,
    CompositionGame,
    GeneralGame,
    Input,
    Label,
    OnData,
    OnlineGame,
    Phase,
    Query,
    RandomAdversary,
    Record,
    Records,
    Round,
    RuleBroken,
    Seen,
    SplitVote,
    Start,
)
from confide.pop.base import Answer
from confide.privacy.counters import TreeCounter
from confide.privacy.sparse import AboveThreshold, ChallengeAT

PLAN = confide.Plan.tight(8, 1e-6, 300, copies=160, polls=160, unsure=20, silent=0, beta=1e-6, guide=None)


class Script:
    """Plays given moves, and keeps what it was sent."""

    def __init__(self, *moves: Any) -> None:
        self.moves, self.sent = moves, []  # type: ignore[var-annotated]

    def play(self, coins: np.random.Generator) -> Generator[Any, Any, None]:
        for move in self.moves:
            self.sent.append((yield move))


class Parrot:
    """A stranger's mechanism: answers how often it was asked, and keeps whatever it was told."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.told: list[Any] = []

    def predict(self, x: Any, unit: str | None = None) -> Answer:
        self.asked.append((x, unit))
        return Answer(len(self.asked), True, f"{len(self.asked)}")

    def learn(self, ticket: str, y: Any) -> None:
        self.told.append((ticket, y))

    def teach(self, x: Any, y: Any, unit: str | None = None) -> None:
        self.told.append((x, y, unit))


def online(*moves: Any, bit: int = 0, rounds: int = 50, challenges: int = 1) -> tuple[Any, Script, Parrot]:
    parrot, script = Parrot(), Script(*moves)
    view = OnlineGame(lambda: parrot, script, rounds, challenges).play(bit)
    return view, script, parrot


@pytest.mark.parametrize("bit", [0, 1])
def test_the_mechanism_gets_its_bits_input_and_the_adversary_sees_nothing_of_it(bit: int) -> None:
    view, script, parrot = online(
        Round(("a", 0)), Round(("b", 0), ("c", 1), challenge=True), Round(("d", None)), Label(3, 1), bit=bit
    )
    assert parrot.asked == [("a", None), ("bc"[bit], None), ("d", None)]
    assert parrot.told == [("1", 0), ("2", bit), ("3", 1)]
    assert view.answers == [Seen(1, True), BOTTOM, Seen(3, True)]
    assert script.sent == [Seen(1, True), BOTTOM, Seen(3, True), None]


@pytest.mark.parametrize("bit", [0, 1])
def test_people_late_labels_records_and_batches(bit: int) -> None:
    view, _, parrot = online(
        Round(("a", None), ("b", None), challenge=True, unit="alice"),
        Batch(["c", "d"], units=["bob", "eve"]),
        Batch(["e"], [7], ["eve"]),
        Label(1, 0, 1),
        Record(None, ("x", 1), challenge=True, unit="alice"),
        Records(["y"], [0], ["bob"]),
        bit=bit,
    )
    assert parrot.asked == [("ab"[bit], "alice"), ("c", "bob"), ("d", "eve"), ("e", "eve")]
    taught = [("x", 1, "alice")] if bit else []
    assert parrot.told == [("4", 7), ("1", bit), *taught, ("y", 0, "bob")]
    assert view.answers == [BOTTOM, Seen(2, True), Seen(3, True), Seen(4, True)]


@pytest.mark.parametrize(
    "moves",
    [
        [Round(("a", 0), ("b", 0))],  # unequal inputs, no challenge
        [Round((np.zeros(2), 0), (np.array([0.0, 1.0]), 0))],
        [Round(("a", 0), ("a", 1), challenge=True)] * 2,  # one challenge too many
        [Round(("a", 0), ("b", 0), challenge=True), Record(("a", 0), ("b", 0), challenge=True)],
        [Round(("a", 0), ("b", 0), challenge=True, unit="alice"), Round(("a", 0), unit="alice")],
        [Round(("a", 0), unit="alice"), Round(("a", 0), ("b", 0), challenge=True, unit="alice")],
        [Round(("a", 0), ("b", 0), challenge=True, unit="alice"), Batch(["a"], units=["alice"])],
        [Round(("a", 0), ("b", 0), challenge=True, unit="alice"), Records(["a"], [0], ["alice"])],
        [Round(("a", None)), Label(1, 0, 1)],  # unequal labels of a visible round
        [Round(("a", 0)), Label(1, 0)],  # a second label
        [Label(1, 0)],  # a round that has not been
        ["a move"],
        [Round("a")],
    ],
)
@pytest.mark.parametrize("bit", [0, 1])
def test_an_adversary_that_breaks_a_rule_is_refused(moves: list[Any], bit: int) -> None:
    with pytest.raises(RuleBroken):
        online(*moves, bit=bit)


def test_equal_arrays_are_equal_inputs_and_g_challenges_are_allowed() -> None:
    x = np.arange(3.0)
    challenges = [Round((x, 0), (x + 1, 0), challenge=True)] * 2
    view, *_ = online(Round((x, 0), (x.copy(), 0)), *challenges, challenges=2)
    assert view.answers.count(BOTTOM) == 2
    view, *_ = online(*[Round((1, 0), (2, 0), challenge=True, unit="alice")] * 5)  # one person, any number of rounds
    assert view.answers == [BOTTOM] * 5


def test_a_game_ends_after_its_rounds() -> None:
    view, _, parrot = online(Batch(list(range(9))), Round((1, 1)), rounds=5)
    assert len(view.answers) == len(parrot.asked) == 5


def make_pop() -> confide.POP:
    return confide.POP(SplitVote(), PLAN, labels=[0, 1], features=2, fallback=0, after_halt="raise")


@pytest.mark.parametrize("labels", [False, True])
def test_a_halt_is_seen_and_ends_the_game(labels: bool) -> None:
    ties = np.tile([0.5, 0.0], (40, 1))
    batch = Batch(ties, np.ones(40, dtype=int) if labels else None)
    view = OnlineGame(make_pop, Script(*[batch] * 10), 300).play(0)
    assert view.halted and 20 < len(view.answers) <= PLAN.halting.stop  # type: ignore[union-attr]
    assert not any(answer.sure or answer.error for answer in view.answers)
    one_by_one = OnlineGame(make_pop, Script(*[Round(((0.5, 0.0), None))] * 300), 300).play(0)
    assert one_by_one.halted and 20 < len(one_by_one.answers) <= PLAN.halting.stop  # type: ignore[union-attr]


def test_malformed_questions_show_their_error_to_their_asker_only() -> None:
    hidden = Round((("x", 0.0), 1), ((0.5, 0.0), 1), challenge=True)
    for bit in (0, 1):
        view = OnlineGame(make_pop, Script(Round((("x", 0.0), None)), hidden), 300).play(bit)
        assert view.answers[0].error is not None and view.answers[1] is BOTTOM


def test_split_vote_splits_as_x_says_and_learns_from_whole_turns_only() -> None:
    pop = make_pop()
    for share, turn in ((0.5, 0.0), (100 / 160, 0.25), (1.0, 0.5), (0.0, 77 / 160)):
        pop.learn(pop.predict([share, turn]).ticket, 1)
        assert pop.operator.counts is not None and pop.operator.counts[1] == round(160 * share)
    answer = pop.predict([0.0, 1.0])
    pop.learn(answer.ticket, 1)
    pop.predict([0.0, 0.3])
    assert pop.operator.counts is not None and pop.operator.counts[1] == 1


def test_adaptive_query() -> None:
    def make(data: Any) -> OnData:
        return OnData(data, AboveThreshold(epsilon=8, delta=1e-6, threshold=100, reports=2))

    script = Script(Start([0, 1], [0, 2]), *[Query(sum), Query(lambda data: 10_000)] * 3)
    view = AdaptiveQuery(make, script, 50).play(1)
    assert view.answers == [False, True, False, True] and view.halted
    for start in (Start([0, 1], [1, 2]), Start([0], [0, 1, 2]), Query(sum)):
        with pytest.raises(RuleBroken):
            AdaptiveQuery(make, Script(start, Query(sum)), 50).play(0)
    with pytest.raises(RuleBroken):
        AdaptiveQuery(make, Script(Start([0], [1]), Query(sum, max, challenge=True)), 50).play(0)


def test_adaptive_input_shows_the_challenge_too() -> None:
    def make() -> TreeCounter:
        return TreeCounter(1000, 8)

    script = Script(Input(1), Input(0, 1, challenge=True), Input(1))
    assert [AdaptiveInput(make, script, 8).play(bit).answers for bit in (0, 1)] == [[1, 1, 2], [1, 2, 3]]
    for moves in ([Input(0, 1)], [Input(0, 1, challenge=True)] * 2, [Round((1, 1))]):
        with pytest.raises(RuleBroken):
            AdaptiveInput(make, Script(*moves), 8).play(0)


def test_challenge_at_game() -> None:
    def make(data: Any) -> OnData:
        return OnData(data, ChallengeAT(epsilon=8, delta=1e-6, threshold=0, reports=20, rounds=50))

    far = Query(lambda data: -(10**6), lambda data: 10**6, challenge=True)
    start, plain = Start([0], [1]), Query(lambda data: 10**6 + data[0])
    assert ChallengeATGame(make, Script(start, plain, far, plain), 50).play(1).answers == [True, BOTTOM, True]
    steep = Query(lambda data: 2 * data[0])
    for moves in ([steep], [far, far], [Query(lambda data: 0, lambda data: 1)], [Input(1)]):
        with pytest.raises(RuleBroken):
            ChallengeATGame(make, Script(start, *moves), 50).play(0)
    assert ChallengeATGame(make, Script(start, steep), 50, sensitivity=2).play(0).answers != []


def test_general_game_hides_a_whole_interaction() -> None:
    def ask(session: Any) -> list[Any]:
        answer = session.predict("a")
        session.learn(answer.ticket, 1)
        session.teach("b", answer.label)
        return [answer.label, session.predict("c").label]

    def other(session: Any) -> list[Any]:
        return [session.predict("d"), session.predict("e")]

    phases = Phase(ask, unit="bob"), Phase(ask, other, challenge=True, asks=2, unit="alice"), Phase(ask, unit="eve")
    for bit in (0, 1):
        parrot = Parrot()
        view = GeneralGame(lambda parrot=parrot: parrot, Script(*phases), 9).play(bit)  # type: ignore[misc]
        assert view.answers == [[1, 2], BOTTOM, [5, 6]]
        assert len(parrot.told) == (6, 4)[bit]
    once = Phase(ask, lambda session: session.predict("a"), challenge=True, asks=2)
    for moves in ([Phase(ask, other)], [phases[1], Phase(ask, other, challenge=True, asks=2)], [once], [phases[0]] * 2):
        with pytest.raises(RuleBroken):
            GeneralGame(Parrot, Script(*moves), 9).play(1)


def test_composition_game_plays_all_games_with_one_bit() -> None:
    inner = Script(Round((0, 0), (1, 1), challenge=True), Round((5, None)))
    parrots: list[Parrot] = []

    def make() -> Parrot:
        parrots.append(Parrot())
        return parrots[-1]

    game = OnlineGame(make, inner, 5)
    view = CompositionGame(Script(game, game, game), 2).play(1)
    assert len(view.answers) == 2 and all(parrot.asked[0] == (1, None) for parrot in parrots)
    with pytest.raises(RuleBroken):
        CompositionGame(Script(OnlineGame(make, inner, 5, challenges=2)), 2).play(0)


def test_a_random_adversary_poses_one_challenge_and_its_coins_are_its_own() -> None:
    adversary = RandomAdversary(20, 2)
    moves = [[*adversary.play(np.random.default_rng(seed))] for seed in (1, 1, 2)]
    assert sum(move.challenge for move in moves[0]) == 1
    assert [m.challenge for m in moves[0]] == [m.challenge for m in moves[1]] != [m.challenge for m in moves[2]]
