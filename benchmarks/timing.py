"""What the time of an answer tells about other people, channel by channel.

    python benchmarks/timing.py            about 30 minutes; --only WORD for the channels whose name has that word
    python benchmarks/timing.py --quick    about 5 minutes, with wider errors
    python benchmarks/timing.py --write    and puts the table into docs/threat-model.md; with --only, these rows of it

Each channel has a secret of two values and one call that somebody else can time. Before every timing the secret is
drawn anew, so that whatever else the machine does is the same for both. AUC is the probability that a timing under the
secret's second value is above one under its first: 0.5 tells nothing, 0 and 1 tell the secret at once. Its standard
error is from ten stretches of the run, so that drift counts. The last column is the same call released at ticks, by
`confide.pacing.Pace`, or, of a service (benchmarks/served.py), by its own. A quiet machine sees more than a busy one:
let it do nothing else meanwhile. What is not within 0.45 to 0.55 when it is paced is named at the end.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from river import naive_bayes
from scipy.stats import rankdata

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import confide
from benchmarks.served import at_ticks, looks, released
from confide.learners import DecisionTree, GaussianNB, KNNClassifier, LogisticRegression, StandardOptimal
from confide.learners.refit import due
from confide.pacing import Pace

PAGE = Path(__file__).resolve().parent.parent / "docs" / "threat-model.md"
BEGIN, END = "<!-- timing: written by benchmarks/timing.py --write -->", "<!-- end of timing -->"
SPLIT, CLEAR, OTHER = [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]  # the copies disagree on the first, and agree on the second
TICK = 0.01
Run = Callable[..., Any]
Trial = Callable[[int, Run], float]
"""Prepares a POP by the secret, and times one call by way of `Run`."""


def timed(run: Run, function: Run, *args: Any, **named: Any) -> float:
    began = time.perf_counter()
    run(function, *args, **named)
    return time.perf_counter() - began


def plainly(function: Run, *args: Any, **named: Any) -> Any:
    return function(*args, **named)


def one_sleep(function: Run, *args: Any, **named: Any) -> Any:
    """What Pace would be with a single sleep."""
    until = time.perf_counter() + TICK
    try:
        return function(*args, **named)
    finally:
        time.sleep(max(0.0, until - time.perf_counter()))


@dataclass(frozen=True)
class Channel:
    """What is timed, and by which secret it might differ."""

    name: str
    secret: str
    make: Callable[[], Any]
    """A context that gives a Trial."""
    slow: int = 1
    """Timings are fewer by this factor, where each takes long."""
    run: Run = plainly
    paced: Run | None = None
    """How it is released at ticks; by Pace, if nothing else is said."""


def auc(zero: np.ndarray, one: np.ndarray) -> float:
    """P(a timing of `one` is above one of `zero`), ties counted half."""
    ranks = rankdata(np.concatenate([zero, one]))
    return float((ranks[zero.size :].mean() - (one.size + 1) / 2) / zero.size)


@dataclass(frozen=True)
class Measured:
    """Timings under both values of the secret, in the order in which they were made."""

    bits: np.ndarray
    seconds: np.ndarray

    @property
    def micros(self) -> float:
        """By how much the medians differ."""
        return float(np.median(self.seconds[self.bits == 1]) - np.median(self.seconds[self.bits == 0])) * 1e6

    @property
    def auc(self) -> tuple[float, float]:
        """AUC of one timing, with its standard error over ten stretches."""
        whole = auc(self.seconds[self.bits == 0], self.seconds[self.bits == 1])
        parts = zip(np.array_split(self.bits, 10), np.array_split(self.seconds, 10), strict=True)
        each = [auc(t[b == 0], t[b == 1]) for b, t in parts if 0 < b.sum() < b.size]
        return whole, float(np.std(each, ddof=1) / np.sqrt(len(each)))


def measure(trial: Trial, timings: int, run: Run, tell: Callable[[], None]) -> Measured:
    """So many timings, the secret drawn anew for each; garbage is collected in between, never within."""
    bits, seconds = np.empty(timings, dtype=np.int64), np.empty(timings)
    for i in range(-timings // 20, timings):  # the first twentieth warms up
        if i % 200 == 0:
            gc.collect()
        bit = random.getrandbits(1)
        bits[max(i, 0)], seconds[max(i, 0)] = bit, trial(bit, run)
        tell()
    return Measured(bits, seconds)


# ---------------------------------------------------------------------- POPs to be timed

_plans: dict[tuple[int, int], confide.Plan] = {}


def plan_for(copies: int, unsure: int) -> confide.Plan:
    """An ample budget and more rounds than any channel asks for, since it is time that is measured."""
    if (copies, unsure) not in _plans:
        _plans[copies, unsure] = confide.Plan.tight(
            200.0, 1e-2, 4 * 10**6, copies=copies, polls=copies, unsure=unsure, silent=0, beta=0.1, guide=None
        )
    return _plans[copies, unsure]


def make(learner: Any, copies: int = 300, features: int | None = 2, lessons: int = 3, **named: Any) -> confide.POP:
    """A POP for people whose copies disagree on SPLIT and agree on CLEAR."""
    pop = confide.POP(
        learner, plan_for(copies, 30_000 if copies >= 300 else 5_000), labels=[0, 1], features=features, fallback=0,
        units="people", **named,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    n = copies * lessons
    if n:
        who = [f"taught {i}" for i in range(n)]
        pop.teach_many([SPLIT] * n, rng.integers(0, 2, n).tolist(), who)
        pop.teach_many([CLEAR] * 2 * n, [1] * 2 * n, who * 2)
    return pop


def people(name: str) -> Iterator[str]:
    return (f"{name} {i}" for i in itertools.count())


@contextmanager
def on_disk(pop: confide.POP) -> Iterator[confide.POP]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pop.save(Path(folder) / "state")
        try:
            yield pop
        finally:
            pop.close()


def house_mates(pop: confide.POP, x: list[float]) -> tuple[str, str]:
    """Two people whose copy is the same, found by teaching them alone: as many voters as before, so nobody new."""
    asker, others = people("asker"), people("mate")

    def voters() -> int:
        pop.predict(x, unit=next(asker))
        counts = pop.operator.counts
        assert counts is not None
        return int(counts.sum())

    pop.teach(x, 1, unit="me")
    other = next(others)
    pop.teach(x, 1, unit=other)
    while voters() > 1:
        pop.forget(other)
        other = next(others)
        pop.teach(x, 1, unit=other)
    return "me", other


# ---------------------------------------------------------------------- votes, names, labels brought


@contextmanager
def votes(learner: Any) -> Iterator[Trial]:
    """Somebody's lesson, then a question of nobody in particular, then mine."""
    pop, who = make(learner), people("other")

    def trial(bit: int, run: Run) -> float:
        pop.teach(OTHER if bit else [-40.0, 3.0], bit, unit=next(who))
        pop.predict(CLEAR, unit=next(who))
        return timed(run, pop.predict, CLEAR, unit="me")

    yield trial


