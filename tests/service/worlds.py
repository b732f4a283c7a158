"""A desk as one of the two worlds of a replay: requests sent again, quotas, and people who are forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from confide import POP, TicketError
from confide.games.replay import Again, Ask, AskMany, Forget, Hidden, Label, Load, Over
from confide.games.script import size, units_of, version
from confide.pop.base import Answer
from confide.pop.state import opened
from confide.privacy.random import Random
from confide.service.base import Question, Reply, Taught
from confide.service.desk import PopDesk
from tests.worlds import Writer

ODD: list[Any] = [[1.0], [1.0, "two"], None, "words", {"a": 1.0}, [0.5] * 99, "long " * 200, [[], 0.0], [2.0, -3.0]]
"""What somebody may send who is not our client: all of it has a JSON form."""


class Desked:
    """A desk in the form of a mechanism; it is opened when it is saved for the first time, and before that is a POP.

    Ids are the numbers of the script's questions, so that the script can have one sent again.
    """

    desks: type[PopDesk] = PopDesk

    def __init__(self, pop: POP, quota: int | None = None) -> None:
        self.pop, self.quota, self.desk = pop, quota, cast(PopDesk, None)
        self.asked: list[Question] = []
        self.holders: dict[str, tuple[str, str]] = {}
        self.taken: set[str] = set()

    @classmethod
    def load(cls, folder: Path, rng: Random) -> Desked:
        with opened(folder, None, "pop") as saved:
            settings = saved.settings(None, None)
            pop = POP(settings.learner, settings.plan, **settings.options(), seed=rng).resume(saved, True)
            before = _KEPT[folder]
            made = cls(pop, before.quota)
            made.asked, made.holders, made.taken = before.asked, before.holders, before.taken
            made.desk = made._opened(folder, saved)
        return made

    def _opened(self, folder: Path, saved: Any = None) -> PopDesk:
        options: dict[str, Any] = {"save_every": None, "ticket_hours": 2, "wall": self._wall}
        return self.desks("model", self.pop, folder, saved, **options).limited(self.quota)

    def _wall(self) -> float:
        """A minute between two questions: what is asked in a script is asked within a day."""
        return 60.0 * len(self.asked)

    def save(self, folder: Path) -> None:
        if self.desk is None:
            self.pop.save(folder)
            self.desk = self._opened(folder)
            _KEPT[folder] = self
        self.desk.save()

    def close(self) -> None:
        self.pop.close()

    # ------------------------------------------------------------------ calls

    def predict(self, x: Any, unit: str) -> Answer:
        return self.predict_many([x], [unit])[0]

    def predict_many(self, xs: Sequence[Any], units: Sequence[str]) -> list[Answer]:
        new = [Question(who, str(len(self.asked) + i), x) for i, (x, who) in enumerate(zip(xs, units, strict=True))]
        self.asked += new
        return [self._answer(one, said) for one, said in zip(new, self.desk.ask(new), strict=True)]

    def _answer(self, one: Question, said: Reply) -> Answer:
        if said.answer is None:
            assert said.refusal is not None
            return Answer(None, False, "", said.refusal.message, "fallback", None)
        shown = said.answer.ticket.rsplit("-", 2)[0]  # without the life's random mark, and without what signs it
        self.holders[shown] = one.subject, said.answer.ticket
        return Answer(said.answer.label, said.answer.sure, shown, None, said.answer.source, said.answer.guide)

    def again(self, ask: int) -> None:
        (said,) = self.desk.ask([self.asked[ask - 1]])
        if said.answer is None:
            raise ValueError("refused")

    def over(self, x: Any, unit: str) -> None:
        (said,) = self.desk.ask([Question(unit, f"over {len(self.asked)}", x)])
        if said.answer is None:
            raise ValueError("refused")

    def learn(self, ticket: str, y: Any) -> None:
        self.learn_many([ticket], [y])

    def learn_many(self, tickets: Sequence[str], ys: Sequence[Any]) -> None:
        held = [self.holders.get(one, ("nobody", "")) for one in tickets]
        lessons = [Taught(who, ticket, y) for (who, ticket), y in zip(held, ys, strict=True)]
        said = self.desk.learn(lessons)
        used = self.taken & set(tickets)  # a label that is brought again is acknowledged again, and teaches nothing
        self.taken |= {one for one, refusal in zip(tickets, said, strict=True) if refusal is None}
        if used or any(said):
            raise TicketError("not all were taken")

    def teach(self, x: Any, y: Any, unit: str) -> None:
        self.teach_many([x], [y], [unit])

    def teach_many(self, xs: Sequence[Any], ys: Sequence[Any], units: Sequence[str]) -> None:
        self.desk.teach(list(zip(units, xs, ys, strict=True)))

    def forget(self, unit: str) -> None:
        self.desk.forget(unit)


class _FreesIds(PopDesk):
    """Forgetting drops the ids too: whether a request that is sent again is a new round tells who was forgotten."""

    def forget(self, subject: str) -> None:
        super().forget(subject)
        by_name = self._requests._by_name
        for name in [name for name, one in by_name.items() if one.row.forgotten]:
            del by_name[name]


class FreesIds(Desked):
    """A desk that frees the ids of those who are forgotten."""

    desks = _FreesIds


class _CountsOpen(PopDesk):
    """The quota is of open tickets: whether somebody may ask again tells whether they brought labels."""

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        requests = self._requests

        def left(whose: bytes, now: int) -> int:
            each = [one for one in requests._rounds.values() if one.open]
            held = [one for one in each if self._keeper.hash(b"quota", one.row.whose) == whose]
            return max(0, (requests.quota.most or 10**9) - len(held))

        requests.quota.left = left  # type: ignore[method-assign]
        return super().ask(questions)


class CountsOpen(Desked):
    """A desk whose quota is of open tickets."""

    desks = _CountsOpen


class _GivesBack(PopDesk):
    """Forgetting gives the rounds of the day back: whether somebody may ask again tells that they were forgotten."""

    def forget(self, subject: str) -> None:
        super().forget(subject)
        self._requests.quota._people.pop(self._keeper.hash(b"quota", self._keeper.who(subject)), None)


class GivesBack(Desked):
    """A desk that gives the day back to those who are forgotten."""

    desks = _GivesBack


_KEPT: dict[Path, Desked] = {}
"""By the folders of their models: what those who ask know, which a load does not take from them."""


class DeskWriter(Writer):
    """Scripts in which requests are sent again, before and after their people were forgotten."""

    def __init__(self, seed: int, **more: Any) -> None:
        super().__init__(seed, dicts=False, people=True, fused=False, **more)
        self.mine: list[int] = []

    def odd_x(self) -> Any:
        return self.dice.choice(ODD)

    def visible(self) -> None:
        seen = [ask for ask in self.asked if ask not in self.mine]
        if seen and self.dice.random() < 0.2:
            self.steps.append(Again(self.dice.choice(seen[-10:])))
        else:
            super().visible()

    def _opened(self, xs: list[Any], hidden: int | None = None) -> None:
        if hidden is not None:
            self.mine.append(self.asks + 1 + hidden)
        super()._opened(xs, hidden)

    def _hidden(self) -> None:
        kind = self.dice.random()
        if kind < 0.25 and self.mine:
            again = Again(self.dice.choice(self.mine))
            self.steps.append(Hidden(again, again))
        elif kind < 0.4:
            pair = [Forget("the unit"), None]
            self.dice.shuffle(pair)
            self.steps.append(Hidden(*pair))
        else:
            super()._hidden()
        self.cases += kind < 0.4

    def use_up(self) -> int:
        """The unit and somebody else take all their rounds of the day, and more; the quota, which is public.

        It is what the busiest of all has asked for, so that it refuses nothing that was asked before.
        """
        taken, dice, people = Counter[str](), self.dice, ("the unit", "eve")
        for step in self.steps:
            one = version(step, 0)
            taken.update(units_of(one, size(one)) if isinstance(one, Ask | AskMany) else ())
        quota = max(taken.values())
        for who in people:
            for _ in range(quota - taken[who]):
                asked = Ask(self.x(), who)
                self.steps.append(Hidden(asked, Ask(self.x(), who)) if who == "the unit" else asked)
                self.asks += 1
                if who == "the unit":
                    self.mine.append(self.asks)
        for _ in range(6):
            brought = [Label(dice.choice(self.mine), "yes"), Forget("the unit"), None]
            self.steps.append(Hidden(*dice.sample(brought, 2)))
            over = Over(self.x(), "the unit")
            self.steps += [Hidden(over, over), Over(self.x(), "eve"), *[Load(saved=False)] * (dice.random() < 0.3)]
        return quota
