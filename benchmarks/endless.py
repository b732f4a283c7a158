"""What it costs not to know the length, and how a guide without an end follows a change.

    CONFIDE_DATA=folder python benchmarks/endless.py length --rounds 10000 100000 [--streams rbf sea] [--seeds 2]
    python benchmarks/endless.py length --streams sea --counted     ranges are found in equally many rounds in both:
                                                        else in up to twice as many by the plan that knows its length
    CONFIDE_DATA=folder python benchmarks/endless.py drift flip elec [--json file]
    python benchmarks/endless.py river [--picture docs/images/drift.svg]     the first stream of `drift`, beside River's
                                                        trees with drift detectors: three minutes
    python benchmarks/endless.py people late             10⁷ rounds each: a quarter of an hour; --long takes fewer
    python benchmarks/endless.py rare [--long 10000000]  all labels in 10⁵ rounds, then few or none: five minutes
    python benchmarks/endless.py served [--long 1000000]    the same as `people` over HTTP against `confide serve`, for
                                                        10⁷ rounds: half an hour, and 6 GB in the folder for temporary
                                                        files (TMPDIR)
    python benchmarks/endless.py relay [--quick]         copies that halt beside a relay of as many: two minutes
    python benchmarks/endless.py --quick    10 000 rounds of three generated streams, and a short relay: a minute

Each line has the error over all rows of a plan told its length, then the quotient of that of a plan without an end,
with all else the same, and in brackets both after 40 % of the rows. A seed is one of the noise; the rows are the same.

The constants (leaves of an epoch, the longest leaf, growth, the look at ranges) were chosen on RBF, Agrawal 1 and
Agrawal 5; SEA, hotel and Agrawal 3 were looked at once, afterwards. When a model begins anew was chosen on the drifting
stream, on RBF with other centres, on SEA with other thresholds, on hyperplanes and on Agrawal 8, 0, 4, 6; Elec
was looked at in between; `other`, the second stream of `drift`, once, after all of it. The numbers of `relay` (a leg,
its silent rounds, copies, unsure answers) were chosen on its own stream, with another seed of the same rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import endless_served
from agrawal import agrawal_label, agrawal_rows
from evidence.streams import FILES, asked, load
from guide_streams import Rows
from river import tree
from river.drift.binary import HDDMA
from river.drift.retrain import DriftRetrainingClassifier

from confide import POP, Plan, evaluate
from confide.guide.columns import Columns
from confide.guide.guide import Guide
from confide.guide.model import encode_batch
from confide.learners import GaussianNB, LogisticRegression
from confide.planning import tight
from confide.planning.guided import GuidePlan
from confide.planning.stages import ends_of
from confide.privacy.random import Random
from examples.pictures import BLUES, GREY, ORANGE, PER_CENT, RED, picture

DELTA, LATER = 1e-6, 0.4
CHOSEN, UNSEEN = ("rbf", "agrawal1", "agrawal5"), ("sea", "hotel", "agrawal3")
DRIFTS = {
    "drift": (7, (90_000, 210_000, 290_000), (1, 3, 5, 2)),
    "other": (19, (120_000, 190_000, 310_000), (2, 6, 1, 4)),
}
"""Of drifting streams: a seed, at which rounds the rule changes, aligned with no epoch, and Agrawal's functions."""
PARTS = 80
LONG, PEOPLE, BLOCK, FLIPPED = 10_000_000, 100_000, 100_000, 0.9

Mask = NDArray[np.bool_]


def errors(plan: GuidePlan, columns: Columns, rows: Any, labels: NDArray[np.int64], seed: int) -> Mask:
    """Which rows a guide answers wrongly, each asked before its label is taught."""
    return np.asarray(Guide(plan, columns, rng=Random(seed=seed)).follow(rows, labels).answers != labels)


