"""Copies in several shards: the bits of one bank in one place, through deaths, lost answers and interrupts.

The shards here are threads of this process, and whatever goes wrong is made to; tests/banks/test_ray.py has the same
over Ray's actors.
"""

from __future__ import annotations

import copy
import pickle
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from confide import POP, Plan
from confide import learners as known
from confide.banks import Place, ShardedBank, Threads, bank_for, shards
from confide.banks.checks import check_bank, example_records
from confide.banks.ray import INLINE, PIECE, WORTH, Actor, Actors, chosen, place_named
from confide.banks.rounds import Cut, cut_rows
from confide.banks.shard import NOBODY, Batch, Recipe, Shard, divided
from confide.banks.shards import Lost, Unheard
from confide.data.datasets import open_stream
from confide.privacy.random import Random
from confide.runs.runner import run
from confide.runs.settings import Settings
from confide.service.config import Config, ModelConfig
from confide.service.models import open_desk

pytestmark = pytest.mark.claim("people.md")

ROUNDS = 240
DICE = np.random.default_rng(7)
XS = np.round(DICE.normal(size=(ROUNDS, 3)), 3)
YS = (XS[:, 0] + DICE.normal(size=ROUNDS) / 2 > 0).astype(np.int64)


class Forgetful:
    """A learner with a generator of its own: each lesson is heard or not, and a vote is a draw."""

    def __init__(self) -> None:
        self._dice, self._sum = random.Random(0), 0.0

    def learn(self, x: Any, y: Any) -> None:
        self._sum += (2 * y - 1) * self._dice.random()

    def predict(self, x: Any) -> int:
        return int(self._sum + self._dice.random() > 0.5)


class Hoards:
    """A learner that cannot be pickled any more once it has met a large number."""

    def __init__(self) -> None:
        self._sum = 0

    def learn(self, x: Any, y: Any) -> None:
        self._sum += 2 * y - 1
        if x[0] > 100:
            self._last = lambda: x

    def predict(self, x: Any) -> int:
        return int(self._sum > 0)


def sgd() -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(random_state=0)


def hoeffding() -> Any:
    from river.tree import HoeffdingTreeClassifier

    return HoeffdingTreeClassifier(grace_period=5)


LEARNERS: dict[str, Any] = {
    "logistic": known.LogisticRegression,
    "tree": lambda: known.DecisionTree(memory=16, warmup=2),
    "forest": lambda: known.ExtraTrees(trees=2, memory=16),
    "neighbours": lambda: known.KNNClassifier(memory=8),
    "sklearn": sgd,
    "river": hoeffding,
    "random": Forgetful,
    "hoards": Hoards,
}

PLANS = {
    "rounds": Plan.tight(200.0, 1e-2, ROUNDS, copies=60, polls=21, unsure=150, silent=30, guide=None),
    "all": Plan.tight(200.0, 1e-2, ROUNDS, copies=60, polls=60, unsure=150, silent=30, guide=None),
    "people": Plan.tight(
        60.0, 1e-2, ROUNDS, copies=60, unsure=120, silent=20, guide=None, lean="fill", units="people", unit_unsure=40
    ),
    "halts": Plan.tight(60.0, 1e-2, ROUNDS, copies=60, unsure=40, silent=20, guide=None),
    "guide": Plan.tight(200.0, 1e-2, ROUNDS, copies=60, unsure=120, silent=0, guide=0.3, lean="additive"),
}


def make(learner: str, plan: str, place: Place | None = None, **options: Any) -> POP:
    features = ["a", "b", "c"] if learner == "river" else 3
    return POP(LEARNERS[learner](), PLANS[plan], labels=[0, 1], features=features, seed=5, bank=place, **options)


def rows(pop: POP, start: int, end: int) -> tuple[Any, Any]:
    xs: Any = XS[start:end]
    if pop.named:
        xs = [dict(zip("abc", x, strict=True)) for x in xs.tolist()]
    units = [f"person {i % 37}" for i in range(start, end)] if pop.units == "people" else None
    return xs, units


