"""Checks that a bank keeps its copies apart: what the guarantee takes for granted, as tests anyone can run.

A check is a function of `make` and `records`. `make(copies)` builds a bank, and the same one every time it is
called: the same learner, the same seed. `records` are pairs (x, y) as people would give them, with at least
one number in x. A check raises AssertionError with the reason when the bank fails it.

>>> from confide.banks import bank_for
>>> from confide.learners import DecisionTree
>>> from confide.privacy.random import Random
>>> def make(copies):
...     return bank_for(DecisionTree(memory=16), copies, labels=2, features=3, rng=Random(seed=1))
>>> check_bank(make, example_records(features=3))
"""

from __future__ import annotations

import contextlib
import copy as copying
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.banks.base import Bank, State
from confide.contained import contained, tried

Make = Callable[[int], Bank]
Records = Sequence[tuple[Any, int]]
Check = Callable[[Make, Records], None]
Lesson = Callable[[Any, int], Records]

_COPIES = 5
_ONE = 2  # the copy that is taught otherwise
_SECRET = "what nobody else may read"


class _Raises:
    """An x that raises something of its own when it is looked at."""

    def __len__(self) -> int:
        raise RecursionError(_SECRET)

    def __float__(self) -> float:
        raise OverflowError(_SECRET)

    __iter__ = __getitem__ = __array__ = __len__


def yield_checks() -> Iterator[Check]:
    """Every check, each with a name that says what it demands."""
    yield votes_are_counts
    yield teaching_one_copy_moves_no_other
    yield voting_changes_nothing
    yield inputs_are_left_alone
    yield global_randomness_is_left_alone
    yield reset_forgets_everything
    yield state_round_trips
    yield memory_is_bounded
    yield nonsense_is_refused
    yield a_batch_votes_row_by_row
    yield a_batch_is_taught_in_order
    yield a_bad_row_touches_no_other
    yield rivers_switch_teaches_nobody
    yield failures_stay_with_their_copy


def check_bank(make: Make, records: Records) -> None:
    """Run every check."""
    for check in yield_checks():
        check(make, records)


def example_records(features: int = 4, labels: int = 2, number: int = 60, names: bool = False) -> Records:
    """Records that can be learned, the same each time: the first feature tells the label."""
    records = []
    for i in range(number):
        x = [math.sin(12.9898 * (i + 1) * (j + 1)) for j in range(features)]
        y = min(labels - 1, int((x[0] + 1) / 2 * labels))
        records.append(({f"f{j}": v for j, v in enumerate(x)} if names else np.array(x), y))
    return records


def votes_are_counts(make: Make, records: Records) -> None:
    """Votes are one int64 count a label, add up over the poll, and do not depend on its order."""
    bank = _taught(make, records)
    everyone = np.arange(_COPIES)
    for x in _questions(bank, records):
        votes = bank.votes(x, everyone)
        assert votes.shape == (bank.labels,) and votes.dtype == np.int64, "votes are not one int64 a label"
        assert (votes >= 0).all() and votes.sum() <= _COPIES, "the votes are negative or more than the copies"
        assert (votes == bank.votes(x, everyone[::-1])).all(), "votes depend on the order of the poll"
        alone = [bank.votes(x, np.array([copy])) for copy in everyone]
        assert (votes == np.sum(alone, axis=0)).all(), "a poll's votes are not its copies' votes together"
        assert not bank.votes(x, np.array([], dtype=np.int64)).any(), "nobody was asked and somebody voted"


def teaching_one_copy_moves_no_other(make: Make, records: Records) -> None:
    """Whatever one copy is taught, all others vote, learn and draw as if it had been taught nothing."""
    as_they_are = _world(make, records, lambda x, y: [(x, y)])
    for lesson in _lessons(records, make(1).labels):
        votes, state = _world(make, records, lesson)
        assert votes == as_they_are[0], "another copy votes otherwise after one was taught"
        difference = _difference(state, as_they_are[1])
        assert not difference, f"another copy's memory or randomness moved: {difference}"


def voting_changes_nothing(make: Make, records: Records) -> None:
    """Asking leaves everything as it was: a bank that was asked learns like one that was not."""
    asked, quiet = make(_COPIES), make(_COPIES)
    for i, (x, y) in enumerate(records):
        for bank in (asked, quiet):
            _learn(bank, i % _COPIES, x, y)
        question = asked.encode(x)
        first, second = (asked.votes(question, np.arange(_COPIES)) for _ in range(2))
        assert (first == second).all(), "the same question got other votes the second time"
    difference = _difference(_state(asked), _state(quiet))
    assert not difference, f"votes changed the bank: {difference}"
    for x in _questions(asked, records):
        same = (asked.votes(x, np.arange(_COPIES)) == quiet.votes(x, np.arange(_COPIES))).all()
        assert same, "a bank that was asked before votes otherwise"


