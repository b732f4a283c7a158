"""Many rounds at once: what POP does one by one, in compiled loops where the bank has them.

A batch is a sequence of rounds like any other: every row has its own poll, gate draw, count and halting draw, in order,
and the words are those that the plain loop would draw, so the proofs of `confide.POP` hold as they are. What a batch
spent is in the journal before anything is returned. Where there is no compiled loop (other banks, the paper's plan, a
subclass with a loop of its own) the plain one runs. Proof page: docs/proofs/people.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from confide.banks import StackedBank
from confide.banks.rounds import COIN, CURSOR, HALTED, HIDDEN, NOTHING, ROW, TAUGHT, UNSURE
from confide.errors import Halted
from confide.privacy.halting import Halting
from confide.privacy.random import Random

if TYPE_CHECKING:
    from confide.pop.pop import POP, Answer, _Open

__all__ = ["Evaluation", "compiles", "evaluate"]

CHUNK = 4096
"""Rows that are prepared together."""

WORDS = 1 << 17
"""Random words that are held ready for a chunk: a megabyte."""

_LOOP = (
    "predict", "learn", "teach", "_live", "_fires", "_teach", "_who", "_label", "_redeem", "_ticket", "_halt",
    "_counts_for_monitor", "_fallback_function",
)  # fmt: skip


_FAILED = "the fallback failed"


def compiles(pop: POP) -> bool:
    """Whether this POP's batches run compiled."""
    from confide.pop.pop import POP

    own = all(getattr(type(pop), name) is getattr(POP, name) for name in _LOOP)
    plain = type(pop._rng) is Random and isinstance(pop.plan.halting, Halting)
    watched = pop._monitor is not None and pop.units == "people"  # who is watched is journalled round by round
    bank = pop._bank
    return own and plain and not watched and type(bank) is StackedBank and bank.compiles


@dataclass
class _Chunk:
    """What a compiled chunk of rounds left behind: a row for each question, as far as `rows`."""

    rows: int
    xs: NDArray[np.float64]
    errors: dict[int, str]
    copies: NDArray[np.int64]
    shown: NDArray[np.int64]
    sure: NDArray[np.bool_]
    margins: NDArray[np.int64]


def _ask(pop: POP, xs: Any, ys: NDArray[np.int64], units: Sequence[Any] | None) -> _Chunk:
    """Take as many of the rounds as plan and budget allow; label −1 is not taught."""
    plan, bank, rng = pop.plan, pop._bank, pop._rng
    assert isinstance(bank, StackedBank) and isinstance(plan.halting, Halting)
    whos = [pop._who(unit) for unit in units] if units is not None else None
    encoded, malformed, errors = bank.encode_many(xs)
    n = encoded.shape[0]
    rows = min(n, plan.rounds - pop._round)
    if pop._journal is not None:
        pop._journal.reserve(pop._round + rows)
    copies, unit_of, shares = np.full(n, NOTHING), np.full(n, NOTHING), np.zeros(1, dtype=np.int64)
    people: dict[bytes, int] = {}
    if whos is not None:
        for i, who in enumerate(whos):
            assert who is not None
            unit_of[i] = people.setdefault(who, len(people))
            copies[i] = pop._prf.copy_of(who, plan.copies)
        shares = np.array([pop._unit_unsure.get(who, 0) for who in people] or [0], dtype=np.int64)
    given = pop._fallback_given
    fallback = COIN if isinstance(given, str) and given == "coin" and "coin" not in pop._index else HIDDEN
    if fallback == HIDDEN and _is_label(pop, given):
        fallback = pop._index[given]
    shown, sure = np.full(n, NOTHING), np.zeros(n, dtype=np.bool_)
    margins, counts = np.full(n, NOTHING), np.zeros(plan.labels, dtype=np.int64)
    progress = np.zeros(6, dtype=np.int64)
    progress[UNSURE] = pop._unsure
    each = 4 if plan.polls == plan.copies else plan.polls + 4
    need = min(WORDS, 64 + rows * each)  # doubled below where it does not suffice for one round
    before, silent = shares.copy(), plan.silent - pop._round
    try:
        while progress[ROW] < rows and not progress[HALTED]:
            words, progress[CURSOR] = rng.reserve(need)
            at = int(progress[ROW])
            try:
                bank.ask_rows(
                    progress, int((ys[at:rows] >= 0).sum()), words, plan.gate.sure, plan.halting.go, plan.copies,
                    plan.polls, silent, fallback, plan.unit_unsure, encoded[:rows], ys[:rows], malformed, unit_of,
                    shares, progress, copies, shown, sure, margins, counts,
                )  # fmt: skip
            finally:
                rng.commit(int(progress[CURSOR]))
            if progress[ROW] == at:
                need *= 2
    finally:  # an interrupt must not lose what was spent
        done, counted = int(progress[ROW]), int(progress[UNSURE]) - pop._unsure
        pop._round += done
        pop._unsure += counted
        pop._taught += int(progress[TAUGHT])
        changed = [who for who, i in people.items() if shares[i] != before[i]]
        for who in changed:
            pop._unit_unsure[who] = int(shares[people[who]])
        if done and margins[done - 1] >= 0:
            pop._last = counts
        if progress[HALTED]:
            pop._halt_reason = "budget"
        if pop._journal is not None and (counted or pop._halt_reason):
            pop._journal.spent(pop, *changed)
            pop._halt_durable = pop._halt_reason is not None
    while pop._open and next(iter(pop._open))[1] <= pop._round - pop.ticket_life:
        pop._open.pop(next(iter(pop._open)))
    if fallback == HIDDEN:
        for row in np.flatnonzero(~sure[:done] & ~malformed[:done]).tolist():
            try:
                shown[row] = pop._fallback(xs[row])
            except Exception as error:  # for its asker alone: the others must not see that this row was unsure
                errors[row] = str(error) if isinstance(error, ValueError) else _FAILED
                shown[row] = NOTHING
    return _Chunk(done, encoded, errors, copies, shown, sure, margins)


