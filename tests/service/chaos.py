"""Chaos: a server that is killed at random moments, and people who go on asking until they are answered.

    python -m tests.service.chaos --kills 300

Several people ask, alone and in batches, bring labels late, ask again by id, bring labels again; the operator imports
history, forgets people and saves. Each sends a request until it is answered, and writes down what it was told. Then:

- every stored answer is told again as it was, with its round and ticket;
- a label that was acknowledged is acknowledged again, another one is refused, on tickets of earlier lives too;
- each request has a round of its own: no round is told twice;
- every round was told to somebody, but for those that a kill burned. The rounds of a batch are taken before the guide
  learns or releases anything of them, and a release is durable at once, with the number of rounds taken. A kill
  between the release and the answers leaves rounds that are over and that nobody was told of; whoever asks again has
  new ones. So a kill burns the last rounds of its life and no others, no more than can have been asked at once, and
  only of the model with a guide. A server that is asked to stop burns none;
- rounds, unsure answers and labels never go back, and in the end unsure answers and labels are exactly what people
  were told.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from confide.ledger.ledger import Ledger
from tests.saved import small_plan
from tests.service.nursery import Nursery, free_ports

LIFE = 4000
"""Rounds for which a ticket is good; half of them are looked at again."""
UNSURE = 10_000
"""Unsure answers that are planned: more than there will be."""
ASKERS, EARLY = 4, 0.15
"""People; and the share of kills that come while the server starts."""
MOST = 8
"""Questions that a person asks at once, at most; the operator asks one."""
BURNED = {"copies": 0, "guide": ASKERS * MOST + 1}
"""Rounds that a kill may burn: all that can be asked at once where a guide releases sums, none elsewhere."""
CONFIG = """
[public]
port = {0}
[operator]
port = {1}
[models.copies]
folder = "state/copies"
labels = ["no", "yes"]
columns = 2
plan = "plan.json"
learner = "logistic"
fallback = "no"
ticket_life = {life}
room = 64
save_every = 301
[models.guide]
folder = "state/guide"
labels = ["no", "yes"]
columns = 2
epsilon = 8.0
delta = 1e-4
rounds = 200000
units = "people"
ticket_life = {life}
room = 64
save_every = 211
"""
OTHER = {"no": "yes", "yes": "no"}


class Stop(Exception):
    """The run is over."""


@dataclass
class Record:
    """A request, and what was told."""

    model: str
    subject: str
    id: str
    x: Any
    told: dict[str, Any]
    life: int
    label: str | None = None


@dataclass
class Tally:
    """What happened."""

    rounds: dict[str, int] = field(default_factory=lambda: {"copies": 0, "guide": 0})
    unsure: int = 0
    labels: dict[str, int] = field(default_factory=lambda: {"copies": 0, "guide": 0})
    later: int = 0
    """Labels with tickets of an earlier life."""
    again: int = 0
    """Stored answers and labels that were told again."""
    lost: int = 0
    """Requests whose response never came, sent again."""
    forgotten: int = 0
    burned: int = 0
    """Rounds that a kill burned."""


def untold(told: Collection[int], rounds: int, begun: Collection[int], most: int) -> str:
    """What is wrong with the rounds that nobody was told of, or nothing.

    Parameters
    ----------
    told
        The rounds that somebody was told of.
    rounds
        How many there were.
    begun
        The rounds before each life but the first: only where one of these lives begins may rounds have been burned.
    most
        How many a kill may burn.
    """
    known, last = set(told), 0
    if len(known) < len(told):
        return "a round was told twice"
    if not known <= set(range(1, rounds + 1)):
        return f"rounds were told that are not among the {rounds} that were taken"
    for end in sorted({*begun, rounds}):
        burned = sum(number not in known for number in range(last + 1, end + 1))
        if burned > (most if end in begun else 0):
            return f"{burned} rounds of those from {last + 1} to {end} were told to nobody"
        if not known.isdisjoint(range(end - burned + 1, end + 1)):
            return f"rounds before the last ones from {last + 1} to {end} were told to nobody"
        last = end
    return ""


class Chaos:
    """A deployment in a folder, its record, and what was wrong."""

    def __init__(
        self,
        folder: Path,
        *,
        fault: str | None = None,
        seed: int = 0,
        patience: float = 60.0,
        extra: str = "",
    ) -> None:
        self.folder, path = folder, folder / "confide.toml"
        path.write_text(CONFIG.format(*free_ports(2), life=LIFE) + extra)
        plan = small_plan(unsure=UNSURE, rounds=200_000)
        (folder / "plan.json").write_text(plan.to_json())
        self.nursery = Nursery(path, fault)
        self.patience, self.coins = patience, random.Random(seed)
        self.lock, self.over = threading.Lock(), False
        self.life, self.killed, self.taken = 0, 0, dict[tuple[str, int], str]()
        self.tally, self.wrong = Tally(), list[str]()
        self.newest = {"copies": 0, "guide": 0}
        self.lines: list[http.client.HTTPConnection] = []
        self.people: list[Busy] = [Asker(self, i) for i in range(ASKERS)]
        self.people.append(Operator(self, ASKERS))

    def close(self) -> None:
        """End everything."""
        self.over = True
        self.nursery.close()
        for line in self.lines:
            line.close()

    def check(self, good: bool, words: str) -> None:
        """Write down what must not be, and end the run."""
        if not good:
            with self.lock:
                self.wrong.append(words)
            raise Stop

    def took(self, record: Record) -> None:
        """A request was answered for the first time: its round is its own."""
        number, model = record.told["round"], record.model
        with self.lock:
            before = self.taken.setdefault((model, number), record.id)
            self.newest[model] = max(self.newest[model], number)
            self.tally.rounds[model] += 1
            self.tally.unsure += model == "copies" and record.told.get("sure") is False
        self.check(before == record.id, f"round {number} was taken by two requests")

    def recent(self, record: Record) -> bool:
        """Whether its ticket is surely good."""
        return bool(record.told["round"] > self.newest[record.model] - LIFE // 2)

    def run(
        self, kills: int, advance: Callable[[], object] = lambda: None, ending: signal.Signals = signal.SIGKILL
    ) -> None:
        """End it so many times under load; then let it live, and look at everything."""
        threads = [threading.Thread(target=one.run, daemon=True) for one in self.people]
        self.nursery.start()
        for thread in threads:
            thread.start()
        for _ in range(kills):
            self._moment()
            code = self.nursery.end(ending)
            if ending is signal.SIGTERM and code:
                self.wrong.append(f"a server that was asked to stop ended with {code}")
            if self.wrong:
                break
            self.life += 1
            self.killed += ending is signal.SIGKILL
            early = ending is signal.SIGKILL and self.coins.random() < EARLY
            try:
                self.nursery.start(wait=not early)
            except AssertionError as error:
                self.wrong.append(str(error))
                break
            advance()
        self._moment()
        self.over = True
        for thread in threads:
            thread.join(2 * self.patience)
        if not self.wrong:
            self.last()

    def _moment(self) -> None:
        """Some moment later: when people were told so many things, or in no time at all."""
        if self.nursery.serving:
            until, most = self.told + self.coins.randrange(80), time.monotonic() + 3.0
            while self.told < until and time.monotonic() < most and not self.wrong:
                time.sleep(0.002)
        time.sleep(self.coins.uniform(0, 0.03))

    @property
    def told(self) -> int:
        """How much people were told so far."""
        return sum(self.tally.rounds.values()) + sum(self.tally.labels.values()) + self.tally.again

    def last(self) -> None:
        """Nobody asks any more: the counts are what people were told, and all that is stored is told again."""
        try:
            operator = self.people[-1]
            self.over = False
            for model in ("copies", "guide"):
                private, brought = operator.look(model)["private"], self.tally.labels[model]
                labels = private["labels"]
                self.check(labels == brought, f"{model}: {labels} labels, and people brought {brought}")
                self.whose(model, private["rounds"])
            unsure = operator.look("copies")["private"]["unsure"]
            self.check(unsure == self.tally.unsure, f"{unsure} unsure answers, and {self.tally.unsure} were told")
            for person in self.people[:-1]:
                for record in person.records:
                    if self.recent(record):
                        person.retry([record])
        except Stop:
            pass

    def whose(self, model: str, rounds: int) -> None:
        """Every round was told to somebody, but for those that kills burned."""
        with Ledger(self.folder / "state" / model / "ledger.db") as ledger:
            (name,) = ledger.models()
            first, *begun = (before for _, (_, before) in sorted(ledger.read(name).lives.items()))
        self.check(first == 0 and len(begun) <= self.life, f"{model}: more lives than there were restarts")
        told = [number for one, number in self.taken if one == model]
        wrong = untold(told, rounds, begun if self.killed else [], BURNED[model])
        self.check(not wrong, f"{model}: {wrong}")
        self.tally.burned += rounds - len(told)

    def verdict(self, kills: int) -> str:
        """A line."""
        t = self.tally
        if self.wrong:
            return f"BROKEN after {self.life} of {kills} kills: {self.wrong[0]}"
        return (
            f"{kills} kills: {sum(t.rounds.values()):,} rounds, {t.unsure:,} unsure, {sum(t.labels.values()):,} labels "
            f"({t.later:,} with tickets of an earlier life), {t.again:,} told again alike, {t.lost:,} responses lost, "
            f"{t.forgotten:,} people forgotten, {t.burned:,} rounds burned: nothing lost, nothing forgotten, "
            "no round taken twice"
        )


class Person:
    """Sends a request until it is answered."""

    def __init__(self, chaos: Chaos, number: int) -> None:
        self.chaos, self.number, self.coins = chaos, number, random.Random(1000 + number)
        self.records, self._sent = list[Record](), 0
        self._lines: dict[int, http.client.HTTPConnection] = {}
        self._tokens: dict[str, str] = {}

    def token(self, subject: str) -> str:
        if subject not in self._tokens:
            self._tokens[subject] = self.chaos.nursery.asker.sign(subject, expires=86400.0)
        return self._tokens[subject]

    def send(self, method: str, port: int, path: str, content: Any, token: str) -> tuple[int, dict[str, Any]]:
        """Status and content of the response, when there is one that is not "come again"."""
        body = None if content is None else json.dumps(content).encode()
        headers, began = {"authorization": f"Bearer {token}"}, time.monotonic()
        while time.monotonic() - began < self.chaos.patience and not self.chaos.wrong:
            line = self._lines.get(port)
            if line is None:
                line = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
                self.chaos.lines.append(line)
            sent = False
            try:
                line.request(method, path, body, headers)
                sent, self._lines[port] = True, line
                response = line.getresponse()
                status, text = response.status, response.read()
                if status not in (429, 503, 504):
                    return status, json.loads(text)
            except (OSError, http.client.HTTPException):
                line.close()
                self._lines.pop(port, None)
                self.chaos.lines.remove(line)
                self.chaos.tally.lost += sent
            time.sleep(0.01)
        self.chaos.check(bool(self.chaos.wrong), "nobody answers any more")
        raise Stop

    def ask(self, operation: str, model: str, content: Any, subject: str) -> tuple[int, dict[str, Any]]:
        """One of an asker's requests."""
        port = self.chaos.nursery.config.public.port
        return self.send("POST", port, f"/models/{model}/{operation}", content, self.token(subject))

    def name(self) -> str:
        self._sent += 1
        return f"{self.number}-{self._sent}"

    def new(self, model: str, subject: str, xs: list[Any]) -> list[Record]:
        """New questions, alone or together; their rounds are later than all that this person had before."""
        chaos, questions = self.chaos, [{"id": self.name(), "x": x} for x in xs]
        last = max((one.told["round"] for one in self.records[-40:] if one.model == model), default=0)
        if len(xs) == 1:
            _, told = self.ask("ask", model, questions[0], subject)
            answers = [told]
        else:
            answers = self.ask("ask-many", model, {"questions": questions}, subject)[1]["answers"]
        fresh = list[Record]()
        for question, told in zip(questions, answers, strict=True):
            chaos.check("round" in told, f"an answer without a round: {told.get('error', {}).get('kind')}")
            fresh.append(Record(model, subject, question["id"], question["x"], told, chaos.life))
            chaos.took(fresh[-1])
            chaos.check(told["round"] > last, "a later request had an earlier round")
            last = told["round"]
        self.records += fresh
        return fresh

    def bring(self, some: list[Record]) -> None:
        """Labels for answers that have none, all of one person."""
        labels = [self.coins.choice(["no", "yes"]) for _ in some]
        brought = [{"ticket": one.told["ticket"], "label": y} for one, y in zip(some, labels, strict=True)]
        if len(some) == 1:
            results = [self.ask("label", some[0].model, brought[0], some[0].subject)[1]]
        else:
            results = self.ask("label-many", some[0].model, {"labels": brought}, some[0].subject)[1]["results"]
        for one, y, result in zip(some, labels, results, strict=True):
            self.chaos.check(bool(result.get("taken")), "a good ticket was refused")
            one.label = y
            with self.chaos.lock:
                self.chaos.tally.labels[one.model] += 1
                self.chaos.tally.later += one.life != self.chaos.life

    def retry(self, some: list[Record]) -> None:
        """What was told is told again; another question under the same name is refused, and another label too."""
        for one in some:
            status, told = self.ask("ask", one.model, {"id": one.id, "x": one.x}, one.subject)
            self.chaos.check(_core(told) == _core(one.told), f"another answer was told again, with status {status}")
            if one.label is not None:
                for label, taken in ((one.label, True), (OTHER[one.label], False)):
                    brought = {"ticket": one.told["ticket"], "label": label}
                    told = self.ask("label", one.model, brought, one.subject)[1]
                    words = "an acknowledged label was lost" if taken else "a ticket was good for another label"
                    self.chaos.check(bool(told.get("taken")) is taken, words)
            with self.chaos.lock:
                self.chaos.tally.again += 1