def inputs_are_left_alone(make: Make, records: Records) -> None:
    """x is not changed, and changing it afterwards changes nothing."""
    bank, twin = make(_COPIES), make(_COPIES)
    for i, (x, y) in enumerate(records):
        given = copying.deepcopy(x)
        encoded = bank.encode(given)
        before = copying.deepcopy(encoded)
        bank.votes(encoded, np.arange(_COPIES))
        _learn(bank, i % _COPIES, given, y, encoded)
        assert _same(given, x) and _same(encoded, before), "x was changed"
        for mine in (given, encoded):
            _spoil(mine)
        _learn(twin, i % _COPIES, x, y)
    difference = _difference(_state(bank), _state(twin))
    assert not difference, f"x was kept and not copied: {difference}"
    for x in _questions(twin, records):
        same = (bank.votes(x, np.arange(_COPIES)) == twin.votes(x, np.arange(_COPIES))).all()
        assert same, "x was kept and not copied"


def global_randomness_is_left_alone(make: Make, records: Records) -> None:
    """No draw comes from the generators that a whole process shares, `random` and `numpy.random`."""
    before = random.getstate(), np.random.get_state(legacy=False)
    bank = _taught(make, records)
    for x in _questions(bank, records):
        bank.votes(x, np.arange(_COPIES))
    after = random.getstate(), np.random.get_state(legacy=False)
    assert before[0] == after[0], "the bank drew from Python's shared generator"
    assert repr(before[1]) == repr(after[1]), "the bank drew from numpy's shared generator"


def reset_forgets_everything(make: Make, records: Records) -> None:
    """A copy that was reset votes as one that was never taught; the others stay as they are."""
    bank, never = _taught(make, records), make(_COPIES)
    others = np.array([copy for copy in range(_COPIES) if copy != _ONE])
    questions = list(_questions(bank, records))
    before = [bank.votes(x, others) for x in questions]
    bank.reset([_ONE])
    for x, votes in zip(questions, before, strict=True):
        alone = np.array([_ONE])
        assert (bank.votes(x, alone) == never.votes(x, alone)).all(), "a reset copy still knows something"
        assert (bank.votes(x, others) == votes).all(), "a reset reached other copies"
    bank.reset(range(_COPIES))
    never.reset(range(_COPIES))
    difference = _difference(_state(bank), _state(never))
    assert not difference, f"something is left after all copies were reset: {difference}"


def state_round_trips(make: Make, records: Records) -> None:
    """A state is plain data that brings back every vote, and the state of another bank is refused."""
    bank, back = _taught(make, records), make(_COPIES)
    state = _state(bank)
    for key, value in state.items():
        plain = isinstance(value, str | int) or (isinstance(value, np.ndarray) and value.dtype != object)
        assert isinstance(key, str) and plain, f"{key!r} in the state is no plain array, number or string"
    kept = copying.deepcopy(dict(state))
    _load(back, state)
    for x in _questions(bank, records):
        for copy in range(_COPIES):
            same = (bank.votes(x, np.array([copy])) == back.votes(x, np.array([copy]))).all()
            assert same, "a copy votes otherwise after its state was restored"
    for i, (x, y) in enumerate(records):
        _learn(back, i % _COPIES, x, y)
    assert not _difference(kept, state), "a restored bank writes into the state it came from"
    assert _refuses(_load, make(_COPIES + 1), state), "the state of a bank of another size was accepted"


def memory_is_bounded(make: Make, records: Records) -> None:
    """A copy that has learned three hundred records is about as large as it will be."""
    bank = make(1)
    sizes = []
    for _ in range(3):
        for i in range(150):
            _learn(bank, 0, *records[i % len(records)])
        sizes.append(bank.nbytes)
    assert 0 < sizes[2] <= 1.25 * max(sizes[:2]) + 256, f"a copy grows: it had {sizes} bytes"


def nonsense_is_refused(make: Make, records: Records) -> None:
    """What is no x, no label or no copy raises ValueError and teaches nothing."""
    bank = _taught(make, records)
    before = copying.deepcopy(dict(_state(bank)))
    x, y = records[0]
    good = bank.encode(x)
    for bad in (None, "text", _Raises()):
        assert _refuses(bank.encode, bad), "what is no x was accepted"
    for label in (-1, bank.labels):
        assert _refuses(bank.learn, 0, good, label), f"the label {label} was accepted"
    for copy in (-1, _COPIES):
        assert _refuses(bank.learn, copy, good, y), f"the copy {copy} was taught"
        assert _refuses(bank.votes, good, np.array([copy])), f"the copy {copy} was asked"
        assert _refuses(bank.reset, [copy]), f"the copy {copy} was reset"
    difference = _difference(before, _state(bank))
    assert not difference, f"what was refused was learned: {difference}"