@contextmanager
def names() -> Iterator[Trial]:
    """River: whether the copies of my poll have met a feature name of my x."""
    pop, who = make(naive_bayes.GaussianNB(), 150, None, 0), people("other")

    def trial(bit: int, run: Run) -> float:
        fresh = f"name {time.perf_counter_ns()}"
        for _ in range(3):
            pop.teach({fresh if bit else "known": 1.0}, 1, unit=next(who))
        pop.predict({"known": 1.0}, unit=next(who))
        return timed(run, pop.predict, {fresh: 1.0}, unit="me")

    for i in range(300):
        pop.teach({"known": float(i)}, i % 2, unit=f"taught {i}")
    yield trial


@contextmanager
def label_brought(learner: Any) -> Iterator[Trial]:
    """Whether the one who asked before me has brought the label."""
    pop, who = make(learner, ticket_life=100), people("other")

    def trial(bit: int, run: Run) -> float:
        ticket = pop.predict(CLEAR, unit=next(who)).ticket
        if bit:
            pop.learn(ticket, 1)
        return timed(run, pop.predict, CLEAR, unit="me")

    yield trial


@contextmanager
def labels_brought() -> Iterator[Trial]:
    """Whether a thousand people before me have brought theirs."""
    pop, who = make(LogisticRegression(), ticket_life=5000), people("other")

    def trial(bit: int, run: Run) -> float:
        tickets = [pop.predict(CLEAR, unit=next(who)).ticket for _ in range(1000)]
        if bit:
            pop.learn_many(tickets, [1] * len(tickets))
        for _ in range(20):  # what they brought is learned by now, and the processor's caches are as ever
            pop.predict(CLEAR, unit=next(who))
        return timed(run, pop.predict, CLEAR, unit="me")

    yield trial


