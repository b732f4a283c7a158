"""Labels alone: what the auditor finds of the exact law, and what the promise costs in time, each in one run.

    python benchmarks/label_claims.py            about three minutes of one core
    python benchmarks/label_claims.py --quick    fewer games and rows: nothing is held to a target

Exits with 1 where the auditor cannot say, at 95 %, that the advantage is at least 0.95 of the exact one, or a stream
runs at less than 0.8 of the speed.

**Auditor.** Two worlds differ in one label, and the model repeats what it was taught, so that the exact advantage of
two labels, (e^ε − 1)/(e^ε + 1), can be reached. Said are, as shares of it, the advantage that was seen with its
standard error; the bound below the true one that one test gives at 95 %, a test that the exact law fixes before the
first game; and the report's own at 99 %, whose failure probability is shared by all tests of its curve. The claim is
that the first bound is at least 0.95. It is a statement about chance: with which probability it holds, if the law is
what it should be, is computed exactly and said with it.

**Speed.** The same model is asked and taught the same randomized labels with Confide around it and without, in turns,
so that both share whatever else the machine does. Said is the processor time without Confide as a share of that with
it, the median of seven runs: for whole streams (`confide.evaluate`), and call by call. What a process takes once, to
load compiled code, is said by itself; what was there before is not walked through again by Python's collector, which
would do so in anybody's turn.

**Served.** An ask at a desk, durable as in a service: labels alone against the guide, which protects rows.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from river import tree
from scipy.stats import binom
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confide import POP, Plan
from confide.games import audit
from confide.games.bounds import at_least, gap_at_least
from confide.privacy.response import Response
from confide.service.base import Question, Taught
from confide.service.desk import PopDesk
from tests.label_pops import Asker, Last, alone, part

COLUMNS, TURN, TIMES = 9, 250, 7
"""Features of a row, rows of a turn, and runs of which the median is said."""
NAMES = tuple(f"x{i}" for i in range(COLUMNS))


# ---------------------------------------------------------------------- the auditor


LEVEL, SHARE = 0.05, 0.95
"""The bound fails with this probability; it is to be this share of the exact advantage."""


def audited(epsilon: float, games: int) -> tuple[float, str]:
    """What the bound is at least, as a share of the exact advantage; and all in words."""
    promised = alone(Last(), epsilon=epsilon)
    response = part(promised).part.response
    certificate = promised.guarantee.epsilon, 1e-9
    report = audit(lambda: alone(Last(), epsilon=epsilon), Asker(response), games=games, certificate=certificate)
    exact, point = response.advantage, next(point for point in report.points if point.aim == "advantage")
    false, true = (hits / many for hits, many in zip(point.hits, point.games, strict=True))
    spread = math.sqrt((false * (1 - false) + true * (1 - true)) / report.games)
    bound = gap_at_least(point.hits, point.games, LEVEL) / exact
    return bound, (
        f"ε = {epsilon:g}, {games:,} games at each bit: exact advantage {exact:.4f}; seen {(true - false) / exact:.3f} "
        f"± {spread / exact:.3f} of it; at {1 - LEVEL:.0%} at least {bound:.3f} of it (a run shows at least {SHARE:g} "
        f"with probability {passes(response, games):.3f}); the report's own at {report.confidence:.0%}: "
        f"{report.advantage / exact:.3f}; {'ALARM' if report.alarm else 'no alarm'}"
    )


def passes(response: Response, games: int) -> float:
    """The probability that the bound is at least `SHARE` of the exact advantage: exact, for the response's own law.

    Right guesses at both bits are one binomial count, since both labels are told truly with the same probability.
    """
    least, most = games, 2 * games
    while least < most:
        right = (least + most) // 2
        enough = 2 * at_least(right, 2 * games, LEVEL) - 1 >= SHARE * response.advantage
        least, most = (least, right) if enough else (right + 1, most)
    return float(binom.sf(least - 1, 2 * games, response.truth))


# ---------------------------------------------------------------------- speed


def rows(n: int) -> tuple[Any, Any, Any]:
    """Rows, labels, and labels that lie as often as at ε = 1."""
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(n, COLUMNS))
    ys = (xs[:, 0] + xs[:, 1] > 0).astype(np.int64)
    return xs, ys, np.where(rng.random(n) < 1 / (1 + math.exp(1)), 1 - ys, ys)


def river(model: Any, x: Any, y: int) -> None:
    model.predict_one(x)
    model.learn_one(x, y)


def partial(model: Any, x: Any, y: int) -> None:
    if hasattr(model, "classes_"):
        model.predict(x[None])
        model.partial_fit(x[None], [y])
    else:
        model.partial_fit(x[None], [y], classes=[0, 1])


def timed(act: Callable[[], Any]) -> float:
    begun = time.process_time()
    act()
    return time.process_time() - begun


def begun() -> float:
    """Seconds of the first round of a process; from here on the collector leaves alone what is there."""
    xs, ys, _ = rows(2)
    first = alone(GaussianNB(), labels=[0, 1], features=None)
    took = timed(lambda: (first.follow_many(xs, ys), first.learn(first.predict(xs[0]).ticket, 1)))
    gc.collect()
    gc.freeze()
    return took


def shares(make: Callable[[], Any], plain: Callable[[Any, Any, int], None], n: int, times: int) -> tuple[float, float]:
    """Time without Confide as a share of the time with it, in the median: of whole streams, and call by call."""
    stream, single = np.median([_shares(make, plain, n) for _ in range(times)], axis=0)
    return float(stream), float(single)


def _shares(make: Callable[[], Any], plain: Callable[[Any, Any, int], None], n: int) -> tuple[float, float]:
    xs, ys, lies = rows(n)
    asked: Any = [dict(zip(NAMES, x.tolist(), strict=True)) for x in xs] if plain is river else xs
    own, stream, single = make(), *(alone(make(), labels=[0, 1], features=None) for _ in range(2))
    spent = np.zeros(3)
    for at in range(0, n, TURN):
        turn = range(at, min(n, at + TURN))
        spent[0] += timed(lambda turn=turn: [plain(own, asked[i], int(lies[i])) for i in turn])
        here = slice(turn.start, turn.stop)
        spent[1] += timed(lambda here=here: stream.follow_many(asked[here], ys[here]))
        spent[2] += timed(lambda turn=turn: [single.learn(single.predict(asked[i]).ticket, int(ys[i])) for i in turn])
    return float(spent[0] / spent[1]), float(spent[0] / spent[2])


SPEEDS: tuple[tuple[str, Callable[[], Any], Callable[[Any, Any, int], None], int], ...] = (
    ("River's Hoeffding tree", tree.HoeffdingTreeClassifier, river, 5_000),
    ("River's adaptive Hoeffding tree", lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=1), river, 5_000),
    ("GaussianNB, partial_fit", GaussianNB, partial, 2_500),
    ("SGDClassifier(log_loss), partial_fit", lambda: SGDClassifier(loss="log_loss"), partial, 2_500),
)


# ---------------------------------------------------------------------- served


def served(n: int) -> tuple[float, float]:
    """Milliseconds of an ask in the median, of models that have learned 2,000 rows: labels alone, and the guide."""
    xs, ys, _ = rows(2000 + n)
    plans = Plan.labels_alone(1.0, 2), Plan.tight(1.0, 1e-6, 10 * len(xs), guide=1.0)
    with tempfile.TemporaryDirectory() as folder:
        desks = [
            PopDesk.open(Path(folder) / f"{i}", lambda plan=plan: POP(None, plan, labels=[0, 1], features=COLUMNS))
            for i, plan in enumerate(plans)
        ]
        for desk in desks:
            said = desk.ask([Question("ann", f"first {i}", x.tolist()) for i, x in enumerate(xs[:2000])])
            desk.learn([Taught("ann", one.answer.ticket, int(y)) for one, y in zip(said, ys, strict=False)])
        took: list[list[float]] = [[], []]
        for i, x in enumerate(xs[2000:]):
            for desk, times in zip(desks, took, strict=True):
                begun = time.perf_counter()
                desk.ask([Question("ann", f"{i}", x.tolist())])
                times.append(time.perf_counter() - begun)
        for desk in desks:
            desk.close()
    return 1000 * float(np.median(took[0])), 1000 * float(np.median(took[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("audit", "speed", "served"))
    args = parser.parse_args()
    short = list[str]()
    for epsilon in (1.0, 4.0) if args.only in (None, "audit") else ():
        share, said = audited(epsilon, 1000 if args.quick else 10_000)
        print(said, flush=True)
        short += [f"ε = {epsilon:g}: {share:.3f} of the exact advantage instead of {SHARE:g}"] * (share < SHARE)
    if args.only in (None, "speed"):
        print(f"the first round of a process: {begun():.2f} s of the processor, once", flush=True)
    for name, make, plain, n in SPEEDS if args.only in (None, "speed") else ():
        stream, single = shares(make, plain, *((n // 5, 1) if args.quick else (n, TIMES)))
        print(f"{name}: {stream:.2f} of its speed without Confide as a stream, {single:.2f} call by call", flush=True)
        short += [f"{name}: {stream:.2f} of its speed instead of 0.8"] * (stream < 0.8)
    if args.only in (None, "served"):
        ours, guide = served(200 if args.quick else 2000)
        print(f"a served ask, in the median: labels alone {ours:.2f} ms, the guide {guide:.2f} ms", flush=True)
    if short and not args.quick:
        raise SystemExit("; ".join(short))


if __name__ == "__main__":
    main()
