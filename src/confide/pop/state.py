"""A POP on disk: a snapshot of the copies, and a ledger of what was spent that is always ahead of the answers.

A state is a folder, readable by its owner alone (docs/state.md):

    snapshot.npz   arrays and a JSON header, no pickle; replaced atomically
    ledger.db      what was spent (confide.ledger)
    key            the keys of the routing and of the tickets

Loading takes the snapshot's copies and the ledger's spending, so an old snapshot can neither lower what was spent, nor
revive what was forgotten, nor make a used ticket good again. All randomness is new; only the keys persist. Proof page:
docs/proofs/people.md.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from confide.banks.base import Failures
from confide.errors import ConfideWarning, StateError
from confide.labels.writing import UNWRITTEN, Unwritable
from confide.learners.spec import from_spec, to_spec
from confide.ledger import snapshot
from confide.ledger.book import Book
from confide.ledger.ledger import Ledger, Spent, ledger_of
from confide.planning.plan import Guarantee, Plan
from confide.pop.legs import KIND, Legs
from confide.pop.loop import Loop
from confide.pop.monitor import Monitor
from confide.pop.routing import Routing
from confide.pop.settings import Settings
from confide.pop.several import Again, check_parts
from confide.pop.succession import before_of, check_line, check_same, line_of
from confide.pop.tickets import Key, Tickets, Waiting
from confide.privacy.sparse import CounterBudget

__all__ = ["MODEL", "Checked", "Saved", "check", "check_savable", "clear", "key_of", "look", "opened", "save"]

MODEL = "pop"
"""The name of the one model in a POP's own ledger."""


# ---------------------------------------------------------------------- out


def save(
    settings: Settings, loop: Loop, folder: Path, about: Mapping[str, bool], *, ledger: str | None, model: str,
    before: Mapping[bytes, int] | None = None,
) -> None:  # fmt: skip
    """See `POP.save`; `about` says whether it was made with a seed, and with a bank of somebody's own.

    `before` are the accounts that people bring to a successor.
    """
    check_savable(settings)
    arrays: dict[str, Any] = {}
    loop.lessons.apply()
    header = {**_settings_header(settings), **_loop_header(loop, arrays), **about}
    book = loop.account.book
    if book is None:
        book = _first(loop, folder, ledger_of(folder, ledger), model, before)
    elif folder.resolve() != book.home:
        raise StateError(f"this POP lives in {book.home}: a second copy elsewhere could spend the budget again")
    book.wait(book.sequence, private=True)  # what waits may be private: this save alone fails with it
    snapshot.write(folder, {**header, "sequence": book.sequence, "life": [book.epoch, book.mark]}, arrays)
    # What each person's labels left behind goes with this call alone.
    book.sweep(loop.account.rounds - settings.ticket_life, loop.parts.saved(book.sequence))


def check_savable(settings: Settings) -> None:
    """StateError for what cannot be written down."""
    if isinstance(settings.plan.halting, CounterBudget):
        raise StateError("the paper's plan halts by a noisy counter that must not be restarted: it cannot be saved")
    if any(not isinstance(label, (str, int, bool)) for label in settings.labels):
        raise StateError("only labels that are str or int can be saved")
    if any(each.name is None for each in getattr(settings.features, "embeddings", {}).values()):
        raise StateError("an encoder without a name cannot be saved: give it one with confide.text.register")
    if settings.features is not None and to_spec(settings.features) is None:
        raise StateError("features= is an encoder of your own, which cannot be saved: use confide.learners.Features")


def _first(loop: Loop, folder: Path, ledger: Ledger, model: str, before: Mapping[bytes, int] | None) -> Book:
    """The ledger's row, made from what was spent so far; the POP lives there from now on."""
    if loop.line is None:
        snapshot.make_folder(folder)
        snapshot.write_key(folder, loop.routing.secret)
    if before is not None:
        ledger.create(before_of(model), Spent(labels=before))
    account, spent = loop.account, loop.account.spent
    ledger.create(model, loop.parts.spent(spent))
    book = ledger.claim(model)
    account.keep(book)
    book.home = folder.resolve()
    if loop.parts.notes:  # tickets name their life: a rolled-back folder is known by them
        loop.tickets.epoch = book.epoch
        loop.tickets.lives = {book.epoch: (book.mark, account.stated)}
    return book