def life(pop: POP, late: bool = False, step: int = 30) -> Iterator[list[Any]]:
    """All rounds, a batch at a time; labels come at once, or two batches later."""
    tickets: list[tuple[Sequence[str], Any]] = []
    for start in range(0, ROUNDS, step):
        xs, units = rows(pop, start, start + step)
        if late:
            answers = pop.predict_many(xs, units)
            tickets.append(([one.ticket for one in answers], YS[start : start + step].tolist()))
            if len(tickets) > 2:
                pop.learn_many(*tickets.pop(0))
            yield [(one.label, one.source, one.guide) for one in answers]
        else:
            done = pop.follow_many(xs, YS[start : start + step], units)
            yield list(zip(done.answers.tolist(), done.margins.tolist(), done.source.tolist(), strict=True))


def left(pop: POP) -> dict[str, Any]:
    """What a run leaves behind."""
    operator = pop.operator
    state = {name: np.asarray(value).tobytes() for name, value in operator.bank.state(trusted=True).items()}
    return {"unsure": operator.unsure, "taught": operator.taught, "failures": operator.failures, **state}


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize(
    ("learner", "plan"),
    [*((name, "rounds") for name in LEARNERS if name != "hoards"), ("tree", "all"), ("river", "all"),
     ("logistic", "people"), ("sklearn", "people"), ("tree", "guide"), ("sklearn", "guide")],
)  # fmt: skip
def test_the_bits_are_those_of_one_bank_in_one_place(learner: str, plan: str, late: bool) -> None:
    here, there = make(learner, plan), make(learner, plan, Threads(3))
    answers = [list(life(pop, late)) for pop in (here, there)]
    assert answers[0] == answers[1] and left(here) == left(there)
    assert len({label for batch in answers[0] for label, *_ in batch}) == 2, "nothing was learned: nothing is shown"


def test_a_halt_comes_in_the_same_round_and_the_same_answers_after_it() -> None:
    """Of copies that nobody hears any more, what they learn of the batch in which it came is not compared."""
    here, there = make("random", "halts"), make("random", "halts", Threads(3))
    assert list(life(here)) == list(life(there)) and here.halt_reason == there.halt_reason == "budget"
    assert here.operator.unsure == there.operator.unsure and here.operator.taught == there.operator.taught


def test_one_round_at_a_time_gives_the_same_bits() -> None:
    said = []
    for place in (None, Threads(2)):
        pop = make("tree", "people", place)
        answers = []
        for i in range(80):
            answer = pop.predict(XS[i], unit=f"person {i % 37}")
            pop.learn(answer.ticket, int(YS[i]))
            answers.append((answer.label, answer.source))
        pop.forget("person 3")
        said.append((answers, left(pop)))
    assert said[0] == said[1]


@pytest.mark.parametrize("learner", ["logistic", "river"])
def test_a_bank_in_shards_passes_every_check(learner: str) -> None:
    features = [f"f{i}" for i in range(3)] if learner == "river" else 3

    def bank(copies: int) -> ShardedBank:
        return ShardedBank(Threads(2), LEARNERS[learner](), copies, 2, features, Random(seed=1))

    check_bank(bank, example_records(features=3, names=learner == "river"))


@pytest.mark.parametrize("learner", ["tree", "sklearn"])
def test_a_state_moves_between_places(tmp_path: Path, learner: str) -> None:
    pop = make(learner, "rounds", Threads(3))
    list(life(pop))
    before = left(pop)
    pop.save(tmp_path / "pop")
    pop.close()
    given: dict[str, Any] = {"learner": LEARNERS[learner](), "trusted": True}
    for place in (None, Threads(2)):
        with POP.load(tmp_path / "pop", bank=place, rng=Random(seed=1), **given) as again:
            assert left(again) == before
            again.save(tmp_path / "pop")


# ---------------------------------------------------------------------- deaths


