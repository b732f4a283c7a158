"""POP: an online learner made private between its users. The front of the loop: arguments, lock, durability, disk.

Claims and proofs: docs/proofs/gate.md, docs/proofs/halting.md, docs/proofs/people.md (units, tickets, forgetting).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from confide._checks import all_labels
from confide._checks import label_weights as checked_weights
from confide.banks import Bank, Place, ShardedBank, bank_for
from confide.banks.none import NoBank
from confide.errors import ConfideWarning, Halted, StateError
from confide.frames import rows_of, values_of
from confide.planning.lives import Life
from confide.planning.plan import Guarantee, Plan
from confide.pop import batches, state
from confide.pop.account import Account
from confide.pop.base import SOURCES, TICKET_LIFE, Answer, Followed, Told, Unit, Xs
from confide.pop.fallback import Fallback
from confide.pop.guiding import PublicGuide
from confide.pop.heirs import succeed
from confide.pop.keeping import Keeper
from confide.pop.leaning import Leaning
from confide.pop.legs import Legs
from confide.pop.lessons import Lessons
from confide.pop.look import card_of, quiet, standing
from confide.pop.loop import Loop, Outcome
from confide.pop.monitor import MonitorState
from confide.pop.operator import Operator
from confide.pop.randomizing import Randomizing
from confide.pop.routing import Routing
from confide.pop.settings import Options, Settings, check_options
from confide.pop.several import Parts
from confide.pop.state import Saved
from confide.pop.succession import Inherited, Predecessor
from confide.pop.telling import Telling
from confide.pop.tickets import ROLLED_BACK, Key, Tickets
from confide.privacy.random import Random

__all__ = ["POP", "Operator"]

SERVED = (
    "this folder is a served model's: what people told it since its last snapshot teaches nothing here, and their "
    "tickets are not known; open it with `confide serve`"
)
"""What is said to who loads such a folder."""

_LATER = contextlib.suppress(StateError)


class POP:
    """Makes an online learner private between its users.

    (ε, δ)-challenge-DP with the numbers of `guarantee`: whatever one unit tells it, nobody else finds out from their
    own answers, not even all others together. Proof pages: docs/proofs/gate.md, docs/proofs/halting.md,
    docs/proofs/people.md.

    Parameters
    ----------
    learner
        A Confide learner, a River classifier or pipeline, or a scikit-learn classifier: a prototype, never taught. None
        for a plan without copies: its guide answers alone.
    plan
        A `confide.Plan`.
    labels
        All labels, public, as many as the plan says.
    features
        For arrays their number; for dicts `confide.learners.Features(...)`; leave it out for River models. The copies
        and the guide both read x by it; by an encoder of your own the copies alone, and the guide hashes what x holds.
    units
        "rounds": each round is protected. "people": each person is, over any number of rounds; then every call takes
        `unit`, an authenticated id. None: as the plan says, and rounds where it does not say.
    fallback
        What answers when nothing private may be used and there is no guide yet: "coin", one of the labels, a callable
        of x, or a model with `predict_one`. It must not know anything private. It is asked in every round, needed or
        not.
    label_weights
        One positive public number a label, in their order or by label (`{"fraud": 20}`, the others 1): how much the
        guide makes of it. For rare labels: more of them are found, and more often another is taken for one.
    seed
        For tests and replays only: whatever is made with one promises nothing, and says so. Or a generator.
    options
        See `confide.pop.settings.Options`.

    Examples
    --------
    >>> import confide
    >>> plan = confide.Plan.tight(epsilon=4.0, delta=1e-5, rounds=2000)
    >>> pop = confide.POP(None, plan, labels=["no", "yes"], features=1)
    >>> for i in range(2000):
    ...     answer = pop.predict([i % 7 - 3.0])
    ...     pop.learn(answer.ticket, "yes" if i % 7 > 3 else "no")
    >>> answer.source, pop.guarantee.epsilon <= 4
    ('guide', True)
    """

    loop_type = Loop
    """The loop that runs; another one is never run fused."""
    tells = True
    """Whether it warns when it stops; whoever says it in their own words turns that off."""

    def __init__(
        self,
        learner: Any,
        plan: Plan,
        *,
        labels: Sequence[Hashable],
        features: Any = None,
        units: Literal["rounds", "people"] | None = None,
        fallback: Any = "coin",
        label_weights: Mapping[Any, float] | Sequence[float] | None = None,
        seed: int | Random | None = None,
        **options: Unpack[Options],
    ) -> None:
        check_options(options)
        bank, public_start = options.get("bank"), options.get("public_start", False)
        own_bank = bank is not None and not isinstance(bank, Place)
        if own_bank and public_start:
            raise ValueError("a bank of your own starts as it was made: leave public_start out")
        labels = all_labels(labels)
        weights = checked_weights(label_weights, labels)
        settings = Settings(
            learner, plan, labels, fallback, features, units or plan.units or "rounds",
            options.get("after_halt", "fallback"), options.get("ticket_life", TICKET_LIFE), options.get("monitor"),
            public_start, None if weights is None else tuple(weights),
        )  # fmt: skip
        settings.verify()
        self._settings = settings
        self._loop = self._make_loop(settings, seed if isinstance(seed, Random) else Random(seed), bank)
        settings.check_certificate(self._loop.fallback.kind)
        self._insecure, self._own_bank = not self._loop.rng.secure, own_bank
        self._keeper, self._telling = Keeper(self._loop), Telling(self._loop)

    def _make_loop(self, settings: Settings, rng: Random, bank: Bank | Place | None) -> Loop:
        plan, index = settings.plan, settings.index
        if plan.copies == 0:
            if bank is not None:
                raise ValueError("the plan has no copies, so a bank is not used: leave it out")
            bank = NoBank(plan.labels)
        elif bank is None or isinstance(bank, Place):
            of = settings.learner, plan.copies, settings.labels, settings.features, rng.spawn(), settings.public_start
            bank = bank_for(*of) if bank is None else ShardedBank(bank, *of)
        if (bank.copies, bank.labels) != (plan.copies, plan.labels):
            raise ValueError(f"the plan has {plan.copies} copies and {plan.labels} labels, the bank another number")
        routing = Routing(settings.units, plan.eligible, rng)
        account, tickets = Account(plan, rng), Tickets(routing.ticket_key, settings.ticket_life)
        fallback = Fallback(settings.fallback, index, rng.spawn())
        monitor = None if settings.monitor is None else MonitorState(settings.monitor, plan.horizon, rng.spawn())
        parts = Parts.of(plan, settings.inputs, settings.label_weights, rng, account)
        for part in parts:
            part.given(settings.learner, settings.labels, settings.ticket_life == 1)
        return self.loop_type(
            plan, index, rng, bank, account, tickets, routing, fallback, Lessons(bank), monitor,
            parts=parts, goes_on=settings.after_halt == "fallback", leaning=Leaning(plan) if plan.copies else None,
            encoders=tuple(getattr(settings.inputs, "embeddings", {}).values()),
        )  # fmt: skip

    # ------------------------------------------------------------------ one at a time

    def predict(self, x: Any, unit: Unit | None = None) -> Answer:
        """Answer one round: the label, whether the copies were sure, and a ticket for the right label."""
        who = self._loop.routing.who(unit)
        outcome, entered = self._keeper.ask_one(x, who)
        account = self._loop.account
        account.settle(entered)  # nothing leaves before it is durable
        if who is not None and self.tells:
            self._telling.people([who])
        if (outcome.number == 1 or account.halted is not None) and self.tells:
            self._telling.stands()
            self._telling.names(self.names, [x] if outcome.number == 1 else [])
        if outcome.error is not None:
            raise outcome.error
        return self._answer(outcome)

    def learn(self, ticket: str, y: Hashable) -> None:
        """Teach the label of an answered round to its unit's one copy. A ticket is good once."""
        refused = dict[int, ValueError]()
        given = self._read(ticket, y, 0, refused)
        refused |= self._taught(given, (ticket,) if given else (), 1)
        if refused:
            raise refused.popitem()[1]  # and no call holds it any more, nor it the label

    def teach(self, x: Any, y: Hashable, unit: Unit | None = None) -> None:
        """Teach a labelled record that was never asked: history, free of charge, to its unit's one copy.

        Where rounds are protected, a record that was cut off (by Ctrl-C) must not be sent again: it may be in a copy,
        and would come to another one. The guide takes no such records any more then. While ranges of numbers are found
        and after that, what is asked is better taught with its ticket: the guide makes less of a record, which may have
        been asked before; not with `ticket_life=1`, where all labels come as records.
        """
        with self._keeper.lock:
            self._keeper.teach_one(x, y, self._loop.routing.who(unit))
            self._tell_records(1)
            self._keeper.taught()

    def forget(self, unit: Unit) -> None:
        """Reset the copy that knows this person, and drop their open questions.

        Nobody else is told, and what was spent stays spent. A snapshot on disk still holds the old copy: save again.
        """
        if self.units != "people":
            raise ValueError("only people can be forgotten: make the POP with units='people'")
        who = self._loop.routing.who(unit)
        assert who is not None
        self._loop.account.settle(self._keeper.forget(who), private=True)

    # ------------------------------------------------------------------ many at once

    def predict_many(self, xs: Xs, units: Sequence[Unit] | None = None) -> list[Answer]:
        """Answer many rounds at once: what `predict` would answer one after the other, much faster.

        The copies stay as they are during a batch; every row has its own poll, gate word, count and halting word, in
        order (docs/proofs/people.md). Nothing is returned before all of it is durable. Where `predict` would
        raise for a row, its answer has an `error` instead and no ticket, and a warning says how many there are; a POP
        that has halted before raises as `predict` does.
        """
        rows = rows_of(xs, self.named, self.names)
        whos = self._whos(units, len(rows))
        outcomes, entered = self._keeper.ask(rows, whos)
        self._loop.account.settle(entered)
        answered = sum(outcome.number > 0 for outcome in outcomes)
        if self.tells:
            before = outcomes[0].number - 1 if answered else 0
            self._telling.stands()
            self._telling.names(self.names, rows[:1] if answered and not before else [])
            self._telling.at_once(before, answered)
            self._telling.people(whos)
            self._telling.refused([outcome.error for outcome in outcomes if outcome.error is not None], len(rows))
        first = outcomes[0].error if outcomes else None
        if first is not None and (isinstance(first, Halted) or not isinstance(first, Exception)):
            raise first
        return [self._answer(outcome) for outcome in outcomes]

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Hashable]) -> None:
        """Teach many labels at once. All good ones are learned; if some were bad, ValueError says so afterwards.

        A row without a ticket is passed over: its question was refused, as its answer says, and there is nothing to
        learn. What one unit brings must not decide whether another's label is learned: then it would touch many copies.
        """
        tickets, ys = values_of(tickets), values_of(ys)
        if len(tickets) != len(ys):
            raise ValueError(f"there are {len(tickets)} tickets for {len(ys)} labels: give one label for each")
        given, refused = list[tuple[Key, int]](), dict[int, ValueError]()
        places = batches.ticketed(tickets)
        for i in places:
            given += self._read(tickets[i], ys[i], i, refused)
        places = [i for i in places if i not in refused]
        bad = self._taught(given, [tickets[i] for i in places], len(tickets))
        refused |= {places[i]: why for i, why in bad.items()}
        batches.refuse(dict(sorted(refused.items())))

    def _read(
        self, ticket: str, y: Hashable, place: int, refused: dict[int, ValueError]
    ) -> tuple[tuple[Key, int], ...]:
        """The key of a ticket and the label's number; or nothing, and by its place what is wrong with them."""
        loop = self._loop
        try:
            label = loop.label(y)
            return ((loop.tickets.read(ticket), label),)
        except ValueError as error:
            refused[place] = error.with_traceback(None)
            return ()

    def _taught(
        self, given: Collection[tuple[Key, int]], tickets: Sequence[str], brought: int
    ) -> dict[int, ValueError]:
        """Labels with the keys of their tickets, of so many that were brought; by place, what is wrong with them."""
        loop, account = self._loop, self._loop.account
        with self._keeper.lock:
            if loop.tickets.lives and any(loop.tickets.lost(ticket, account.rounds) for ticket in tickets):
                account.settle(self._keeper.seal(ROLLED_BACK))
                raise StateError(ROLLED_BACK)
            late = loop.late
            bad, entered = self._keeper.learn(given)
            if (loop.late is not late or account.halted is not None) and self.tells:
                self._telling.labels(late, brought)
        with _LATER:  # the labels are taken all the same: the marks go out with the next round
            account.settle(entered, private=True)
        return bad

    def teach_many(self, xs: Xs, ys: Sequence[Hashable], units: Sequence[Unit] | None = None) -> None:
        """Teach many labelled records at once. All good ones are learned; if some were bad, ValueError says so.

        Records of a call that was cut off must not be sent again, as for `teach`.
        """
        rows, ys = rows_of(xs, self.named, self.names), values_of(ys)
        if len(rows) != len(ys):
            raise ValueError(f"there are {len(rows)} records for {len(ys)} labels: give one label for each")
        with self._keeper.lock:
            taught, _ = self._keeper.teach(rows, ys, self._whos(units, len(rows)))
            refused = {**taught.refused, **taught.past}
            self._tell_records(len(rows))
            self._keeper.taught()
        batches.refuse(refused)

    def _tell_records(self, rows: int) -> None:
        """Warn of what stands; a warning that is an error here comes after the records were taught, all of them."""
        try:
            if self.tells:
                self._telling.records(rows)
        except Warning:
            self._keeper.taught()
            raise

    def follow_many(self, xs: Any, ys: NDArray[np.int64], units: Sequence[Unit] | None = None) -> Followed:
        """Ask each row, then teach its label (a number, −1 for none) before the next one: `confide.evaluate`'s work."""
        ys = np.asarray(ys)
        if ys.ndim != 1 or (ys.size and ys.dtype.kind not in "iu") or len(xs) != len(ys):
            raise ValueError(f"there are {len(xs)} rows: give one label for each, as a whole number")
        if not ((ys >= -1) & (ys < self.plan.labels)).all():
            raise ValueError(f"a label's number must be from 0 to {self.plan.labels - 1}, or −1 for none")
        chunk, entered = self._keeper.follow(xs, ys.astype(np.int64), self._whos(units, len(ys)))
        self._loop.account.settle(entered)
        if self.tells:
            self._telling.stands()
        return Followed.of() if chunk is None else chunk.followed()

    def readable(self, xs: Any) -> dict[int, str]:
        """What is wrong with rows that cannot be read. Takes no round, and changes nothing."""
        with self._keeper.lock:
            loop = self._loop
            return {**loop.parts.unreadable(xs), **loop.bank.encode_many(xs)[1]}

    # ------------------------------------------------------------------ parts

    def _whos(self, units: Sequence[Unit] | None, rows: int) -> list[bytes | None]:
        who = self._loop.routing.who
        if isinstance(units, str | bytes):
            raise ValueError("units must be a sequence of ids, one for each row")
        units = values_of(units)
        if units is None:
            who(None)  # raises, and says why, where people are protected
            return [None] * rows
        if self.units == "rounds":
            who("")
        if len(units) != rows:
            raise ValueError(f"there are {len(units)} units for {rows} rows: give one unit for each")
        return [who(unit) for unit in units]

    def _answer(self, outcome: Outcome) -> Answer:
        if outcome.error is not None:
            return Answer(None, False, "", str(outcome.error))
        labels = self._settings.labels
        guide = None if outcome.guided < 0 else labels[outcome.guided]
        said = labels[outcome.label], outcome.sure, outcome.ticket, None, SOURCES[outcome.source], guide
        alone = None if self._settings.plan.promise.protect == "rows" else self._loop.parts.get(Randomizing)
        if alone is None:
            return Answer(*said)
        shares = alone.told(outcome.waiting)
        return Told(*said, None if shares is None else dict(zip(labels, shares, strict=True)))

    # ------------------------------------------------------------------ what may be seen

    @property
    def plan(self) -> Plan:
        """Every number of the run."""
        return self._settings.plan

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """All labels, public."""
        return self._settings.labels

    @property
    def label_weights(self) -> tuple[float, ...] | None:
        """How much the guide makes of each label, public; None where all are alike."""
        return self._settings.label_weights

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with beside learner and plan, by name."""
        return self._settings.options()

    @property
    def units(self) -> Literal["rounds", "people"]:
        """Whose privacy is protected."""
        return self._settings.units

    @property
    def named(self) -> bool:
        """Whether x is a dict of named features rather than an array."""
        return self._settings.named

    @property
    def names(self) -> tuple[Hashable, ...]:
        """The features that were declared by name, public; empty where none were."""
        features = self._settings.inputs
        return tuple(features if isinstance(features, list | tuple) else getattr(features, "declared", ()))

    @property
    def rounds(self) -> int:
        """Rounds taken so far (public), all of a call under way included: where to go on after one that was cut off."""
        return self._loop.account.shown[0]

    @property
    def state(self) -> Literal["silent", "live", "halted"]:
        """Where the run stands (public)."""
        rounds, halted = self._loop.account.shown
        if halted is not None:
            return "halted"
        return "silent" if rounds < quiet(self.plan, self._loop.account.legs_shown) else "live"

    @property
    def standing(self) -> str:
        """The same in words (public): also who answers after a halt, and whether anything is learned still."""
        account = self._loop.account
        said = standing(self.plan, *account.shown, self._loop.goes_on, account.legs_shown)
        alone = self._loop.parts.get(Randomizing)
        return f"{said}, but your model has failed to {alone.in_vain}" if alone is not None and alone.in_vain else said

    @property
    def halt_reason(self) -> str | None:
        """None, "budget" or "rounds"."""
        return self._loop.account.shown[1]

    @property
    def legs(self) -> Legs | None:
        """Where a relay stands (public): the leg, when it began, from which round on it votes; None without a relay."""
        return self._loop.account.legs_shown

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to each unit: the plan's guarantee plus the monitor's price."""
        return replace(self._settings.guarantee, secure=not self._insecure)

    @property
    def monitor(self) -> MonitorState | None:
        """The private accuracy monitor: `pop.monitor.estimate` may be shown to anybody."""
        return self._loop.monitor

    @property
    def guide(self) -> PublicGuide | None:
        """The guide, which everyone may see; None where the plan has none."""
        guiding = self._loop.guiding
        return None if guiding is None else PublicGuide(guiding, self._keeper.lock)

    def probabilities(self, x: Any) -> dict[Hashable, float]:
        """How likely each label is, by the model that everyone may see. It is free, and takes no round."""
        guide, alone = self.guide, self._loop.parts.get(Randomizing)
        if alone is not None:
            with self._keeper.lock:
                self._keeper.begin()
                shares = alone.probabilities(x)
        elif guide is not None:
            shares = guide.probabilities(x)
        else:
            raise ValueError("there are no probabilities where copies alone vote: their votes are nobody's to see")
        return dict(zip(self.labels, shares.tolist(), strict=True))

    @property
    def released(self) -> list[tuple[str, int, NDArray[np.int64]]]:
        """Everything that public parts released (name, number, noisy row): everybody may see it."""
        with self._keeper.lock:
            rows = [release for part in self._loop.parts for release in part.releases()]
        return [(name, number, np.frombuffer(noisy, dtype="<i8").astype(np.int64)) for name, number, noisy, _ in rows]

    @property
    def operator(self) -> Operator:
        """Exact numbers for the operator's eyes only: outside the guarantee."""
        return Operator(self._loop, self._keeper.lock)

    def rehearse(self) -> None:
        """Compile what rounds need before anybody asks: a service does so before it is ready. Nothing changes."""
        for part in self._loop.parts:
            part.rehearse()

    def keep(self) -> Keeper:
        """The same calls for an owner who keeps a journal, which then has the open tickets: the service's desk."""
        return self._keeper.journaled()

    # ------------------------------------------------------------------ state on disk

    def save(self, path: str | Path, *, ledger: str | None = None, model: str = "pop") -> None:
        """Write the state to this folder, and from now on keep a ledger there of everything that is spent.

        The folder then holds private data and keys: see docs/state.md. A POP lives in one folder. When it is saved
        must not depend on anything private. The first time, `ledger` may name a PostgreSQL server
        (`postgresql://host/database`) that has the ledger instead, and `model` what it is called there.
        """
        with self._keeper.lock:
            self._keeper.begin()
            about = {"insecure": self._insecure, "own_bank": self._own_bank}
            state.save(self._settings, self._loop, Path(path), about, ledger=ledger, model=model)

    def succeed(
        self,
        old: str | Path,
        path: str | Path,
        life: Life | None = None,
        *,
        ledger: str | None = None,
        model: str = "pop",
        old_ledger: str | None = None,
        old_model: str = "pop",
        told: Callable[[str], object] | None = None,
    ) -> Inherited:
        """Save this POP, which has not begun, as the successor of the one in the folder `old`, which is over then.

        It begins with what the old one released, as far as columns and labels are the same. What each person may teach
        it follows from what they taught all models before it, so that all of them together keep `life`, for everybody
        (docs/proofs/composition.md). That is declared once; later successors leave it out. `told` is called with what
        goes on and what is lost, before the old model is over; if it raises, the old one goes on.

        Raises
        ------
        ValueError
            If it would break somebody's life, or if nothing is proved for such a pair of models.
        StateError
            If the old model is in use, has a successor already, or must not be used.
        """
        with self._keeper.lock:
            self._keeper.begin()
            about = {"insecure": self._insecure, "own_bank": self._own_bank}
            given = Predecessor(Path(old), old_ledger, old_model)
            heir = self._loop.line is not None
            try:
                found = succeed(
                    self._settings, self._loop, Path(path), about, given, life, ledger=ledger, model=model, told=told
                )
            except BaseException:
                self._keeper.closed = self._loop.line is not None and not heir  # the next try makes another one
                raise
            self._insecure |= found.insecure
            return found

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        learner: Any = None,
        fallback: Any = None,
        trusted: bool = False,
        rng: Random | None = None,
        bank: Bank | Place | None = None,
        ledger: str | None = None,
        model: str = "pop",
    ) -> Self:
        """Go on from a folder that `save` wrote: nothing that was spent is forgotten, all randomness is fresh.

        Parameters
        ----------
        learner
            The prototype, for learners that are not Confide's own.
        fallback
            The fallback again, where it was a callable or a model.
        trusted
            Allow pickled replicas of River or scikit-learn models; only for folders nobody else could write.
        rng
            As `seed` for `POP`: a generator.
        bank
            A fresh bank like the one that the POP was made with, where that was given to it; or where the copies are to
            live, wherever they lived before.
        ledger, model
            As for `save`.
        """
        with state.opened(Path(path), ledger, model) as saved:
            settings = saved.settings(learner, fallback, bank is not None and not isinstance(bank, Place))
            pop = cls(settings.learner, settings.plan, **settings.options(), seed=rng, bank=bank)
            if saved.served:
                warnings.warn(SERVED, ConfideWarning, stacklevel=2)
            return pop.resume(saved, trusted)

    def resume(self, saved: Saved, trusted: bool = False) -> Self:
        """Take over a saved state: `load` does this to a POP that it has just made."""
        with self._keeper.lock:
            self._insecure |= saved.insecure
            saved.restore(self._loop, trusted)
        return self

    def close(self) -> None:
        """Give the folder back; the state there can then be loaded by another process."""
        with self._keeper.lock:
            book = self._loop.account.book
            if book is not None:
                book.close()
                self._keeper.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        bank = repr(self._loop.bank) if self.plan.copies else f"{self.plan.rest} alone"
        return f"POP({bank}, {self.guarantee}, {self.standing})"

    def _repr_html_(self) -> str:
        return card_of(self.plan, self.guarantee, self.units, self.rounds, self.standing)

    def __getstate__(self) -> dict[str, Any]:
        if not self._insecure or self._loop.account.book is not None:
            raise TypeError(
                "a POP is not copied or pickled: two of it would spend one budget twice; use save() and load() instead"
            )
        return vars(self)