def _settings_header(settings: Settings) -> dict[str, Any]:
    fallback, monitor = settings.fallback, settings.monitor
    return {
        "plan": settings.plan.to_json(),
        "labels": list(settings.labels),
        "fallback": fallback if isinstance(fallback, (str, int, bool)) else None,
        "units": settings.units,
        "after_halt": settings.after_halt,
        "ticket_life": settings.ticket_life,
        "monitor": None if monitor is None else asdict(monitor),
        "public_start": settings.public_start,
        "label_weights": settings.label_weights,
        "learner": None if settings.public_start else to_spec(settings.learner),
        "features": to_spec(settings.features),
        "inputs": to_spec(settings.inputs),
    }


def _loop_header(loop: Loop, arrays: dict[str, Any]) -> dict[str, Any]:
    bank = {}
    for name, value in loop.bank.state(trusted=True).items():
        if isinstance(value, np.ndarray):
            arrays[f"bank/{name}"] = value
        else:
            bank[name] = value
    arrays |= loop.parts.arrays()
    return {
        "bank": bank,
        "key": blake2b(loop.routing.secret).hexdigest(),
        "taught": loop.lessons.taught,
        "failures": list(loop.failures.plus(loop.parts.failures)),
        "open": _open_tickets(loop, arrays),
        "noted": loop.tickets.kept and loop.parts.knows,
        "parts": loop.parts.fingerprints(),
        "line": None if loop.line is None else loop.line.to_json(),
        **({} if loop.account.legs is None else {"leg": loop.leg}),
    }


def _open_tickets(loop: Loop, arrays: dict[str, Any]) -> list[list[Any]]:
    """Open tickets whose x can be stored without pickle; others expire with this process.

    One whose row a part cannot write down ends now: who saves is told, and later whoever brings its label.
    """
    rows, kept, questions, ended = list[list[Any]](), list[Any](), dict[str, list[Any]](), dict[Key, str]()
    if loop.tickets.kept:
        return []
    for (epoch, number), waiting in loop.tickets:
        entry = [epoch, number, waiting.copy, waiting.answered, None, waiting.who and waiting.who.hex()]
        own = isinstance(waiting.x, np.ndarray)
        if own:
            entry[4] = waiting.x.size
        else:
            try:
                entry[4] = json.loads(json.dumps(waiting.x))
            except (TypeError, ValueError):
                continue
            if entry[4] != waiting.x:
                continue
        try:
            rows.append([*entry, loop.parts.write(waiting.questions, questions)])
        except Unwritable as error:
            ended[epoch, number] = str(error)
        else:
            kept += [waiting.x] if own else []
    for key, why in ended.items():
        loop.tickets.end(key, why)
    if ended:
        words = f"{len(ended):,} open questions take no label any more: {UNWRITTEN}"
        warnings.warn(words, ConfideWarning, stacklevel=4)
    if kept:
        arrays["open"] = np.concatenate(kept)
    arrays |= {f"open/{name}": np.concatenate(each) for name, each in questions.items()}
    return rows


# ---------------------------------------------------------------------- in