class Mortal(Threads):
    """Threads that are killed: before a batch comes to them, or after it and before they answer."""

    def __init__(self, shards: int = 3, shard: type[Shard] = Shard) -> None:
        super().__init__(shards)
        self.started: list[Any] = []
        self.dead: set[int] = set()
        self.doomed = self.deaf = self.held = False
        self._shard = shard

    def start(self, recipe: Recipe, own: range) -> Any:
        while self.held:
            raise Lost
        shard = self._shard(recipe, own.start, own.stop), super().start(recipe, own)[1]
        self.started.append(shard)
        return shard

    def begin(self, shards: Sequence[Any], call: str, given: Sequence[Any]) -> list[Any]:
        begun = []
        for shard, what in zip(shards, given, strict=True):
            gone = id(shard[0]) in self.dead
            one = None if gone else super().begin([shard], call, [what])[0]
            if call == "apply" and self.doomed and not gone:
                self.dead.add(id(shard[0]))
                self.doomed, one = False, one.result() and None
            begun.append((one, call))
        return begun

    def finish(self, begun: Any) -> Any:
        one, call = begun
        if one is None:
            raise Lost
        if call == "apply" and self.deaf:
            one.result()
            self.deaf = False
            raise Unheard
        return one.result()

    def kill(self) -> None:
        self.dead.add(id(self.started[-1][0]))


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices are written down often."""
    monkeypatch.setattr(shards, "EVERY", 25)
    monkeypatch.setattr(shards, "AGAIN", 0.001)


def killed(pop: POP, place: Mortal, late: bool = False) -> list[list[Any]]:
    """The same life with a death in every other batch; the rounds of these are silent."""
    bank, said = pop.operator.bank, []
    batches = life(pop, late)
    for number in range(ROUNDS // 30):
        if number % 2:
            place.doomed = number % 4 == 1
            if not place.doomed:
                place.kill()
        unsure = pop.operator.unsure
        said.append(next(batches))
        if number % 2:
            assert pop.operator.unsure == unsure, "a silent round was charged"
        bank.settle()  # type: ignore[attr-defined]
    return said


@pytest.mark.parametrize("learner", ["tree", "neighbours", "river", "random"])
def test_after_a_death_the_bits_are_the_same_again(learner: str, often: None) -> None:
    place = Mortal()
    here, there = make(learner, "rounds"), make(learner, "rounds", place)
    expected, said = list(life(here)), killed(there, place)
    assert expected[::2] == said[::2]
    assert all(margin == -1 and source == 0 for batch in said[1::2] for _, margin, source in batch)
    after, before = left(there), left(here)
    assert after.pop("failures").silent == ROUNDS // 2 and before.pop("failures").silent == 0
    assert after.pop("unsure") < before.pop("unsure") and after == before
    assert "no copy was heard" in there.operator.failures.sentence and len(place.started) == 3 + 4


def test_the_guide_answers_while_a_shard_is_dead(often: None) -> None:
    place = Mortal()
    pop = make("tree", "guide", place)
    first = pop.follow_many(XS[:120], YS[:120])
    unsure, place.held = pop.operator.unsure, True
    place.kill()
    silent = pop.follow_many(XS[120:150], YS[120:150])
    one = pop.predict(XS[150])
    pop.operator.bank.fuses = False  # type: ignore[misc]
    batch = pop.predict_many(XS[151:160])
    del pop.operator.bank.fuses
    assert set(silent.source.tolist()) == {1} and {one.source, *(each.source for each in batch)} == {"guide"}
    assert pop.operator.unsure == unsure and (silent.margins == -1).all() and (first.margins >= 0).any()
    place.held = False
    pop.operator.bank.settle()  # type: ignore[attr-defined]
    assert (pop.follow_many(XS[160:190], YS[160:190]).margins >= 0).all()


def test_a_call_that_is_cut_off_teaches_nobody_twice(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, states = Mortal.finish, []

    def interrupted(place: Mortal, begun: Any) -> Any:
        if begun[1] == "apply":
            raise KeyboardInterrupt
        return finish(place, begun)

    for cut_off in (False, True):
        bank = ShardedBank(Mortal(), LEARNERS["tree"](), 30, 2, 3, Random(seed=1))
        rows, _ = bank.encode_many(XS)
        copies = np.arange(ROUNDS) % 30
        for start in range(0, ROUNDS, 60):
            part = slice(start, start + 60)
            with monkeypatch.context() as patch:
                if cut_off and start == 120:
                    patch.setattr(Mortal, "finish", interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        bank.learn_many(copies[part], rows[part], YS[part])
                    continue
                bank.learn_many(copies[part], rows[part], YS[part])
        states.append({name: np.asarray(value).tobytes() for name, value in bank.state().items()})
    assert states[0] == states[1]


def taught(shard: type[Shard] = Shard) -> dict[str, bytes]:
    """What copies know after an answer was lost, of which nobody knew whether the shard had heard."""
    place = Mortal(2, shard)
    bank = ShardedBank(place, LEARNERS["random"](), 20, 2, 3, Random(seed=1))
    rows, _ = bank.encode_many(XS[:40])
    for start in range(0, 40, 10):
        place.deaf = True
        bank.learn_many(np.arange(start, start + 10) % 20, rows[start : start + 10], YS[start : start + 10])
    assert not bank.silent
    return {name: np.asarray(value).tobytes() for name, value in bank.state(trusted=True).items()}


def expected() -> dict[str, bytes]:
    """What they know in one place."""
    bank = bank_for(LEARNERS["random"](), 20, 2, 3, Random(seed=1))
    bank.learn_many(np.arange(40) % 20, bank.encode_many(XS[:40])[0], YS[:40])
    return {name: np.asarray(value).tobytes() for name, value in bank.state(trusted=True).items()}


class WithoutNumbers(Shard):
    """Broken on purpose: takes whatever comes."""

    def apply(self, batch: Batch) -> Any:
        self.again((batch.number - 1, ()))
        return super().apply(batch)


class SeededWithin(Shard):
    """Broken on purpose: its copies are seeded by their numbers within the shard."""

    def __init__(self, recipe: Recipe, first: int, end: int) -> None:
        super().__init__(recipe, first, end)
        bank, seed = self._bank, self._bank._seed
        bank._seed = lambda copy: seed(copy - first)  # type: ignore[method-assign]


class Abstains(ShardedBank):
    """Broken on purpose: a shard that does not answer in time has abstained."""

    silent = False  # type: ignore[assignment]


def test_a_repeated_batch_is_answered_and_not_learned_again() -> None:
    assert taught() == expected()
    assert taught(WithoutNumbers) != expected()


def test_copies_are_seeded_by_their_own_numbers() -> None:
    assert taught(SeededWithin) != expected()


def test_a_gap_is_refused() -> None:
    recipe = Recipe(known.LogisticRegression(), 4, 2, 3, None, False)
    none = np.empty(0, dtype=np.int64)
    shard, batch = Shard(recipe, 0, 2), Batch(2, [], none, none, *NOBODY, none.astype(bool))
    with pytest.raises(LookupError):
        shard.apply(batch)


@pytest.mark.parametrize(("kind", "moved"), [(ShardedBank, False), (Abstains, True)], ids=["silent", "abstains"])
def test_a_missing_shard_moves_no_margin_and_charges_nobody(kind: Any, moved: bool, often: None) -> None:
    """A deadline that abstains moves a margin by all votes of a shard: far more than one person's copy may."""
    place = Mortal(2)
    pop = make("logistic", "all", None)
    loop = pop.operator.loop
    bank = kind(place, LEARNERS["logistic"](), 60, 2, 3, Random(seed=1))
    loop.bank = bank
    loop.lessons = type(loop.lessons)(bank)
    pop.follow_many(XS[:120], YS[:120])
    unsure, place.held = pop.operator.unsure, True
    place.kill()
    margins = pop.follow_many(XS[120:150], YS[120:150]).margins
    place.held = False
    assert bool((margins != -1).any() or pop.operator.unsure != unsure) is moved


