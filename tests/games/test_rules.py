"""The rules of the games where they are easily got round: names, challenges, equality, refusals, halts in batches."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import confide
from confide.errors import Halted
from confide.games import (
    BOTTOM,
    AdaptiveInput,
    AdaptiveQuery,
    Batch,
    ChallengeATGame,
    GeneralGame,
    Input,
    Label,
    OnData,
    OnlineGame,
    Phase,
    Query,
    Record,
    Records,
    Round,
    RuleBroken,
    Seen,
    SplitVote,
    Start,
    View,
)
from confide.games.moves import same
from confide.planning.guarantee import Guarantee
from confide.pop.base import Answer, Mechanism
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


def make_pop(units: Any = "rounds") -> confide.POP:
    return confide.POP(
        SplitVote(), PLAN, labels=[0, 1], features=2, fallback=0, units=units, seed=3, after_halt="raise"
    )


def play(*moves: Any, bit: int = 0, units: Any = "rounds", make: Any = None) -> View:
    return OnlineGame(make or (lambda: make_pop(units)), Script(*moves), 300).play(bit)


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize("first, other", [("alice", b"alice"), (b"alice", "alice"), ("Zoë", "Zoë".encode())])
def test_a_name_and_its_bytes_are_one_person(first: Any, other: Any) -> None:
    """POP reads both as one person, so the rules must: else the adversary asks, visibly, as the challenged one."""
    assert make_pop("people").operator.loop.routing.who(first) is not None
    x = (0.5, 0.0)
    hidden = Round((x, 1), (x, 0), challenge=True, unit=first)
    for visible in (Round((x, 1), unit=other), Batch([x], units=[other]), Batch([x], [1], [other])):
        with pytest.raises(RuleBroken, match="challenged person"):
            play(hidden, visible, units="people")
        with pytest.raises(RuleBroken, match="challenged person"):
            play(visible, hidden, units="people")
    for record in (Record((x, 1), unit=other), Records([x], [1], [other])):
        with pytest.raises(RuleBroken, match="challenged person"):
            play(hidden, record, units="people")
    again = Round((x, 1), (x, 0), challenge=True, unit=other)
    assert play(hidden, again, units="people").answers == [BOTTOM, BOTTOM]  # one challenged person, not two
    phase = Phase(lambda session: session.predict(x).sure, unit=first)
    with pytest.raises(RuleBroken, match="new user"):
        game = GeneralGame(lambda: make_pop("people"), Script(phase, Phase(phase.first, unit=other)), 9)
        game.play(0)


@pytest.mark.parametrize("unit", [7, 1.5, ("alice",)])
def test_a_name_is_text_or_bytes(unit: Any) -> None:
    with pytest.raises(RuleBroken, match="str or bytes"):
        play(Round(((0.5, 0.0), 1), unit=unit), units="people")


# ---------------------------------------------------------------------- challenges


@pytest.mark.parametrize("challenge", [-1, 0.1, 2, 1, "yes", None, np.int64(1)])
def test_a_challenge_is_yes_or_no(challenge: Any) -> None:
    """−1 would buy a challenge back, and 0.1 ten for one."""
    x = (0.5, 0.0)
    for move in (Round((x, 1), (x, 0), challenge), Record((x, 1), (x, 0), challenge)):
        with pytest.raises(RuleBroken, match="True or False"):
            play(move)
    start = Start([0], [1])
    query = Query(lambda data: 0, lambda data: 1, challenge)
    threshold = AboveThreshold(epsilon=8, delta=1e-6, threshold=100, reports=2)
    with pytest.raises(RuleBroken):
        AdaptiveQuery(lambda data: OnData(data, threshold), Script(start, query), 9).play(0)
    challenged = ChallengeAT(epsilon=8, delta=1e-6, threshold=0, reports=20, rounds=50)
    with pytest.raises(RuleBroken):
        ChallengeATGame(lambda data: OnData(data, challenged), Script(start, query), 9).play(0)
    with pytest.raises(RuleBroken):
        AdaptiveInput(lambda: TreeCounter(1000, 8), Script(Input(0, 1, challenge)), 9).play(0)
    with pytest.raises(RuleBroken):
        talk = Phase(lambda session: 1, lambda session: 2, challenge)
        GeneralGame(make_pop, Script(talk), 9).play(0)


def test_numpys_booleans_are_booleans() -> None:
    hidden = Round(((0.5, 0.0), 1), ((0.5, 0.0), 0), challenge=np.bool_(True))  # type: ignore[arg-type]
    assert play(hidden).answers == [BOTTOM]


# ---------------------------------------------------------------------- equal inputs

NAN = np.array([np.nan, 1.0])


@pytest.mark.parametrize(
    "first, second",
    [
        (0.0, -0.0),
        (np.array([0.0]), np.array([-0.0])),
        ((1, 0.0), (1, -0.0)),
        ({"a": 0.0}, {"a": -0.0}),
        (1, True),
        (1, 1.0),
        (np.zeros(1), np.zeros(1, dtype=np.float32)),
        (np.zeros((1, 2)), np.zeros(2)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ("a", b"a"),
        ([1], (1,)),
    ],
)
def test_different_inputs_are_different(first: Any, second: Any) -> None:
    assert not same(first, second) and not same(second, first)
    with pytest.raises(RuleBroken, match="differ"):
        play(Round((first, 1), (second, 1)))


@pytest.mark.parametrize(
    "first, second",
    [
        (NAN, NAN.copy()),
        (float("nan"), float("nan")),
        ([1, (2.0, "a")], [1, (2.0, "a")]),
        ({"a": NAN}, {"a": NAN.copy()}),
        (np.array(["a", None], dtype=object), np.array(["a", None], dtype=object)),
        (np.float64(0.5), np.float64(0.5)),
    ],
)
def test_equal_inputs_are_equal(first: Any, second: Any) -> None:
    assert same(first, second) and same(second, first)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("bad", [(("x", 0.0), 1), ((0.5, 0.0), 7), (("x",), 1)])
def test_a_hidden_record_that_is_refused_is_seen_at_neither_bit(bad: Any) -> None:
    for pair in ((None, bad), (bad, None), (bad, ((0.5, 0.0), 1))):
        views = [play(Record(*pair, challenge=True), Round(((1.0, 0.0), None)), bit=bit) for bit in (0, 1)]
        assert [len(view.answers) for view in views] == [1, 1]
        assert [view.errors for view in views] == [[], []]
    script = Script(Record(bad), Round(((1.0, 0.0), None)))
    view = OnlineGame(make_pop, script, 9).play(0)
    assert view.errors == [(0, script.sent[0])] and view.errors[0][1]  # somebody under control is told


def test_a_hidden_record_must_be_a_record_at_both_bits() -> None:
    for bit in (0, 1):
        with pytest.raises(RuleBroken, match="pair"):
            play(Record(None, "no pair", challenge=True), bit=bit)  # type: ignore[arg-type]


def test_a_refused_label_is_its_bringers() -> None:
    script = Script(Round(((1.0, 0.0), 7)), Round(((1.0, 0.0), None)), Label(2, "no label"))
    view = OnlineGame(make_pop, script, 9).play(0)
    assert [at for at, _ in view.errors] == [0, 2] and script.sent[2] == view.errors[1][1]
    hidden = Round(((1.0, 0.0), 7), ((1.0, 0.0), 1), challenge=True)
    assert all(play(hidden, bit=bit).errors == [] for bit in (0, 1))


def test_a_hidden_interaction_that_is_refused_ends_quietly() -> None:
    def good(session: Any) -> None:
        session.predict((1.0, 0.0))

    def bad(session: Any) -> None:
        session.predict((1.0, 0.0))
        session.teach(("x", 0.0), 1)

    for bit in (0, 1):
        view = GeneralGame(make_pop, Script(Phase(good, bad, challenge=True), Phase(good)), 9).play(bit)
        assert view.answers == [BOTTOM, None]


# ---------------------------------------------------------------------- queries


def test_adaptive_queries_have_the_sensitivity_that_was_agreed() -> None:
    def make(data: Any) -> OnData:
        return OnData(data, AboveThreshold(epsilon=8, delta=1e-6, threshold=100, reports=2))

    start, steep = Start([0], [1]), Query(lambda data: 1000 * data[0])
    for bit in (0, 1):
        with pytest.raises(RuleBroken, match="differs by 1000"):
            AdaptiveQuery(make, Script(start, steep), 9).play(bit)
        with pytest.raises(RuleBroken, match="differs by nan"):
            AdaptiveQuery(make, Script(start, Query(lambda data: float("nan"))), 9).play(bit)
    assert AdaptiveQuery(make, Script(start, steep), 9, sensitivity=1000).play(1).answers == [True]


# ---------------------------------------------------------------------- batches


class Three:
    """Any mechanism: takes three rounds, and cannot read None."""

    labels, units, halt_reason, guarantee = (0, 1), "rounds", None, Guarantee(1.0, 1e-6)

    def __init__(self) -> None:
        self.rounds, self.told = 0, []  # type: ignore[var-annotated]

    @property
    def state(self) -> str:
        return "halted" if self.rounds >= 3 else "live"

    def predict(self, x: Any, unit: Any = None) -> Answer:
        if self.rounds >= 3:
            raise Halted("it has halted")
        self.rounds += 1
        if x is None:
            raise ValueError("x cannot be read")
        return Answer(x, True, f"{self.rounds}")

    def learn(self, ticket: str, y: Any) -> None:
        self.told.append((ticket, y))

    def teach(self, x: Any, y: Any, unit: Any = None) -> None: ...

    def predict_many(self, xs: Any, units: Any = None) -> list[Answer]:
        answers = []
        for x in xs:
            try:
                answers.append(self.predict(x))
            except (ValueError, Halted) as error:
                answers.append(Answer(None, False, "", str(error)))
        return answers

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Any]) -> None: ...

    def teach_many(self, xs: Any, ys: Sequence[Any], units: Any = None) -> None: ...


READ = "x cannot be read"


def test_malformed_rows_before_a_halt_are_seen() -> None:
    assert isinstance(Three(), Mechanism)
    for rows, seen in (
        ([0, None, None, 1, 1], [Seen(0, True), Seen(None, False, READ), Seen(None, False, READ)]),
        ([0, 1, 0, None, None], [Seen(0, True), Seen(1, True), Seen(0, True)]),
    ):
        view = play(Batch(rows), make=Three)
        assert view.answers == seen and view.halted
        one_by_one = play(*(Round((x, None)) for x in rows), make=Three)
        assert one_by_one.answers == seen and one_by_one.halted


def test_any_mechanism_plays_a_labelled_batch() -> None:
    made = Three()
    view = play(Batch([0, None, 1, 1], [1, 1, 0, 0]), make=lambda: made)
    assert view.answers == [Seen(0, True), Seen(None, False, READ), Seen(1, True)] and view.halted
    assert made.told == [("1", 1), ("3", 0)]


def test_a_pop_shows_what_was_malformed_in_a_labelled_batch() -> None:
    rows = np.array([[1.0, 0.0], ["x", 0.0], [1.0, 0.0]], dtype=object)
    assert [one.label for one in play(Batch(rows, [1, 1, 1])).answers] == [1, None, 1]
    assert [one.label for one in play(Batch(rows[1:2], [1])).answers] == [None]  # also where no row can be read
    assert play(Batch(rows)).answers[1].error


@pytest.mark.parametrize("labels", [None, [1, 1, 1]])
@pytest.mark.parametrize("bit", [0, 1])
def test_a_batch_may_hold_the_challenged_unit(labels: Any, bit: int) -> None:
    made: list[confide.POP] = []

    def make() -> confide.POP:
        made.append(make_pop("people"))
        return made[-1]

    xs = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    second = {1: ((0.0, 1.0), None if labels is None else 0)}
    batch = Batch(xs, labels, ["bob", "alice", "eve"], second)
    script = Script(batch, Round(((1.0, 0.0), None), unit="bob"))
    view = OnlineGame(make, script, 9).play(bit)
    assert view.answers == [Seen(1, True), BOTTOM, Seen(1, True), Seen(1, True)]
    assert script.sent[0] == view.answers[:3]
    if labels is not None:  # alice's copy learned what she said at this bit
        ones = made[0].operator.counts
        assert ones is not None and ones[1] == (160 if bit == 0 else 159)


def test_the_rules_for_challenges_in_a_batch() -> None:
    xs, x = [(1.0, 0.0)] * 3, (0.5, 0.0)
    wrong: list[tuple[Any, ...]] = [
        (Batch(xs, [1] * 3, ["a", "b", "a"], {0: (x, 0)}),),  # a's other row is no challenge
        (Round((x, 1), unit="b"), Batch(xs, [1] * 3, ["a", "b", "c"], {1: (x, 0)})),
        (Batch(xs, [1] * 3, ["a", "b", "c"], {0: (x, 0), 1: (x, 0)}),),  # two challenged people
        (Batch(xs, None, ["a", "b", "c"], {0: (x, 0)}),),  # a label at one bit alone
        (Batch(xs, [1] * 3, ["a", "b", "c"], {3: (x, 0)}),),
        (Batch(xs, [1] * 3, ["a", "b", "c"], {0: (*x, 0)}),),  # type: ignore[dict-item]
    ]
    for moves in wrong:
        for bit in (0, 1):
            with pytest.raises(RuleBroken):
                play(*moves, units="people", bit=bit)
    twice = Batch(xs, [1] * 3, ["a", "b", "a"], {0: (x, 0), 2: (x, 0)})
    assert play(twice, units="people", bit=1).answers.count(BOTTOM) == 2
    with pytest.raises(RuleBroken, match="more than 1"):
        play(Batch(xs, [1] * 3, None, {0: (x, 0), 1: (x, 0)}))


@pytest.mark.parametrize("bad", [("x", 0.0), ("x",), None])
def test_a_hidden_row_that_is_malformed_changes_nothing_for_the_others(bad: Any) -> None:
    xs = np.array([[1.0, 0.0]] * 3)
    views = [play(Batch(xs, None, None, {1: (bad, None)}), bit=bit) for bit in (0, 1)]
    assert views[0].answers == views[1].answers == [Seen(1, True), BOTTOM, Seen(1, True)]


class Parrots(confide.POP):
    """Broken on purpose, one call at a time: it shows the last label that anybody taught."""

    last = 0

    def predict(self, x: Any, unit: Any = None) -> Answer:
        return replace(super().predict(x, unit), label=self.last)

    def learn(self, ticket: str, y: Any) -> None:
        super().learn(ticket, y)
        self.last = y


def test_what_a_mechanism_changes_for_one_call_it_plays_in_batches_too() -> None:
    """Its class inherits how POP does batches: those would not be of this mechanism, and would hide what is broken."""

    def make() -> Parrots:
        return Parrots(SplitVote(), PLAN, labels=[0, 1], features=2, fallback=0, seed=3)

    hidden = Round(((1.0, 0.0), 0), ((1.0, 0.0), 1), challenge=True)
    xs = np.array([[1.0, 0.0]] * 3)
    for bit in (0, 1):
        for batch in (Batch(xs), Batch(xs, [bit] * 3)):
            assert [one.label for one in play(hidden, batch, bit=bit, make=make).answers[1:]] == [bit] * 3