def a_batch_votes_row_by_row(make: Make, records: Records) -> None:
    """A row of a batch has the votes it has alone, whoever is polled with it, whatever else is asked, in any order."""
    bank = _taught(make, records)
    xs = [x for x, _ in records]
    rows, errors = bank.encode_many(xs)
    assert not errors and len(rows) == len(xs), "a good row was refused"
    polls = np.array([[(i * j + j) % _COPIES for j in range(1, 4)] for i in range(len(xs))], dtype=np.int64)
    alone = [bank.votes(bank.encode(x), poll) for x, poll in zip(xs, polls, strict=True)]
    backwards = np.arange(len(xs))[::-1]
    for some in (backwards, backwards[::-1], backwards[:5], backwards[7:8], backwards[:0]):
        votes = bank.votes_many(_some(rows, some), polls[some])
        assert votes.shape == (some.size, bank.labels) and votes.dtype == np.int64, "votes are not an int64 a label"
        same = all((votes[i] == alone[row]).all() for i, row in enumerate(some.tolist()))
        assert same, "a row's votes in a batch are not those it has alone"
    spoilt = _some(bank.encode_many([_replaced(x, 1e30) for x in xs])[0], backwards)
    mixed = [rows[0], *spoilt] if isinstance(rows, list) else np.concatenate([rows[:1], spoilt])
    votes = bank.votes_many(mixed, np.concatenate([polls[:1], polls]))
    assert (votes[0] == alone[0]).all(), "a row's votes depend on the rows that it came with"


def a_batch_is_taught_in_order(make: Make, records: Records) -> None:
    """Teaching a batch leaves the bank as teaching its rows one after the other does."""
    bank, twin = make(_COPIES), make(_COPIES)
    half = len(records) // 2
    for part in (records[:half], records[half:], records[:0]):
        copies = np.array([(i * i) % _COPIES for i in range(len(part))], dtype=np.int64)
        rows, _ = bank.encode_many([x for x, _ in part])
        taught = bank.learn_many(copies, rows, np.array([y for _, y in part], dtype=np.int64))
        learned = [_learn(twin, copy, x, y) for copy, (x, y) in zip(copies.tolist(), part, strict=True)]
        assert taught == sum(learned), "the number of lessons learned is wrong"
    difference = _difference(_state(bank), _state(twin))
    assert not difference, f"a batch teaches otherwise than its rows do: {difference}"


def a_bad_row_touches_no_other(make: Make, records: Records) -> None:
    """Whatever one row of a batch is, the others are encoded as they are alone, and only it is refused."""
    bank = _taught(make, records)
    xs = [x for x, _ in records[:6]]
    poll = np.arange(_COPIES)
    alone = [(bank.encode(x), bank.votes(bank.encode(x), poll)) for x in xs]
    odd = [_replaced(xs[2], value) for value in (math.nan, math.inf)]  # a bank may read or refuse these
    for bad in (*odd, None, "text", [[]], _Raises()):
        mixed = [*xs[:2], bad, *xs[3:]]
        rows, errors = bank.encode_many(mixed)
        refused = _refuses(bank.encode, bad)
        assert list(errors) == [2] * refused and len(rows) == len(mixed), "a bad row did not stay alone"
        assert refused or any(bad is one for one in odd), "what is no x was accepted"
        assert all(isinstance(said, str) and _SECRET not in said for said in errors.values()), "an error quotes x"
        good = np.array([0, 1, 3, 4, 5])
        asked = _some(rows, good)
        votes = bank.votes_many(asked, np.tile(poll, (good.size, 1)))
        for i, row in enumerate(good.tolist()):
            encoded, counts = alone[row]
            assert _same(np.array(asked[i]) if isinstance(encoded, np.ndarray) else asked[i], encoded), "x differs"
            assert (votes[i] == counts).all(), "a bad row moved another row's votes"