def _is_label(pop: POP, thing: Any) -> bool:
    try:
        return thing in pop._index
    except TypeError:
        return False


def predict_many(pop: POP, xs: Any, units: Sequence[str | bytes] | None) -> list[Answer]:
    """See `POP.predict_many`."""
    from confide.pop.pop import Answer, _Open

    xs, whose = _aligned(pop, xs, units)
    answers: list[Answer] = []
    if compiles(pop) and pop._halt_reason is None and pop._round < pop.plan.rounds and len(xs):
        first, epoch, labels = pop._round, pop._epoch, pop.labels
        chunk = _ask(pop, xs, np.full(len(xs), NOTHING), units)
        watched = pop._monitor is not None
        for i in range(chunk.rows):
            if pop._monitor is not None:
                pop._monitor.asked()
            if i in chunk.errors:
                answers.append(Answer(None, False, "", chunk.errors[i]))
                continue
            number, shown = first + i + 1, int(chunk.shown[i])
            who = None if units is None else pop._who(units[i])
            x = chunk.xs[i].copy()
            x.flags.writeable = False
            if number > pop._round - pop.ticket_life:
                pop._open[(epoch, number)] = _Open(int(chunk.copies[i]), x, shown, watched, who)
            answers.append(Answer(labels[shown], bool(chunk.sure[i]), pop._ticket(epoch, number)))
    for i in range(len(answers), len(xs)):
        try:
            answers.append(pop.predict(xs[i], whose(i)))
        except Halted as halted:
            if not answers:
                raise
            answers.append(Answer(None, False, "", str(halted)))
        except Exception as error:
            said = str(error) if isinstance(error, ValueError) else _FAILED
            answers.append(Answer(None, False, "", said))
    return answers