# ---------------------------------------------------------------------- others at the same moment


def beside(act: Callable[[int], object]) -> Callable[[Run, Run, int], float]:
    """Times my call, which begins when another thread has just begun to act."""

    def both(run: Run, call: Run, bit: int) -> float:
        begun, end = threading.Event(), threading.Event()

        def other() -> None:
            begun.set()
            act(bit)
            end.set()

        thread = threading.Thread(target=other)
        thread.start()
        begun.wait()
        took = timed(run, call)
        thread.join()
        return took

    return both


@contextmanager
def beside_unsure() -> Iterator[Trial]:
    with on_disk(make(LogisticRegression())) as pop:
        who = people("other")
        both = beside(lambda bit: pop.predict(SPLIT if bit else CLEAR, unit=next(who)))
        yield lambda bit, run: both(run, lambda: pop.predict(CLEAR, unit="me"), bit)


@contextmanager
def beside_forget() -> Iterator[Trial]:
    with on_disk(make(LogisticRegression())) as pop:
        who = people("other")

        def act(bit: int) -> None:
            pop.forget(next(who)) if bit else pop.predict(CLEAR, unit=next(who))

        both = beside(act)
        yield lambda bit, run: both(run, lambda: pop.predict(CLEAR, unit="me"), bit)


def before_refit(memory: int) -> int:
    """After so many lessons the next one grows the tree anew, and the one after that does not."""
    fitted, fits = 0, []
    for seen in range(1, memory):
        if due(seen, fitted, memory):
            fitted = seen
            fits.append(seen)
    return fits[-1] - 1


@contextmanager
def refit(timing: str) -> Iterator[Trial]:
    """A tree that shares my copy grows anew at this lesson, or does not: seen in the lesson, after it, or beside it."""
    pop = make(DecisionTree(memory=128), features=20, lessons=0)
    me, mate = house_mates(pop, [1.0] * 20)
    asker, rng, lessons = people("asker"), np.random.default_rng(2), before_refit(128)
    rows, labels = rng.normal(size=(lessons, 20)), rng.integers(0, 2, lessons)
    x = rows[0].tolist()

    def trial(bit: int, run: Run) -> float:
        pop.forget(me)
        before = lessons - (0 if bit else 2)
        pop.teach_many(rows[:before], labels[:before].tolist(), [mate] * before)
        pop.predict(x, unit=next(asker))
        ticket = pop.predict(x, unit=me).ticket
        if timing == "learn":
            return timed(run, pop.learn, ticket, 1)
        if timing == "next":
            pop.learn(ticket, 1)
            return timed(run, pop.predict, x, unit=next(asker))
        both = beside(lambda bit: pop.learn(ticket, 1))
        return both(run, lambda: pop.predict(x, unit="somebody"), bit)

    yield trial


@contextmanager
def batch_of_two() -> Iterator[Trial]:
    """Another's row in my batch, unsure or sure."""
    with on_disk(make(LogisticRegression())) as pop:
        who = people("other")

        def trial(bit: int, run: Run) -> float:
            return timed(run, pop.predict_many, [SPLIT if bit else CLEAR, CLEAR], [next(who), "me"])

        yield trial


