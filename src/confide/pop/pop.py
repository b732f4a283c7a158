"""POP: many copies of a learner, a gated vote, each label taught to one copy. The loop, and nothing more.

Claims and proofs: docs/proofs/gate.md, docs/proofs/halting.md, docs/proofs/people.md (units, tickets, forgetting).
"""

from __future__ import annotations

import hmac
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from confide.banks import Bank, bank_for
from confide.errors import Halted, TicketError
from confide.ledger import state
from confide.planning.plan import Guarantee, Plan
from confide.pop import batches
from confide.pop.monitor import Monitor, MonitorState
from confide.privacy.counters import TreeCounter
from confide.privacy.halting import Halting
from confide.privacy.random import Prf, Random
from confide.privacy.tables import lead

TICKET_LIFE = 10_000
"""Public rounds after which a ticket expires, unless the user says otherwise."""


_verified: weakref.WeakValueDictionary[int, Plan] = weakref.WeakValueDictionary()  # plans do not change


@dataclass(frozen=True, slots=True)
class Answer:
    """What the asker gets: for their eyes only."""

    label: Any
    sure: bool
    """Whether the copies answered; if not, the fallback did."""
    ticket: str
    """Bring it back once with the right label: `pop.learn(ticket, y)`."""
    error: str | None = None
    """In a batch: what was wrong with this row, which was then not answered and has no ticket."""


@dataclass(slots=True)
class _Open:
    """An answer that waits for its label."""

    copy: int
    x: Any
    answered: int
    counted: bool
    """Whether the monitor counts this round."""
    who: bytes | None = None


class Operator:
    """Exact, private numbers for the operator's eyes only: outside the guarantee, never to be shown to others."""

    def __init__(self, pop: POP) -> None:
        self._pop = pop

    @property
    def unsure(self) -> int:
        """The exact count of unsure answers."""
        return self._pop._unsure

    @property
    def counts(self) -> NDArray[np.int64] | None:
        """Vote counts of the last live round."""
        return None if self._pop._last is None else self._pop._last.copy()

    @property
    def margin(self) -> int | None:
        """Their margin."""
        return None if self._pop._last is None else lead(self._pop._last)[1]

    @property
    def nbytes(self) -> int:
        """Memory of the copies, in bytes."""
        return self._pop._bank.nbytes

    @property
    def taught(self) -> int:
        """Labels taught."""
        return self._pop._taught