def rivers_switch_teaches_nobody(make: Make, records: Records) -> None:
    """Also where `river.compose.learn_during_predict` is on, a question teaches nothing, alone or in a batch."""
    asked, quiet = _taught(make, records), _taught(make, records)
    poll = np.arange(_COPIES)
    river = sys.modules.get("river.compose")
    with contextlib.nullcontext() if river is None else river.learn_during_predict():
        for x, _ in records[:12]:
            asked.votes(asked.encode(_replaced(x, 1e6)), poll)
        rows, _ = asked.encode_many([_replaced(x, -1e6) for x, _ in records[:12]])
        asked.votes_many(rows, np.tile(poll, (len(rows), 1)))
    difference = _difference(_state(asked), _state(quiet))
    assert not difference, f"votes changed the bank: {difference}"


def failures_stay_with_their_copy(make: Make, records: Records) -> None:
    """Whatever its learner raises, Exception or not, votes and batches of lessons raise nothing."""
    bank, poll = make(_COPIES), np.arange(_COPIES)
    xs = [_replaced(x, 1e30) if i % 3 == 2 else x for i, (x, _) in enumerate(records)]
    rows, _ = bank.encode_many(xs)
    copies, labels = np.arange(len(xs)) % _COPIES, np.array([y for _, y in records], dtype=np.int64)
    for act in (
        lambda: bank.learn_many(copies, rows, labels),
        lambda: bank.votes_many(rows, np.tile(poll, (len(rows), 1))),
        lambda: [bank.votes(rows[i], poll) for i in range(len(rows))],
    ):
        _, failed = tried(act)
        assert failed is None, f"a bank raises what its learner does: {type(failed).__name__}"


def _taught(make: Make, records: Records) -> Bank:
    bank = make(_COPIES)
    for i, (x, y) in enumerate(records):
        _learn(bank, i % _COPIES, x, y)
    return bank


def _learn(bank: Bank, copy: int, x: Any, y: int, encoded: Any = None) -> bool:
    """Teach as POP does: a learner's own failure stays with its copy. Whether it learned."""
    encoded = bank.encode(x) if encoded is None else encoded
    with contained:
        bank.learn(copy, encoded, y)
        return True
    return False


def _world(make: Make, records: Records, lesson: Lesson) -> tuple[list[list[int]], State]:
    """The others' votes when one copy is taught `lesson(x, y)` for (x, y), and the state once it is reset."""
    bank = make(_COPIES)
    for i, (x, y) in enumerate(records):
        for record in lesson(x, y) if i % _COPIES == _ONE else [(x, y)]:
            _learn(bank, i % _COPIES, *record)
    others = [np.array([copy]) for copy in range(_COPIES) if copy != _ONE]
    votes = [bank.votes(x, alone).tolist() for x in _questions(bank, records) for alone in others]
    bank.reset([_ONE])
    return votes, _state(bank)


def _questions(bank: Bank, records: Records) -> Iterator[Any]:
    return (bank.encode(x) for x, _ in records[:12])


def _some(rows: Any, which: NDArray[np.int64]) -> Any:
    return rows[which] if isinstance(rows, np.ndarray) else [rows[i] for i in which.tolist()]


def _lessons(records: Records, labels: int) -> Iterator[Lesson]:
    """What the one copy may be taught in place of (x, y): nothing, the wrong, more, the extreme, the same."""
    yield lambda x, y: []
    yield lambda x, y: [(x, (y + 1) % labels)]
    yield lambda x, y: [*records[:3], (x, y)]
    yield lambda x, y: [(_replaced(x, 1e30), y)]
    yield lambda x, y: [(records[0][0], 0)]


def _replaced(x: Any, value: float) -> Any:
    """`x` with its first number replaced."""
    if isinstance(x, dict):
        name = next(name for name, v in x.items() if not isinstance(v, str))
        return {**x, name: value}
    row = np.array(x, dtype=np.float64)
    row[0] = value
    return row


def _spoil(x: Any) -> None:
    if isinstance(x, dict):
        for name in list(x):
            x[name] = 777.0
        x["spoilt"] = 777.0
    elif isinstance(x, np.ndarray) and x.flags.writeable:
        x[...] = 777.0


def _state(bank: Bank) -> State:
    try:
        return bank.state()
    except ValueError:
        return bank.state(trusted=True)


def _load(bank: Bank, state: State) -> None:
    try:
        bank.load_state(state)
    except ValueError:
        bank.load_state(state, trusted=True)


def _refuses(act: Callable[..., object], *given: object) -> bool:
    try:
        act(*given)
    except ValueError:
        return True
    return False


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    return bool(a == b)


def _difference(a: State, b: State) -> list[str]:
    """The keys under which two states are not the same, bit for bit."""
    missing = [key for key in {*a, *b} if key not in a or key not in b]
    return sorted(missing) or sorted(key for key in a if not _same(a[key], b[key]))