# ---------------------------------------------------------------------- my own lesson


@contextmanager
def growth() -> Iterator[Trial]:
    """My lesson comes when the bank has no slot left for a new copy, or one lesson earlier."""
    plan = plan_for(20_000, 30_000)

    def fresh() -> confide.POP:
        learner = DecisionTree(memory=64)
        return confide.POP(learner, plan, labels=[0, 1], features=20, fallback=0, units="people", seed=5)

    x, pop, full = [1.0] * 20, fresh(), 3000
    held = pop.operator.nbytes
    for i in range(6000):
        pop.teach(x, 1, unit=f"new {i}")
        if i > 1000 and pop.operator.nbytes > 1.5 * held:
            full = i
            break
        held = pop.operator.nbytes if i <= 1000 else held

    def trial(bit: int, run: Run) -> float:
        pop = fresh()
        before = full - (0 if bit else 1)
        pop.teach_many([x] * before, [1] * before, [f"new {i}" for i in range(before)])
        pop.predict(x, unit="asker")
        ticket = pop.predict(x, unit=f"new {before}").ticket
        return timed(run, pop.learn, ticket, 1)

    yield trial


@contextmanager
def memo(timing: str) -> Iterator[Trial]:
    """Somebody with another copy has taught what I teach, or something else."""
    rng = np.random.default_rng(3)
    table = rng.integers(0, 2, size=(40, 300))

    def trial(bit: int, run: Run) -> float:
        mine, other = rng.choice(300, size=2, replace=False).tolist()
        pop.teach([float(mine if bit else other)], 1, unit=next(who))
        pop.predict([0.0], unit=next(who))
        mind = next(who)
        ticket = pop.predict([float(mine)], unit=mind).ticket
        if timing == "learn":
            return timed(run, pop.learn, ticket, 1)
        pop.learn(ticket, 1)
        return timed(run, pop.predict, [0.0], unit="next")

    pop, who = make(StandardOptimal(table), 300, 1, 0), people("other")
    yield trial