class POP:
    """Makes an online learner private between its users.

    (ε, δ)-challenge-DP with the numbers of `guarantee`: whatever one unit tells it, nobody else finds out from their
    own answers, not even all others together. Proof pages: docs/proofs/gate.md, docs/proofs/halting.md,
    docs/proofs/people.md.

    Parameters
    ----------
    learner
        A Confide learner, a River classifier or pipeline, or a scikit-learn classifier: a prototype, never taught.
    plan
        A `confide.Plan`.
    labels
        All labels, public, as many as the plan says.
    fallback
        What answers when nothing private may be used: "coin", one of the labels, a callable of x, or a model with
        `predict_one`. It must not know anything private.
    features
        For arrays their number; for dicts `confide.learners.Features(...)`; leave it out for River models.
    units
        "rounds": each round is protected. "people": each person is, over any number of rounds; then every call takes
        `unit`, an authenticated id.
    after_halt
        "raise" `Halted`, or answer by the "fallback".
    ticket_life
        Public rounds after which a ticket expires.
    monitor
        A `confide.Monitor`, or None.
    public_start
        Start every copy from what `learner` has learned (on public data only).
    seed
        For tests and replays only: whatever is made with one promises nothing, and says so.

    Examples
    --------
    >>> import confide
    >>> from confide.learners import LogisticRegression
    >>> plan = confide.Plan.tight(epsilon=8.0, delta=1e-5, rounds=2000, copies=150, unsure=100, silent=1000, beta=1e-6)
    >>> pop = confide.POP(LogisticRegression(), plan, labels=["no", "yes"], features=1)
    >>> for i in range(2000):
    ...     answer = pop.predict([i % 7 - 3.0])
    ...     pop.learn(answer.ticket, "yes" if i % 7 > 3 else "no")
    >>> pop.guarantee.epsilon <= 8
    True
    """

    def __init__(
        self,
        learner: Any,
        plan: Plan,
        *,
        labels: Sequence[Hashable],
        fallback: Any = "coin",
        features: Any = None,
        units: Literal["rounds", "people"] = "rounds",
        after_halt: Literal["raise", "fallback"] = "raise",
        ticket_life: int = TICKET_LIFE,
        monitor: Monitor | None = None,
        public_start: bool = False,
        seed: int | None = None,
    ) -> None:
        self._labels = tuple(labels)
        self._index = {label: i for i, label in enumerate(self._labels)}
        if len(self._index) != len(self._labels) or len(self._labels) != plan.labels:
            raise ValueError(
                f"labels must be {plan.labels} different labels, as the plan says; got {len(self._labels)}"
            )
        if units not in ("rounds", "people"):
            raise ValueError(f"units={units!r} must be 'rounds' or 'people'")
        if after_halt not in ("raise", "fallback"):
            raise ValueError(f"after_halt={after_halt!r} must be 'raise' or 'fallback'")
        if isinstance(ticket_life, bool) or not isinstance(ticket_life, int) or ticket_life < 1:
            raise ValueError(f"ticket_life={ticket_life} must be a whole number of public rounds, at least 1")
        if _verified.get(id(plan)) is not plan:
            plan.verify()
            _verified[id(plan)] = plan
        self.plan = plan
        self.units, self.after_halt, self.ticket_life = units, after_halt, ticket_life
        self._fallback_given = fallback
        self._fallback = self._fallback_function(fallback)
        self._learner, self._features, self._public_start = learner, features, public_start
        self._rng = Random() if seed is None else Random(seed)
        self._insecure = seed is not None
        self._bank: Bank = bank_for(learner, plan.copies, plan.labels, features, self._rng.spawn(), public_start)
        seeded = None if seed is None else self._rng.words(8).tobytes()
        secret = os.urandom(64) if seeded is None else seeded
        self._set_secret(secret)
        self._sure = plan.gate.sure
        self._everyone = np.arange(plan.copies if plan.polls == plan.copies else 0)
        self._round = 0
        self._unsure = 0
        self._unit_unsure: dict[bytes, int] = {}
        self._unit_counted: dict[bytes, int] = {}
        self._open: dict[tuple[int, int], _Open] = {}
        self._epoch = 0
        self._halt_reason: str | None = None
        self._halt_durable = False
        self._taught = 0
        self._last: NDArray[np.int64] | None = None
        self._counter: TreeCounter | None = None
        if not isinstance(plan.halting, Halting):
            if units == "people":
                raise ValueError("the paper's plan protects rounds, not people: use Plan.tight(..., unit_unsure=G)")
            self._counter = TreeCounter(plan.halting.noise_epsilon, plan.rounds, 1, self._rng.spawn())
        self._monitor_asked = monitor
        self._monitor = None if monitor is None else MonitorState(monitor, plan.rounds, self._rng.spawn())
        self._journal: state.Journal | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def _set_secret(self, secret: bytes) -> None:
        self._secret = secret
        self._prf = Prf(secret[:32])
        self._ticket_key = secret[32:64]

    def _fallback_function(self, fallback: Any) -> Callable[[Any], int]:
        try:
            known = fallback in self._index
        except TypeError:
            known = False
        if known:
            constant = self._index[fallback]
            return lambda x: constant
        if isinstance(fallback, str) and fallback == "coin":
            return lambda x: self._rng.below(len(self._labels))
        function = getattr(fallback, "predict_one", fallback)
        if not callable(function):
            raise ValueError("fallback must be 'coin', one of the labels, a callable of x, or a model with predict_one")

        def public(x: Any) -> int:
            label = function(x)
            try:
                return self._index[label]
            except (KeyError, TypeError):
                raise ValueError("the fallback answered with something that is not one of the labels") from None

        return public

    # ------------------------------------------------------------------ the loop

    def predict(self, x: Any, unit: str | bytes | None = None) -> Answer:
        """Answer one round: the label, whether the copies were sure, and a ticket for the right label."""
        with self._lock:
            self._check_process()
            who = self._who(unit)
            if self._halt_reason is not None:
                if self._journal is not None and not self._halt_durable:
                    self._journal.spent(self)
                    self._halt_durable = True
                return self._after_halt(x)
            if self._round == self.plan.rounds:
                self._halt("rounds")
                return self._after_halt(x)
            if self._journal is not None:
                self._journal.reserve(self._round + 1)
            self._round += 1
            # Which rounds the monitor counts follows from the public schedule, so it is settled before x is looked at.
            watched = self._counts_for_monitor(who)
            if self._monitor is not None:
                self._monitor.asked()
            while self._open and next(iter(self._open))[1] <= self._round - self.ticket_life:
                self._open.pop(next(iter(self._open)))
            copy = self._rng.below(self.plan.copies) if who is None else self._prf.copy_of(who, self.plan.copies)
            try:
                encoded, malformed = self._bank.encode(x), None
            except ValueError as error:
                encoded, malformed = None, error
            except Exception:  # whatever x is, its round goes on as any other
                encoded, malformed = None, ValueError("x is not of a form that this POP takes")
            label = None
            if self._round > self.plan.silent:
                label = self._live(encoded, malformed is not None, who)
            if malformed is not None:
                raise malformed
            shown = self._fallback(x) if label is None else label
            self._open[(self._epoch, self._round)] = _Open(copy, encoded, shown, watched, who)
            return Answer(self._labels[shown], label is not None, self._ticket(self._epoch, self._round))

    def _live(self, x: Any, malformed: bool, who: bytes | None) -> int | None:
        """Poll, gate, count, halting draw; what must be durable is, before anything is returned."""
        plan = self.plan
        poll = self._everyone if plan.polls == plan.copies else self._rng.subset(plan.copies, plan.polls)
        counts = np.zeros(plan.labels, dtype=np.int64) if malformed else self._bank.votes(x, poll)
        top, margin = lead(counts)
        sure = self._rng.word() < int(self._sure[min(margin, self._sure.size - 1)])
        self._last = counts
        capped = who is not None and self._unit_unsure.get(who, 0) >= plan.unit_unsure
        counted = not (sure or malformed or capped)
        if counted:
            self._unsure += 1
            if who is not None:
                self._unit_unsure[who] = self._unit_unsure.get(who, 0) + 1
        if self._fires(counted):
            self._halt_reason = "budget"
        if self._journal is not None and (counted or self._halt_reason):
            self._journal.spent(self, *([] if who is None else [who]))
            self._halt_durable = self._halt_reason is not None
        return top if sure and not malformed and not capped else None

    def _fires(self, counted: bool) -> bool:
        halting = self.plan.halting
        if isinstance(halting, Halting):
            return halting.fires(self._unsure, self._rng)
        assert self._counter is not None
        return self._counter.step(int(counted)) >= halting.limit

    def learn(self, ticket: str, y: Hashable) -> None:
        """Teach the label of an answered round to its unit's one copy. A ticket is good once."""
        with self._lock:
            self._check_process()
            label = self._label(y)
            key = self._redeem(ticket)
            waiting = self._open.pop(key)
            if self._monitor is not None and waiting.counted and label != waiting.answered:
                self._monitor.wrong(self._round - key[1])
            self._teach(waiting.copy, waiting.x, label)

    def teach(self, x: Any, y: Hashable, unit: str | bytes | None = None) -> None:
        """Teach a labelled record that was never asked: history, free of charge, to its unit's one copy."""
        with self._lock:
            self._check_process()
            who = self._who(unit)
            label = self._label(y)
            encoded = self._bank.encode(x)
            copy = self._rng.below(self.plan.copies) if who is None else self._prf.copy_of(who, self.plan.copies)
            self._teach(copy, encoded, label)

    def _teach(self, copy: int, x: Any, label: int) -> None:
        # The same answer whatever the copy's state: a learner's exception must not reach the asker.
        try:
            self._bank.learn(copy, x, label)
        except Exception:
            return
        self._taught += 1

    # ------------------------------------------------------------------ many at once

    def predict_many(
        self, xs: Sequence[Any] | NDArray[Any], units: Sequence[str | bytes] | None = None
    ) -> list[Answer]:
        """Answer many rounds at once: what `predict` would answer one after the other, much faster.

        The copies stay as they are during a batch; every row has its own poll, gate draw, count and halting draw, in
        order (docs/proofs/people.md). Nothing is returned before all of it is in the journal. Where `predict` would
        raise for a row, its answer has an `error` instead; a POP that has halted before raises as `predict` does.
        """
        with self._lock:
            self._check_process()
            return batches.predict_many(self, xs, units)

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        """Teach many labels at once. All good ones are learned; if some were bad, ValueError says so afterwards.

        What one unit brings must not decide whether another's label is learned: then it would touch many copies.
        """
        with self._lock:
            self._check_process()
            batches.learn_many(self, tickets, ys)

    def teach_many(
        self,
        xs: Sequence[Any] | NDArray[Any],
        ys: Sequence[Hashable],
        units: Sequence[str | bytes] | None = None,
    ) -> None:
        """Teach many labelled records at once. All good ones are learned; if some were bad, ValueError says so."""
        with self._lock:
            self._check_process()
            batches.teach_many(self, xs, ys, units)

    def forget(self, unit: str | bytes) -> None:
        """Reset the copy that knows this person, and drop their open questions.

        Nobody else is told, and what was spent stays spent. A snapshot on disk still holds the old copy: save again.
        """
        with self._lock:
            self._check_process()
            if self.units != "people":
                raise ValueError("only people can be forgotten: make the POP with units='people'")
            who = self._who(unit)
            assert who is not None
            copy = self._prf.copy_of(who, self.plan.copies)
            if self._journal is not None:
                self._journal.forgot(copy)
            self._bank.reset([copy])
            for key in [key for key, waiting in self._open.items() if waiting.who == who]:
                del self._open[key]  # their unanswered questions are theirs alone: nobody else's ticket is touched

    # ------------------------------------------------------------------ parts

    def _who(self, unit: str | bytes | None) -> bytes | None:
        """A keyed hash of the unit's id (ids themselves are never kept); refused when it is missing or not wanted."""
        if self.units == "rounds":
            if unit is not None:
                raise ValueError("this POP protects rounds, not people: leave unit out, or make it with units='people'")
            return None
        if not isinstance(unit, (str, bytes)) or not unit:
            raise ValueError("this POP protects people: unit must be a non-empty str or bytes id")
        name = unit.encode() if isinstance(unit, str) else unit
        return blake2b(name, key=self._ticket_key, digest_size=16, person=b"unit").digest()

    def _label(self, y: Hashable) -> int:
        try:
            return self._index[y]
        except (KeyError, TypeError):
            raise ValueError("y is not one of the labels this POP was made with; labels are public and fixed") from None

    def _counts_for_monitor(self, who: bytes | None) -> bool:
        if self._monitor_asked is None:
            return False
        if who is None:
            return True
        used = self._unit_counted.get(who, 0)
        if used >= self._monitor_asked.rounds_per_unit:
            return False
        self._unit_counted[who] = used + 1
        if self._journal is not None:
            self._journal.watched(self, who)
        return True

    def _ticket(self, epoch: int, number: int) -> str:
        text = f"{epoch}-{number}"
        return f"{text}-{blake2b(text.encode(), key=self._ticket_key, digest_size=16, person=b'ticket').hexdigest()}"

    def _redeem(self, ticket: str) -> tuple[int, int]:
        try:
            epoch, number = (int(part) for part in ticket.split("-")[:2])
            known = hmac.compare_digest(ticket.encode(), self._ticket(epoch, number).encode())
        except (AttributeError, TypeError, ValueError):
            raise TicketError("this is not a ticket: bring back the one that came with the answer") from None
        if not known:
            raise TicketError("this ticket was not issued by this POP")
        if number <= self._round - self.ticket_life:
            raise TicketError(f"this ticket has expired: labels are taken for {self.ticket_life:,} rounds")
        if (epoch, number) not in self._open:
            if epoch != self._epoch:
                raise TicketError("this ticket was used, or it expired when the POP was loaded again")
            raise TicketError("this ticket was used: a label is taken once")
        return epoch, number

    def _halt(self, reason: str) -> None:
        self._halt_reason = reason
        if self._journal is not None:
            self._journal.spent(self)
            self._halt_durable = True

    def _after_halt(self, x: Any) -> Answer:
        if self.after_halt == "raise":
            raise Halted(
                "this POP has halted: its rounds are over"
                if self._halt_reason == "rounds"
                else "this POP has halted: its privacy budget is used up; start a new one with a new plan"
            )
        return Answer(self._labels[self._fallback(x)], False, "")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this POP was forked: two processes must not spend one budget; make or load it where it is used"
            )
        if self._closed:
            raise RuntimeError("this POP was closed: load it again from its folder")

    # ------------------------------------------------------------------ what may be seen

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """All labels, public."""
        return self._labels

    @property
    def rounds(self) -> int:
        """Rounds taken so far (public)."""
        return self._round

    @property
    def state(self) -> Literal["silent", "live", "halted"]:
        """Where the run stands (public)."""
        if self._halt_reason is not None:
            return "halted"
        return "silent" if self._round < self.plan.silent else "live"

    @property
    def halt_reason(self) -> str | None:
        """None, "budget" or "rounds"."""
        return self._halt_reason

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to each unit: the plan's guarantee plus the monitor's price."""
        extra = 0.0 if self._monitor_asked is None else self._monitor_asked.epsilon
        plan = self.plan.guarantee
        return replace(plan, epsilon=plan.epsilon + extra, secure=not self._insecure)

    @property
    def monitor(self) -> MonitorState | None:
        """The private accuracy monitor: `pop.monitor.estimate` may be shown to anybody."""
        return self._monitor

    @property
    def operator(self) -> Operator:
        """Exact numbers for the operator's eyes only: outside the guarantee."""
        return Operator(self)

    # ------------------------------------------------------------------ state on disk

    def save(self, path: str | Path) -> None:
        """Write the state to this folder, and from now on keep a journal there of everything that is spent.

        The folder then holds private data and keys: see docs/state.md. A POP lives in one folder.
        """
        with self._lock:
            self._check_process()
            state.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, learner: Any = None, fallback: Any = None, trusted: bool = False) -> Self:
        """Go on from a folder that `save` wrote: nothing that was spent is forgotten, all randomness is fresh.

        Parameters
        ----------
        learner
            The prototype, for learners that are not Confide's own.
        fallback
            The fallback again, where it was a callable or a model.
        trusted
            Allow pickled replicas of River or scikit-learn models; only for folders nobody else could write.
        """
        return state.load(cls, Path(path), learner=learner, fallback=fallback, trusted=trusted)

    def close(self) -> None:
        """Release the folder's lock; the state there can then be loaded by another process."""
        with self._lock:
            if self._journal is not None:
                if os.getpid() == self._pid:
                    self._journal.reached(self._round)
                self._journal.close()
                self._journal = None
                self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"POP({self._bank!r}, {self.guarantee}, {self.state})"

    def __getstate__(self) -> dict[str, Any]:
        if not self._insecure or self._journal is not None:
            raise TypeError(
                "a POP is not copied or pickled: two of it would spend one budget twice; use save() and load() instead"
            )
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_fallback")}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)
        self._lock = threading.RLock()
        self._fallback = self._fallback_function(self._fallback_given)
        self._pid = os.getpid()