def _core(told: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(told.get(name) for name in ("round", "label", "sure", "source", "ticket", "guide"))


class Busy(Person, ABC):
    """Goes on acting until the end."""

    def run(self) -> None:
        """Until the end."""
        try:
            while not self.chaos.over and not self.chaos.wrong:
                self.act()
        except Stop:
            pass
        except Exception as error:
            self.chaos.wrong.append(f"a person met {error!r}")

    @abstractmethod
    def act(self) -> None:
        """Do something."""


class Asker(Busy):
    """Asks, brings labels and asks again."""

    def act(self) -> None:
        coins, model = self.coins, self.coins.choice(["copies", "guide"])
        subject = f"person {self.number} {coins.randrange(5)}"
        recent = [one for one in self.records[-400:] if self.chaos.recent(one)]
        match coins.randrange(6):
            case 0:
                self.new(model, subject, [self._x()])
            case 1:
                self.new(model, subject, [self._x() for _ in range(coins.randrange(2, MOST + 1))])
            case 2 | 3:
                mine = [one for one in recent if (one.model, one.subject) == (model, subject)]
                waiting = [one for one in mine if one.label is None and one.told.get("ticket")]
                if waiting:
                    self.bring(coins.sample(waiting, min(len(waiting), coins.choice([1, 1, 4]))))
            case 4 if recent:
                self.retry(coins.sample(recent, min(3, len(recent))))
            case 5 if recent:
                one = coins.choice(recent)
                status, _ = self.ask("ask", one.model, {"id": one.id, "x": [9.0, coins.random()]}, one.subject)
                self.chaos.check(status == 409, f"another question under a used name had status {status}")

    def _x(self) -> Any:
        return "unreadable" if self.coins.random() < 0.05 else [self.coins.gauss(0, 1), self.coins.gauss(0, 1)]


class Operator(Busy):
    """Imports history, forgets people, saves, and looks whether any number goes back."""

    def __init__(self, chaos: Chaos, number: int) -> None:
        super().__init__(chaos, number)
        self._seen: dict[str, list[int]] = {}

    def operate(self, method: str, path: str, content: Any = None) -> tuple[int, dict[str, Any]]:
        nursery = self.chaos.nursery
        return self.send(method, nursery.config.operator.port, path, content, nursery.operator)

    def look(self, model: str) -> dict[str, Any]:
        """All numbers; none that counts what was spent is lower than before."""
        told = self.operate("GET", f"/models/{model}")[1]
        now = [told["private"][name] for name in ("rounds", "unsure", "labels")]
        before = self._seen.setdefault(model, now)
        back = any(new < old for new, old in zip(now, before, strict=True))
        self.chaos.check(not back, f"{model}: rounds, unsure answers and labels went back from {before} to {now}")
        self._seen[model] = now
        return told

    def act(self) -> None:
        coins, model = self.coins, self.coins.choice(["copies", "guide"])
        match coins.randrange(6):
            case 0:
                rows = [{"x": [1.0, float(i)], "label": "yes", "subject": "historian"} for i in range(3)]
                status, _ = self.operate("POST", f"/models/{model}/history", {"rows": rows})
                self.chaos.check(status == 200, f"history was refused with {status}")
            case 1:
                status, _ = self.operate("POST", f"/models/{model}/save")
                self.chaos.check(status == 200, f"a save was refused with {status}")
            case 2:
                self.forget()
            case _:
                self.look(model)
        time.sleep(0.02)

    def forget(self) -> None:
        """Somebody asks, brings a label, and is forgotten: then nothing of it is known."""
        subject = f"passer-by {self.name()}"
        (one,) = self.new("guide", subject, [[1.0, 2.0]])
        if self.coins.random() < 0.5:
            self.bring([one])
        status, _ = self.operate("POST", "/models/guide/forget", {"subject": subject})
        self.chaos.check(status == 200, f"forgetting was refused with {status}")
        brought = {"ticket": one.told["ticket"], "label": one.label or "yes"}
        status, _ = self.ask("label", "guide", brought, subject)
        self.chaos.check(status == 404, "a ticket of somebody who was forgotten is good")
        status, _ = self.ask("ask", "guide", {"id": one.id, "x": [1.0, 2.0]}, subject)
        self.chaos.check(status == 409, "a request of somebody who was forgotten is known no more, or answered")
        status, told = self.ask("ask", "guide", {"id": one.id + " again", "x": [1.0, 2.0]}, subject)
        again = Record("guide", subject, one.id + " again", [1.0, 2.0], told, self.chaos.life)
        self.chaos.check(status == 200, f"somebody who was forgotten is refused with {status}")
        self.chaos.took(again)
        self.chaos.check(told["round"] > one.told["round"], "an answer outlived its being forgotten")
        self.chaos.tally.forgotten += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    columns = (TextColumn("killing a server"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with tempfile.TemporaryDirectory() as folder, Progress(*columns) as progress:
        chaos = Chaos(Path(folder), seed=given.seed)
        task = progress.add_task("", total=given.kills)
        try:
            chaos.run(given.kills, lambda: progress.advance(task))
        finally:
            chaos.close()
    print(chaos.verdict(given.kills))
    sys.exit(1 if chaos.wrong else 0)


if __name__ == "__main__":
    main()