@dataclass
class Saved:
    """A state that is being loaded: claimed, read, and not yet anybody's."""

    folder: Path
    header: Mapping[str, Any]
    arrays: Mapping[str, Any]
    spent: Spent
    book: Book
    ledger: Ledger
    model: str

    @property
    def insecure(self) -> bool:
        """Whether it was made with a seed."""
        return bool(self.header["insecure"])

    @property
    def noted(self) -> bool:
        """Whether the journal has every record that is in anything that was released."""
        return bool(self.header.get("noted")) or all(one[0] == KIND for one in self.spent.released)  # legs are none

    def journal(self) -> Iterator[tuple[str, int, int, bytes]]:
        """What an owner who keeps a journal has noted, one after the other (`Ledger.journal`)."""
        return self.ledger.each_note(self.model)

    @property
    def served(self) -> bool:
        """Whether a desk has noted questions and lessons in it, which a POP by itself does not read."""
        return any(not kind.startswith("part/") for kind, *_ in self.journal())

    def settings(self, learner: Any, fallback: Any, own_bank: bool = False) -> Settings:
        """What the POP was made with; what cannot be stored is given again."""
        header = self.header
        if own_bank != header["own_bank"]:
            was = "no bank of your own: leave bank out" if own_bank else "a bank of your own: load(path, bank=…)"
            raise StateError(f"this POP was made with {was}")
        given = learner if learner is not None else from_spec(header["learner"])
        plan = Plan.from_json(header["plan"])
        if given is None and plan.copies:
            raise StateError("the learner is not one of Confide's own: give it again, load(path, learner=…)")
        refill = fallback if fallback is not None else header["fallback"]
        if refill is None:
            raise StateError("the fallback was a callable or a model: give it again, load(path, fallback=…)")
        return Settings(
            given,
            plan,
            tuple(header["labels"]),
            refill,
            from_spec(header["features"]),
            header["units"],
            header["after_halt"],
            header["ticket_life"],
            None if header["monitor"] is None else Monitor(**header["monitor"]),
            header["public_start"] and plan.copies > 0,
            None if header.get("label_weights") is None else tuple(header["label_weights"]),
        )

    def restore(self, loop: Loop, trusted: bool) -> None:
        """Bring a fresh loop to where this state stands, and hand it the book."""
        secret = key_of(self.folder, self.header)
        stored = {name.removeprefix("bank/"): a for name, a in self.arrays.items() if name.startswith("bank/")}
        loop.bank.load_state({**self.header["bank"], **stored}, trusted=trusted)
        loop.routing = Routing(loop.routing.units, loop.plan.eligible, loop.rng, secret)
        loop.tickets = Tickets(loop.routing.ticket_key, loop.tickets.life)
        loop.tickets.epoch, loop.tickets.used = self.book.epoch, self.spent.used
        loop.tickets.lives = self.spent.lives if loop.parts.notes else {}
        gone = [(copy, who) for sequence, copy, who in self.spent.forgot if sequence > self.header["sequence"]]
        loop.bank.reset([copy for copy, _ in gone])
        self._reopen(loop, {who for _, who in gone})
        loop.line = line_of(self.header)
        loop.lessons.count(self.header["taught"])
        loop.lost = loop.lost.plus(Failures(*self.header.get("failures", ())))
        loop.account.restore(self.spent)
        loop.account.book = self.book
        if loop.account.legs is not None:
            loop.leg = self.header["leg"]
            if loop.leg > loop.account.legs.number:
                raise StateError("the snapshot is of a later leg than the ledger, which was rolled back: do not use it")
            loop.renew()
        loop.parts.resume(_without_legs(self.spent, loop.plan), loop.account)
        loop.parts.restore(self.arrays, trusted)
        for _, who in gone:
            loop.parts.forget(who)
        loop.parts.catch_up(self.journal() if loop.parts.notes else (), self.header["sequence"])

    def _reopen(self, loop: Loop, gone: set[bytes]) -> None:
        """The tickets that were open at the snapshot, less those of people forgotten since."""
        waiting, at, read = self.arrays.get("open", np.empty(0)), 0, dict[str, int]()
        for epoch, number, copy, answered, x, who, written in self.header["open"]:
            if isinstance(x, int):
                x, at = waiting[at : at + x], at + x
            questions, whose = loop.parts.read(written, self.arrays, read), who and bytes.fromhex(who)
            if whose not in gone:
                loop.tickets.restore((epoch, number), Waiting(copy, x, answered, False, whose, questions))


def _without_legs(spent: Spent, plan: Plan) -> Spent:
    """What public parts released: all that a ledger has, but for a relay's legs."""
    return replace(spent, released=tuple(one for one in spent.released if one[0] != KIND)) if plan.relay else spent


def key_of(folder: Path, header: Mapping[str, Any]) -> bytes:
    """The key in a folder; StateError where people would have other names by it."""
    secret = snapshot.read_key(folder)
    if blake2b(secret).hexdigest() != header["key"]:
        raise StateError(f"the key in {folder} is not the one this state was made with")
    return secret