def beside(
    name: str, columns: Columns, rows: Any, labels: NDArray[np.int64], epsilon: float, seeds: int, counted: bool = False
) -> dict[str, Any]:
    """Error of a plan told its length, and without an end, over all rows and after 40 % of them.

    Ranges are found in as many rounds in both, or in as many as each plan says.
    """
    n, found = labels.size, {}
    told, endless = (GuidePlan.best(epsilon, DELTA, rounds, labels=int(labels.max()) + 1) for rounds in (n, None))
    if counted:
        leaves = len(ends_of(endless.range_rounds, told.leaf, told.growth))
        told = replace(told, range_rounds=endless.range_rounds, warm_leaves=leaves)
    for kind, plan in (("told", told), ("endless", endless)):
        wrong = [errors(plan, columns, rows, labels, seed) for seed in range(1, seeds + 1)]
        found[kind] = [float(np.mean(wrong)), float(np.mean([each[int(LATER * n) :] for each in wrong]))]
    ratio = [b / a for a, b in zip(found["told"], found["endless"], strict=True)]
    return {"stream": name, "rounds": n, "epsilon": epsilon, "seeds": seeds, **found, "ratio": ratio}


def length(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for rounds in args.rounds:
        for name in args.streams:
            stream = load(name, None if name in FILES else rounds)
            rows, labels = asked(stream)[0][:rounds], stream.labels[:rounds]
            for epsilon in args.epsilon:
                yield beside(name, stream.columns, rows, labels, epsilon, args.seeds, args.counted)


def drifting(name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Agrawal's rows, the rule of whose labels changes."""
    seed, changes, concepts = DRIFTS[name]
    x = agrawal_rows(np.random.default_rng(seed), 400_000)
    parts = zip(concepts, np.split(x, changes), strict=True)
    return x, np.concatenate([agrawal_label(number, part) for number, part in parts]).astype(np.int64)


def drift(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in DRIFTS:
        yield beside(name, Columns.of_array(9), *drifting(name), 4.0, args.seeds)


def river(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Error over time where the rule changes: without an end, told the length, and River's, which protect nobody."""
    x, y = drifting("drift")
    made: dict[str, Any] = {
        "told": GuidePlan.best(4.0, DELTA, y.size), "endless": GuidePlan.best(4.0, DELTA, None),
        "adaptive": tree.HoeffdingAdaptiveTreeClassifier(seed=1),
        "retrained": DriftRetrainingClassifier(tree.HoeffdingTreeClassifier(), drift_detector=HDDMA()),
    }  # fmt: skip
    for who, model in made.items():
        epochs, started = [], time.perf_counter()
        if isinstance(model, GuidePlan):
            guide = Guide(model, Columns.of_array(9), rng=Random(seed=1))
            wrong, epochs = guide.follow(x, y).answers != y, guide.epochs
        else:
            wrong = np.array([_taught(model, row, label) for row, label in zip(x.tolist(), y.tolist(), strict=True)])
        over = [float(part.mean()) for part in np.array_split(wrong, PARTS)]
        took = time.perf_counter() - started
        yield {"who": who, "error": float(wrong.mean()), "over": over, "epochs": epochs, "seconds": took}


def _taught(model: Any, row: list[float], label: int) -> bool:
    """Whether a River model, asked before it is taught this row, is wrong."""
    named = dict(enumerate(row))
    answer = model.predict_one(named)
    model.learn_one(named, label)
    return bool(answer != label)


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Error over time of each, where the rule changes, and where an epoch of the guide's begins."""
    words = {
        "told": ("a plan told its length, ε = 4", GREY, "-"), "endless": ("without an end, ε = 4", BLUES[0], "-"),
        "adaptive": ("River's adaptive tree, not private", ORANGE, "-"),
        "retrained": ("River's tree, begun anew by HDDM, not private", ORANGE, ":"),
    }  # fmt: skip
    rounds, changes = 400_000, DRIFTS["drift"][1]
    with picture(path, (7.2, 3.6)) as figure:
        ax = figure.subplots()
        for line in lines:
            label, color, style = words[line["who"]]
            middles = (np.arange(PARTS) + 0.5) * rounds / PARTS
            ax.plot(middles, line["over"], color=color, linestyle=style, linewidth=1.6, label=label)
            for epoch in line["epochs"]:
                ax.axvline(epoch, color=color, linewidth=0.8, linestyle=":")
                ax.text(epoch - 3000, 0.48, "a new epoch", fontsize=8.5, color=color, ha="right")
        for change in changes:
            ax.axvline(change, color=RED, linewidth=0.8, linestyle="--")
        ax.text(changes[0] + 3000, 0.56, "the rule changes", fontsize=8.5, color=RED)
        ax.set(xlim=(0, rounds), ylim=(0, 0.6), xlabel="rounds", ylabel="wrong answers")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.yaxis.set_major_formatter(PER_CENT)
        figure.legend(fontsize=8.5, loc="outside upper center", ncols=2)


def elec(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    stream = load("elec", None)
    yield beside("elec", stream.columns, Rows(stream)[:], stream.labels, 4.0, args.seeds)  # its columns have names


def flip(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All labels are exchanged at round t: in how many rounds, of t, the error is back within 1.2 times."""
    for name in ("sea", "rbf"):
        t = 200_000
        stream = load(name, 3 * t // 2)
        labels = np.where(np.arange(stream.labels.size) < t, stream.labels, 1 - stream.labels)
        wrong = errors(GuidePlan.best(4.0, DELTA), stream.columns, asked(stream)[0], labels, 1)
        before, step = float(wrong[t - t // 10 : t].mean()), t // 100
        later = [float(part.mean()) for part in np.split(wrong[t:], 50)]
        back = next((i for i, error in enumerate(later) if error <= 1.2 * before), None)
        found = None if back is None else back * step / t
        yield {"stream": f"{name}, flipped", "rounds": t, "before": before, "back": found, "later": later}


def memory() -> float:
    """What this process takes now, in megabytes."""
    words = Path("/proc/self/status").read_text(encoding="ascii").split()
    return int(words[words.index("VmRSS:") + 1]) / 1024


def blocks(rounds: int) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.int64]]]:
    """SEA's rows, as many at a time."""
    for number in range(rounds // BLOCK):
        x = np.random.default_rng([8, number]).uniform(0, 10, (BLOCK, 3))
        yield number, x, (x[:, 0] + x[:, 1] > 8).astype(np.int64)


def caps(pop: POP) -> float:
    """What a person takes of this process's memory for good, in bytes: a name, and how many labels were taught."""
    account = pop.operator.loop.account
    kept = [account.labels, *(held for held in (account._early, account._named) if held)]
    names = {name for held in kept for name in held}
    return (sum(map(sys.getsizeof, kept)) + sum(map(sys.getsizeof, names))) / max(1, len(account.labels))


def people(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Everybody asks once a block, and brings every label: one of a person is taught."""
    pop = POP(None, Plan.tight(4.0, DELTA, None, units="people"), labels=[0, 1], features=3, units="people")
    found, names, started = [], [f"person {i}" for i in range(PEOPLE)], time.perf_counter()
    for _, x, y in blocks(args.long):
        wrong = pop.follow_many(x, y, names).answers != y
        found.append({"rounds": pop.rounds, "error": float(wrong.mean()), "megabytes": memory()})
    head = {"stream": "people", "rounds": pop.rounds, "state": pop.state, "found": found, "bytes": caps(pop)}
    yield {**head, "seconds": time.perf_counter() - started}


def rare(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """SEA: all labels in the first block, then a part of them. What brings no label is not asked, but by the error."""
    _, x, y = next(blocks(BLOCK))
    tested = np.random.default_rng(9).uniform(0, 10, (BLOCK // 5, 3))
    truth = (tested[:, 0] + tested[:, 1] > 8).astype(np.int64)
    for rate in args.rates:
        rng, started = np.random.default_rng(10), time.perf_counter()
        guide = Guide(GuidePlan.best(4.0, DELTA, apart=False), Columns.of_array(3), rng=Random(seed=args.seeds))
        guide.follow(x, y)
        found = [(guide.rounds, mistaken(guide, tested, truth))]
        while guide.rounds < args.long:
            until = min(args.long, found[-1][0] + args.long // 20)
            while guide.rounds < until:
                end = guide.rounds + guide.room
                some = rng.uniform(0, 10, (rng.binomial(guide.room, rate), 3))
                if len(some):
                    guide.follow(some, (some[:, 0] + some[:, 1] > 8).astype(np.int64))
                guide.go_to(end)
                guide.settle()
            found.append((guide.rounds, mistaken(guide, tested, truth)))
        yield {"stream": "sea, rarely", "rate": rate, "found": found, "seconds": time.perf_counter() - started}


def mistaken(guide: Guide, rows: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """How often its model errs now."""
    model = guide.model
    batch = encode_batch(model.features, rows)
    scores = np.add.reduceat(model.theta[batch.indices, 0] * batch.values, batch.starts[:-1])
    return float(((scores > 0) != labels).mean())


def late(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All labels are exchanged after nine tenths of the rounds: rounds are protected, and there is no last one."""
    guide, t, part = Guide(GuidePlan.best(4.0, DELTA), Columns.of_array(3)), int(args.long * FLIPPED), BLOCK // 100
    wrong, takes = [], []
    for number, x, y in blocks(args.long):
        labels = 1 - y if number * BLOCK >= t else y
        wrong += np.split(guide.follow(x, labels).answers != labels, 100)
        takes.append(memory())
    error = [float(each.mean()) for each in wrong]
    first = t // part
    before = float(np.mean(error[first - first // 10 : first]))
    later = [float(np.mean(error[i : i + 10])) for i in range(first, len(error) - 9)]  # a tenth of a block is hundreds
    back = next((i for i, each in enumerate(later) if each <= 1.2 * before), None)
    found = None if back is None else back * part / t
    shown = {"before": before, "back": found, "epochs": guide.epoch, "megabytes": takes}
    yield {"stream": "sea, flipped", "rounds": t, **shown, "later": later[:50]}


def voted(rounds: int, leg: int, silent: int, unsure: int, copies: int) -> dict[str, Plan]:
    """As many copies that halt for good, with as many unsure answers as they leave room for, and as a relay."""
    asked = tight.TightRequest(4.0, DELTA, rounds, copies=copies, silent=silent)
    most = tight.most_unsure(asked, 0.1)
    own: dict[str, Any] = {"copies": copies, "silent": silent, "guide": None}
    return {
        "halts": Plan.tight(4.0, DELTA, rounds, unsure=most, **own),
        "relay": Plan.tight(4.0, DELTA, leg, unsure=unsure, relay=True, **own),
    }


def relay(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """SEA's rule without the rows near its edge; then the same with all labels exchanged at every quarter."""
    rounds, *numbers = (40_000, 8_000, 3_000, 700, 1_400) if args.quick else (200_000, 30_000, 10_000, 2_000, 1_400)
    x = np.random.default_rng(108).uniform(0, 10, (3 * rounds, 3))
    x = x[abs(x[:, 0] + x[:, 1] - 8) > 2][:rounds]
    y = (x[:, 0] + x[:, 1] > 8).astype(np.int64)
    quarter = np.arange(rounds) * 4 // rounds
    plans = voted(rounds, *numbers)
    for learner in (LogisticRegression(),) if args.quick else (LogisticRegression(), GaussianNB()):
        for stream, labels in (("stays", y), ("changes", np.where(quarter % 2, 1 - y, y))):
            for kind, plan in plans.items():
                pop, started = POP(learner, plan, labels=[0, 1], features=3, seed=2), time.perf_counter()
                pop.tells = False
                found = evaluate(pop, x, labels)
                yield {
                    "stream": stream, "learner": type(learner).__name__, "plan": kind, "rounds": rounds,
                    "numbers": {"copies": plan.copies, "unsure": plan.unsure, "silent": plan.silent, "leg": plan.relay},
                    "epsilon": plan.guarantee.epsilon, "error": found.error, "halted_at": found.halted_at,
                    "legs": None if pop.legs is None else pop.legs.number,
                    "errors": [float(part.mean()) for part in np.array_split(found.wrong, 16)],
                    "copies": [float((part == 3).mean()) for part in np.array_split(found.source, 16)],
                    "seconds": time.perf_counter() - started,
                }  # fmt: skip


KINDS = {
    "length": length, "drift": drift, "river": river, "flip": flip, "elec": elec, "people": people, "late": late,
    "rare": rare, "relay": relay, "served": lambda args: endless_served.served(args.long, PEOPLE),
}  # fmt: skip
QUICK = ["length", "relay"]


def said(line: dict[str, Any]) -> str:
    if line.get("stream") == "served":
        return endless_served.said(line)
    if "who" in line:
        return f"{line['who']:10} error {line['error']:.2%} of {400_000:,} rounds; {line['seconds']:.0f} s"
    if "plan" in line:
        head = f"{line['learner']:18} {line['rounds']:,} rounds, the rule {line['stream']:7} {line['plan']}:"
        ended = "" if line["halted_at"] is None else f", halted at {line['halted_at']:,}"
        legs = "" if line["legs"] is None else f", {line['legs']} swaps"
        last = f"in the last eighth {np.mean(line['errors'][-2:]):.2%}, copies {np.mean(line['copies'][-2:]):.0%} of it"
        return f"{head} error {line['error']:.2%}, {last}{ended}{legs}; {line['seconds']:.0f} s"
    if "rate" in line:
        error = ", ".join(f"{found:.2%} at {rounds:,}" for rounds, found in line["found"][:: len(line["found"]) // 6])
        worst = f"the worst of {len(line['found']) - 1} looks {max(found for _, found in line['found'][1:]):.2%}"
        return f"{line['stream']}, {line['rate']:g} of all labels: error {error}; {worst}; {line['seconds']:.0f} s"
    if "found" in line:
        first, last = line["found"][len(line["found"]) // 10], line["found"][-1]
        head = f"{line['rounds']:,} rounds of {PEOPLE:,} people in {line['seconds']:,.0f} s: {line['state']}"
        took = f"{first['megabytes']:.0f} MB after {first['rounds']:,}, {last['megabytes']:.0f} at the end"
        later = [block["error"] for block in line["found"][1:]] or [last["error"]]
        error = f"{np.median(later):.2%} in half of the later blocks, {max(later):.2%} in the worst"
        took += f", {line['bytes']:.0f} bytes a person"
        return f"{head}, error {last['error']:.2%} in the last block, {error}; {took}"
    if "ratio" not in line:
        head = f"{line['stream']} at {line['rounds']:,}: error {line['before']:.2%}"
        took = f"; {line['megabytes'][0]:.0f} to {max(line['megabytes']):.0f} MB" if "megabytes" in line else ""
        return f"{head}, within 1.2 times that after {line['back']} of t{took}"
    told, ratio = line["told"], line["ratio"]
    head = f"{line['stream']:10} {line['rounds']:9,} rounds, ε = {line['epsilon']:g}"
    return f"{head}: {told[0]:.2%} ({told[1]:.2%}) × {ratio[0]:.3f} ({ratio[1]:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"some of {', '.join(KINDS)}; all of them by default")
    parser.add_argument("--quick", action="store_true", help="10 000 rounds of generated streams")
    parser.add_argument("--rounds", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--streams", nargs="+", default=[*CHOSEN, *UNSEEN])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--counted", action="store_true", help="of `length`: ranges are found in as many rounds in both"
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0, 0.0001, 0.001, 0.01])
    parser.add_argument("--long", type=int, default=LONG, help="rounds of `people`, `late`, `rare` and `served`")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path, help="of `river`")
    args = parser.parse_args()
    if unknown := sorted(set(args.what) - set(KINDS)):
        parser.error(f"there is no {unknown[0]}: take some of {', '.join(KINDS)}")
    if args.quick:
        args.what = [what for what in QUICK if what in (args.what or QUICK)]
        args.rounds, args.streams = [10_000], list(CHOSEN)
    try:
        measure(args)
    except FileNotFoundError as missing:
        raise SystemExit(f"could not run: {missing}") from None


def measure(args: argparse.Namespace) -> None:
    lines = []
    for what in args.what or KINDS:
        for line in KINDS[what](args):
            lines.append(line)
            print(said(line), flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps(lines, indent=1) + "\n")
    if args.picture is not None:
        draw([line for line in lines if "who" in line], args.picture)
    ratios = np.array([line["ratio"] for line in lines if "ratio" in line])
    if len(ratios) > 1:
        for word, (all_, after) in (("mean", ratios.mean(axis=0)), ("worst", ratios.max(axis=0))):
            print(f"{word} × {all_:.3f} ({after:.3f})")


if __name__ == "__main__":
    main()