@contextmanager
def work() -> Iterator[Trial]:
    """Nothing but work that takes 0.5 ms or 3 ms: what pacing has to hide."""

    def busy(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass

    yield lambda bit, run: timed(run, busy, 0.003 if bit else 0.0005)


LABEL, UNSURE, REFIT = "the one before me brought a label", "another's answer is unsure", "a shared tree grows anew"
CHANNELS = (
    Channel("my question, tree", "another's lesson", lambda: votes(DecisionTree())),
    Channel("my question, logistic regression", "another's lesson", lambda: votes(LogisticRegression())),
    Channel("my question, naive Bayes", "another's lesson", lambda: votes(GaussianNB())),
    Channel("my question, nearest neighbours", "another's lesson", lambda: votes(KNNClassifier())),
    Channel("my question, River", "a copy has met a name of my x", names, slow=8),
    Channel("my question, logistic regression", LABEL, lambda: label_brought(LogisticRegression())),
    Channel("my question, tree", LABEL, lambda: label_brought(DecisionTree())),
    Channel("my question", "a thousand before me brought labels", labels_brought, slow=20),
    Channel("my question at that moment, on disk", UNSURE, beside_unsure, slow=2),
    Channel("my question at that moment, on disk", "another is forgotten", beside_forget, slow=2),
    Channel("my question at that moment", REFIT, lambda: refit("beside"), slow=4),
    Channel("my batch with another's row, on disk", UNSURE, batch_of_two, slow=2),
    Channel("my lesson", REFIT, lambda: refit("learn"), slow=4),
    Channel("the question after a lesson", REFIT, lambda: refit("next"), slow=4),
    Channel("my lesson", "the bank must grow", growth, slow=40),
    Channel("my lesson, finite class", "another taught the same", lambda: memo("learn"), slow=8),
    Channel("the question after it, finite class", "another taught the same", lambda: memo("next"), slow=8),
    Channel("work of 0.5 or 3 ms", "which of the two", work, slow=4),
    Channel("the same, released by one sleep", "which of the two", work, slow=6, run=one_sleep),
    *(
        Channel(f"release less tick, {kind}", "work of 1.1 or 1.9 ms", partial(released, kind), slow=2, paced=at_ticks)
        for kind in ("asyncio", "uvloop")
    ),
    *(
        Channel(f"a look at {path} without a token", secret, partial(looks, path, when), slow=4, paced=at_ticks)
        for path in ("/metrics", "/models")
        for when, secret in (("before", "a label came before it"), ("beside", "a label comes at that moment"))
    ),
)


# ---------------------------------------------------------------------- the table


def shown(measured: Measured) -> str:
    value, error = measured.auc
    return f"{value:.2f} ± {error:.2f}"


def markdown(rows: list[tuple[Channel, Measured, Measured]], old: str) -> str:
    """The table of all channels: what was measured now, and of the others what `old` says."""
    lines = {" | ".join(line.split(" | ")[:2]).lstrip("| "): line for line in old.splitlines() if line.startswith("| ")}
    for channel, plain, paced in rows:
        cells = channel.name, channel.secret, f"{plain.micros:+.1f} µs", shown(plain), shown(paced)
        lines[" | ".join(cells[:2])] = f"| {' | '.join(cells)} |"
    head = ["| what is timed | secret | medians differ by | AUC | AUC, paced |", "|---|---|---|---|---|"]
    return "\n".join(head + [lines[key] for c in CHANNELS if (key := f"{c.name} | {c.secret}") in lines])


def write(rows: list[tuple[Channel, Measured, Measured]]) -> None:
    """Put what was measured into the table between its marks on the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE.name} has no place for the table: put its two marks back")
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(rows, old)}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="What the time of an answer tells about other people.")
    parser.add_argument("--quick", action="store_true", help="fewer timings, and their errors are allowed for")
    parser.add_argument("--only", default="", help="channels whose name or secret has this word")
    parser.add_argument("--write", action="store_true", help="put the table into docs/threat-model.md")
    asked = parser.parse_args()
    chosen = [c for c in CHANNELS if asked.only in f"{c.name} {c.secret}"]
    timings, pace = 1000 if asked.quick else 6000, Pace(TICK)
    rows = []
    gc.disable()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        for channel in chosen:
            # As many at ticks that the error of an AUC is well below 0.05.
            n = max(60, timings // channel.slow), max(60, timings // 3 // max(1, channel.slow // 10))
            task = bar.add_task(channel.name, total=sum(n) * 1.05)
            with channel.make() as trial:
                plain = measure(trial, n[0], channel.run, lambda task=task: bar.advance(task))
                paced = measure(trial, n[1], channel.paced or pace.release, lambda task=task: bar.advance(task))
            rows.append((channel, plain, paced))
            bar.remove_task(task)
    table = Table("what is timed", "secret", "timings", "medians differ", "AUC", "AUC, paced")
    for channel, plain, paced in rows:
        table.add_row(
            channel.name, channel.secret, f"{plain.bits.size} + {paced.bits.size}", f"{plain.micros:+.1f} µs",
            shown(plain), shown(paced),
        )  # fmt: skip
    Console(width=140).print(table)
    if asked.write:
        write(rows)
    outside = 0
    for channel, _, paced in rows:
        value, error = paced.auc
        if abs(value - 0.5) > 0.05 + 3 * error * asked.quick:  # few timings err by more than that themselves
            outside += 1
            print(f"{channel.name}, {channel.secret}: {value:.2f} ± {error:.2f} is not within 0.45 to 0.55")
    if outside:
        raise SystemExit(f"{outside} of {len(rows)} channels are not within 0.45 to 0.55 when they are paced")


if __name__ == "__main__":
    main()