def _beside(act: str, dies: int, patch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Round by round who answers others, and how often a halt is drawn, while a shard dies and one person does this.

    Rows of others cannot be read now and then. Whatever is being brought back is back when the next round begins.
    """
    place, seen, drawn, ticket = Mortal(2), [], list[int](), ""
    pop = make("tree", "people", place)
    account, bank = pop.operator.loop.account, cast(ShardedBank, pop.operator.bank)
    spend = account.spend
    patch.setattr(account, "spend", lambda *given: (drawn.append(1), spend(*given)))
    for i in range(52):
        unit, said = "one" if i in (38, 43) else f"person {i % 7}", ""
        x: Any = XS[i]
        if i == 40 + dies:
            place.kill()
        if i == 42 and act == "brings a label":
            pop.learn(ticket, 1)
        if i == 42 and act == "is forgotten":
            pop.forget("one")
        if (i == 43 and act == "cannot be read") or i in (41, 42, 45):
            x = ["none", "of", "them"]
        with suppress(ValueError):
            answer = pop.predict(x, unit=unit)
            ticket, said = (answer.ticket, "") if unit == "one" else (ticket, answer.source)
            if i < 38:
                pop.learn(answer.ticket, int(YS[i]))
        seen.append((said, len(drawn)))
        for held in bank._shards:
            if held.thread is not None:
                held.thread.join()
    return seen


@pytest.mark.parametrize("act", ["brings a label", "is forgotten", "cannot be read"])
@pytest.mark.parametrize("dies", [0, 1, 2, 3, 4])
def test_what_one_person_does_decides_about_no_silent_round(
    act: str, dies: int, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (_beside(what, dies, monkeypatch) for what in (act, "nothing"))
    assert one == other and len({draws for _, draws in one[20:]}) == 31, "one round is silent, and one alone"


@pytest.mark.parametrize("batch", [1, 10])
def test_a_copy_that_cannot_be_written_down_moves_no_other_vote(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "EVERY", 5)
    margins, lost = [], []
    for large in (1.0, 1000.0):
        place, xs = Mortal(2), XS.copy()
        xs[10, 0] = large
        pop = make("hoards", "rounds", place)
        bank = cast(ShardedBank, pop.operator.bank)
        margins.append([pop.follow_many(xs[i : i + batch], YS[i : i + batch]).margins for i in range(0, 200, batch)])
        place.kill()
        pop.follow_many(xs[200:210], YS[200:210])
        bank.settle()
        margins[-1].append(pop.follow_many(xs[210:], YS[210:]).margins)
        lost.append(sum(part is None for held in bank._shards for part in held.parts))
    assert np.array_equal(*map(np.concatenate, margins)) and lost[0] == 0


# ---------------------------------------------------------------------- what is sent


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 9, 13, 60])
@pytest.mark.parametrize("copies", [60, 61, 1000, 70_001, 1_000_003])
def test_each_shard_is_told_who_of_its_own_copies_is_asked(copies: int, parts: int) -> None:
    polls = DICE.integers(0, copies, size=(20, 17))
    polls[0, :3] = 0, copies - 1, copies - 1
    ranges = divided(range(copies), parts)
    edges = np.array([*(own.start for own in ranges), copies])
    for kind in (np.uint16, np.int32)[max(map(len, ranges)) > 1 << 16 :]:
        cut = Cut(edges, np.empty((parts, polls.size + 1), dtype=kind), np.zeros((parts, 20), dtype=np.int64))
        cut_rows(polls, cut)
        for own, line, ends in zip(ranges, cut.polls, cut.ends, strict=True):
            told = np.split(line[: ends[-1]], ends[:-1])
            here = [[copy - own.start for copy in poll if copy in own] for poll in polls.tolist()]
            assert [poll.tolist() for poll in told] == here


def far(**calls: Any) -> Any:
    """An actor on another machine, as the place knows it."""
    return SimpleNamespace(actor=SimpleNamespace(**calls), lent=None)


@pytest.mark.parametrize("rows", [0, 1, 700, 3000])
def test_a_batch_arrives_in_pieces_as_it_was_sent(rows: int) -> None:
    sent, batches = [], list[Batch]()
    ys, ends = np.arange(rows), 3 * np.arange(1, rows + 1)
    batch = Batch(1, DICE.normal(size=(rows, 9)), ys, ys, np.arange(3 * rows, dtype=np.uint16), ends, ys > 0, (2,))
    cluster = SimpleNamespace(put=lambda given: given, cloudpickle=pickle)

    def remote(call: str, *given: Any) -> None:
        sent.append(given)
        actor.told(call, *given)

    def remote_all(call: str, *given: Any) -> None:
        actor.told_all(call, *given)

    class Hears(Actor):
        def apply(self, batch: Batch) -> Any:
            batches.append(batch)

    actor, place = Hears(Recipe(known.LogisticRegression(), 4, 2, 3, None, False), 0, 2), Actors.__new__(Actors)
    vars(place).update(_ray=cluster, _cluster=cluster)
    reached = far(told=SimpleNamespace(remote=remote), told_all=SimpleNamespace(remote=remote_all))
    place.begin([reached, reached], "apply", [batch, batch._replace(number=2)])
    assert [one.number for one in batches] == [1, 2] and all(one.resets == (2,) for one in batches)
    for one in batches:
        for name in ("xs", "copies", "ys", "polls", "ends", "asked"):
            before, after = getattr(batch, name), getattr(one, name)
            assert before.dtype == after.dtype and np.array_equal(before, after) and after.flags.aligned, name
    assert all(len(piece) <= PIECE for _, *pieces in sent for piece in pieces) and len(sent) == 2


def test_what_is_large_is_brought_to_the_cluster_once() -> None:
    put, told = list[Any](), list[Any]()
    place = Actors.__new__(Actors)
    cluster = SimpleNamespace(put=lambda given: put.append(given) or len(put), cloudpickle=pickle)
    vars(place).update(_ray=cluster, _cluster=cluster)
    shard = far(told_all=SimpleNamespace(remote=lambda *given: told.append(given)))
    place.begin([shard, shard], "again", [np.zeros(INLINE), np.ones(INLINE)])
    assert len(put) == 1 and told == [("again", 0, 1), ("again", 1, 1)]
    assert Hearing(*put[0]).heard == [0.0, 1.0]


class Hearing(Actor):
    """What two shards hear of what is in the store."""

    def __init__(self, *given: Any) -> None:
        self.heard, self._turn = list[float](), nullcontext()  # type: ignore[assignment]
        for number in range(len(given)):
            self.told_all("hear", number, given)

    def hear(self, given: Any) -> None:
        self.heard.append(float(given[0]))


# ---------------------------------------------------------------------- words


def test_where_copies_live_is_said_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert chosen("auto", WORTH - 1) == "local" and chosen("auto", WORTH) == "ray"
    assert place_named("local") is None and isinstance(place_named("threads"), Threads)
    with pytest.raises(ValueError, match="must be local, threads, ray or auto"):
        place_named("cluster")
    monkeypatch.delenv("RAY_ADDRESS")
    assert chosen("auto", WORTH) == "local"


def test_a_services_file_and_a_run_say_where_copies_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    promise: dict[str, Any] = {
        "epsilon": 60.0,
        "delta": 1e-2,
        "rounds": ROUNDS,
        "copies": 60,
        "unsure": 40,
        "silent": 20,
    }
    given = {"folder": tmp_path / "model", "labels": ["a", "b"], "columns": 3, "guide": False, "bank": "threads"}
    for _ in range(2):  # made, and loaded
        desk = open_desk("model", ModelConfig(**given, **promise))
        assert isinstance(desk.pop.operator.bank, ShardedBank)  # type: ignore[attr-defined]
        desk.close()
    config = Config(models={"model": ModelConfig(**{**given, "bank": "auto"}, **promise)})
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert config.at(tmp_path).models["model"].bank == "ray"
    few = config.model_copy(update={"limits": config.limits.model_copy(update={"group": WORTH - 1})})
    assert few.at(tmp_path).models["model"].bank == "local"
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r'pip install "confide\[ray\]"'):
        run(open_stream("visits", rows=ROUNDS), known.DecisionTree(), PLANS["halts"], Settings("visits", ray=True))


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r'pip install "confide\[ray\]"'):
        Actors()


def test_a_cluster_that_would_be_open_to_everybody_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))  # type: ignore[arg-type]
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="would run code for anybody on the network"):
        Actors(shards=2).start(Recipe(known.LogisticRegression(), 4, 2, 3, None, False), range(2))


def test_what_cannot_be_sharded_is_refused() -> None:
    from confide.games.split import SplitVote

    with pytest.raises(ValueError, match="leave them in one place"):
        ShardedBank(Threads(2), SplitVote(), 10, 2, 1, Random())
    bank = ShardedBank(Threads(2), known.LogisticRegression(), 10, 2, 1, Random())
    with pytest.raises(TypeError, match="not copied"):
        copy.deepcopy(bank)