def clear(folder: Path, ledger: str | None = None, model: str = MODEL, *, heir: bool = False) -> None:
    """Take away what a first save left that was killed before it was finished: nothing had been shown by then.

    An heir's key stays: its predecessor is sealed for whoever has it. StateError for anything else: a ledger that has
    counted something is never taken away.
    """
    if snapshot.exists(folder) or not folder.is_dir():
        return
    if ledger is not None:
        mine = {model, before_of(model)} if heir else {model}
        for name in mine.intersection(Ledger(ledger).models()) if (folder / "key").exists() else ():
            Ledger(ledger).discard(name)  # without a key the name is somebody else's
    if (path := folder / "ledger.db").is_file() and path.stat().st_size:
        own = Ledger(path)
        spent = [own.read(name) for name in own.models()]
        if any(one.counted or one.epoch > 1 for one in spent):
            raise StateError(f"the snapshot in {folder} is gone: restore its newest backup beside the ledger")
    if not heir:
        (folder / "key").unlink(missing_ok=True)
    for name in ("key.new", "snapshot.npz.new", *(one.name for one in folder.glob("ledger.db*"))):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def opened(folder: Path, ledger: str | None = None, model: str = MODEL) -> Iterator[Saved]:
    """Claim a state for loading; whatever goes wrong inside gives it back."""
    kept = ledger_of(folder, ledger)
    if not snapshot.exists(folder):
        raise StateError(f"there is no saved state in {folder}")
    book = kept.claim(model)
    book.home = folder.resolve()
    try:
        header, arrays = snapshot.read(folder)
        spent = kept.read(model)
        if spent.sealed is not None:
            raise StateError(spent.sealed)
        check_same(folder, header, spent)
        if (line := line_of(header)) is not None:
            check_line(line, Plan.from_json(header["plan"]), kept, model, spent)
        yield Saved(folder, header, arrays, spent, book, kept, model)
    except BaseException:
        book.close()
        raise


@dataclass(frozen=True)
class Checked:
    """What a state's own integers say about it."""

    plan: Plan
    guarantee: Guarantee
    """Computed from the parts' integers."""
    parts: Mapping[str, Again]
    """By part: how often it was released, and what it answers by, computed again from the ledger's rows."""


def check(folder: Path, ledger: str | None = None, model: str = MODEL) -> Checked:
    """Certify a state's plan from its integers, and compute what its parts answer by again from the ledger.

    StateError if that is not what was in use when the snapshot was written.
    """
    header, _ = snapshot.read(folder)
    plan, kept = Plan.from_json(header["plan"]), ledger_of(folder, ledger)
    spent, guarantee = kept.read(model), plan.verify()
    if header["units"] == "people" and plan.guide is not None and plan.guide.apart:
        raise StateError(f"{folder}: its plan was made for rounds, and it says that it protects people")
    if (line := line_of(header)) is not None:
        check_line(line, plan, kept, model, spent)
    if header["monitor"] is not None:
        guarantee = guarantee.plus(Monitor(**header["monitor"]).epsilon)
    try:
        parts = check_parts(plan, from_spec(header["inputs"]), _without_legs(spent, plan), header["parts"])
    except StateError as error:
        raise StateError(f"{folder}: {error}") from None
    return Checked(plan, guarantee, parts)


def look(folder: Path, ledger: str | None = None, model: str = MODEL) -> dict[str, Any]:
    """What a state says about itself, without loading it: for `confide status`. Operator-only where it is private."""
    header, _ = snapshot.read(folder)
    spent = ledger_of(folder, ledger).read(model)
    plan = Plan.from_json(header["plan"])
    monitor = None if header["monitor"] is None else Monitor(**header["monitor"])
    return {
        "plan": plan,
        "guarantee": plan.guarantee if monitor is None else plan.guarantee.plus(monitor.epsilon),
        "labels": header["labels"],
        "units": header["units"],
        "insecure": header["insecure"],
        "rounds": spent.rounds,
        "unsure": spent.unsure - (Legs.read(plan.eligible, spent.released)[1] if plan.relay else 0),
        "halted": spent.halted,
        "legs": Legs.read(plan.eligible, spent.released)[0] if plan.relay else None,
        "taught": header["taught"],
        "failures": Failures(*header.get("failures", ())),
        "after_halt": header["after_halt"],
    }