def learn_many(pop: POP, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
    """See `POP.learn_many`."""
    if len(tickets) != len(ys):
        raise ValueError(f"there are {len(tickets)} tickets for {len(ys)} labels: give one label for each")
    refused: dict[int, ValueError] = {}
    lessons: list[tuple[_Open, int]] = []
    compiled = compiles(pop)
    for i, (ticket, y) in enumerate(zip(tickets, ys, strict=True)):
        try:
            if not compiled:
                pop.learn(ticket, y)
                continue
            label = pop._label(y)
            key = pop._redeem(ticket)
        except ValueError as error:
            refused[i] = error
            continue
        waiting = pop._open.pop(key)
        if pop._monitor is not None and waiting.counted and label != waiting.answered:
            pop._monitor.wrong(pop._round - key[1])
        lessons.append((waiting, label))
    if lessons:
        copies, labels = np.array([(one.copy, label) for one, label in lessons], dtype=np.int64).T.copy()
        _teach_rows(pop, copies, np.array([one.x for one, _ in lessons]), labels)
    _refuse(refused)


def teach_many(pop: POP, xs: Any, ys: Sequence[Hashable], units: Sequence[str | bytes] | None) -> None:
    """See `POP.teach_many`."""
    xs, whose = _aligned(pop, xs, units)
    if len(xs) != len(ys):
        raise ValueError(f"there are {len(xs)} records for {len(ys)} labels: give one label for each")
    refused: dict[int, ValueError] = {}
    bank = pop._bank
    if not compiles(pop) or not isinstance(bank, StackedBank):
        for i, y in enumerate(ys):
            try:
                pop.teach(xs[i], y, whose(i))
            except ValueError as error:
                refused[i] = error
        _refuse(refused)
        return
    rows, _, errors = bank.encode_many(xs)
    labels = np.full(len(ys), NOTHING)
    for i, y in enumerate(ys):
        try:
            labels[i] = pop._label(y)
            if i in errors:
                raise ValueError(errors[i])
        except ValueError as error:
            refused[i] = error
    good = np.array([i for i in range(len(ys)) if i not in refused], dtype=np.int64)
    if units is None:
        copies = pop._rng.below_many(pop.plan.copies, good.size)
    else:
        named = [pop._who(units[i]) or b"" for i in good.tolist()]
        copies = np.array([pop._prf.copy_of(who, pop.plan.copies) for who in named], dtype=np.int64)
    _teach_rows(pop, copies, rows[good], labels[good])
    _refuse(refused)


def _refuse(refused: dict[int, ValueError]) -> None:
    """Say which rows were not learned, once all others are: what one unit sent must not decide that."""
    for i, error in refused.items():
        more = f"; so were {len(refused) - 1} more rows" if len(refused) > 1 else ""
        raise type(error)(f"row {i} was refused, and all good rows were learned: {error}{more}")


def _teach_rows(pop: POP, copies: NDArray[np.int64], xs: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
    assert isinstance(pop._bank, StackedBank)
    pop._taught += pop._bank.learn_rows(copies, xs, labels)


def _naming(i: int, check: Callable[[Any], Any], value: Any) -> Any:
    """`check(value)`, whose ValueError then names the row."""
    try:
        return check(value)
    except ValueError as error:
        raise type(error)(f"row {i}: {error}") from None


def _aligned(pop: POP, xs: Any, units: Sequence[str | bytes] | None) -> tuple[Any, Callable[[int], Any]]:
    if isinstance(xs, str | bytes | Mapping):
        raise ValueError("xs must be a sequence of questions, or an array with a row for each")
    if isinstance(units, str | bytes):
        raise ValueError("units must be a sequence of ids, one for each row")
    if not isinstance(xs, np.ndarray):
        xs = np.asarray(xs) if hasattr(xs, "__array__") else list(xs)
    if (units is None) != (pop.units == "rounds"):
        pop._who(None if units is None else "")  # raises, and says why
    if units is None:
        return xs, lambda i: None
    if len(units) != len(xs):
        raise ValueError(f"there are {len(units)} units for {len(xs)} rows: give one unit for each")
    for unit in units:
        pop._who(unit)
    return xs, lambda i: units[i]


@dataclass(frozen=True)
class Evaluation:
    """How a POP did on a stream. Exact, for the operator's eyes only, and outside the guarantee."""

    answers: NDArray[np.int64]
    """The label index shown in each round; −1 for a malformed row."""
    sure: NDArray[np.bool_]
    """Whether the copies answered."""
    margins: NDArray[np.int64]
    """The vote's margin; −1 in silent rounds."""
    mistakes: int
    """Wrong answers in live rounds."""
    live: int
    """Live rounds, malformed ones included."""

    @property
    def rounds(self) -> int:
        """Rounds taken: fewer than asked for where the POP halted."""
        return self.answers.size

    @property
    def error(self) -> float:
        """Wrong answers a live round."""
        return self.mistakes / self.live if self.live else float("nan")


def evaluate(
    pop: POP,
    xs: Sequence[Any] | NDArray[Any],
    ys: Sequence[Hashable] | NDArray[Any],
    units: Sequence[str | bytes] | None = None,
    *,
    progress: Callable[[int], object] | None = None,
) -> Evaluation:
    """Ask each row, then teach its label, in order, until the rows or the budget are used up.

    It is the loop `answer = pop.predict(x); pop.learn(answer.ticket, y)`, with the same coins and the same copies in
    the end, in compiled chunks where there are kernels for the learner.

    Parameters
    ----------
    pop
        The POP. It is changed: its rounds and its budget are used.
    xs, ys
        The stream, as arrays or sequences. A label that the POP does not know refuses the whole stream.
    units
        One id a row, for a POP that protects people.
    progress
        Called with the number of rounds taken since its last call.

    Examples
    --------
    >>> import confide
    >>> from confide.learners import LogisticRegression
    >>> plan = confide.Plan.tight(epsilon=8.0, delta=1e-5, rounds=2000, copies=150, unsure=100, silent=1000, beta=1e-6)
    >>> pop = confide.POP(LogisticRegression(), plan, labels=[0, 1], features=1)
    >>> xs = np.arange(2000.0)[:, None] % 7 - 3
    >>> result = evaluate(pop, xs, (xs[:, 0] > 0).astype(int))
    >>> result.live, result.error < 0.2
    (1000, True)
    """
    xs, _ = _aligned(pop, xs, units)
    if len(xs) != len(ys):
        raise ValueError(f"there are {len(xs)} rows for {len(ys)} labels: give one label for each")
    labels = _labels(pop, ys)
    answers, margins = np.full(labels.size, NOTHING), np.full(labels.size, NOTHING)
    sure = np.zeros(labels.size, dtype=np.bool_)
    with pop._lock:
        pop._check_process()
        silent, at = max(0, pop.plan.silent - pop._round), 0
        while at < len(labels) and pop._halt_reason is None and pop._round < pop.plan.rounds:
            part = slice(at, min(at + CHUNK, len(labels)))
            these = None if units is None else units[part]
            if compiles(pop):
                chunk = _ask(pop, xs[part], labels[part], these)
                end = at + chunk.rows
                answers[at:end] = chunk.shown[: chunk.rows]
                sure[at:end], margins[at:end] = chunk.sure[: chunk.rows], chunk.margins[: chunk.rows]
                if pop._monitor is not None:
                    for i in range(at, end):
                        pop._monitor.asked()
                        if i - at not in chunk.errors and answers[i] != labels[i]:
                            pop._monitor.wrong(0)
            else:
                end = at
                while end < part.stop and pop._halt_reason is None and pop._round < pop.plan.rounds:
                    live = pop._round >= pop.plan.silent
                    try:
                        answer = pop.predict(xs[end], None if units is None else units[end])
                    except Exception:  # for its asker alone
                        answer = None
                    if live:
                        margins[end] = pop.operator.margin
                    if answer is not None:
                        answers[end], sure[end] = pop._index[answer.label], answer.sure
                        pop.learn(answer.ticket, pop.labels[labels[end]])
                    end += 1
            if progress is not None:
                progress(end - at)
            at = end
        if at < labels.size and pop._halt_reason is None:
            pop._halt("rounds")
    live_rows = slice(min(silent, at), at)
    wrong = (answers[live_rows] != labels[live_rows]) & (answers[live_rows] != NOTHING)
    return Evaluation(answers[:at], sure[:at], margins[:at], int(wrong.sum()), at - min(silent, at))


def _labels(pop: POP, ys: Any) -> NDArray[np.int64]:
    """The index of every label."""
    count = len(pop.labels)
    indices = isinstance(ys, np.ndarray) and ys.ndim == 1 and ys.dtype.kind in "iu" and ys.size > 0
    if indices and pop.labels == tuple(range(count)) and 0 <= ys.min() <= ys.max() < count:
        return np.asarray(ys, dtype=np.int64)
    plain = ys.tolist() if isinstance(ys, np.ndarray) else list(ys)
    try:
        return np.array([pop._index[y] for y in plain], dtype=np.int64)
    except (KeyError, TypeError):  # one is none: say which
        return np.array([_naming(i, pop._label, y) for i, y in enumerate(plain)], dtype=np.int64)
