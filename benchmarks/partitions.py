"""What partitions cost: CPU a round of all their parts together, against one owner, on the same questions and labels.

One run alternates the two, group by group: one owner's desk; and P partitions in one process as one desk, with the
merger behind its own port, so that leases, seals, offers and releases go over HTTP as they would between processes. All
of that is this process's CPU time, in whichever thread. Both draw the same noise, so releases and weights must have the
same bits. `python benchmarks/partitions.py --quick` takes a minute.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from confide import POP, Plan
from confide.learners import Features
from confide.privacy.random import Random
from confide.service import merging
from confide.service.base import Desk, Question, Taught
from confide.service.desk import PopDesk
from confide.service.following import Follower
from confide.service.merging import Merger
from confide.service.parting import PartitionDesk
from confide.service.partitioned import PartitionedDesk
from confide.service.posting import HttpPost, MergerServer

KEY = bytes(range(32))
PEOPLE = 5000
TARGET = 1.15


def served(desk: Desk, questions: list[Question], labels: list[str]) -> float:
    """Ask a group, then bring all its labels: seconds of CPU."""
    began = time.process_time()
    replies = desk.ask(questions)
    lessons = []
    for question, reply, label in zip(questions, replies, labels, strict=True):
        if reply.answer is None or reply.round < 1:
            raise SystemExit("a question had no round")
        lessons.append(Taught(question.subject, reply.answer.ticket, label))
    if any(desk.learn(lessons)):
        raise SystemExit("a label was refused")
    return time.process_time() - began


def main() -> None:
    """Print CPU a round of both, their ratio, and whether their releases have the same bits."""
    ask = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    ask.add_argument("--partitions", type=int, default=4)
    ask.add_argument("--groups", type=int, default=120)
    ask.add_argument("--rows", type=int, nargs="+", default=[1024, 256, 64])
    ask.add_argument("--after", type=int, default=100_000, help="rounds before, of which nobody asked any")
    ask.add_argument("--quick", action="store_true")
    given = ask.parse_args()
    groups, after = (12, 20_000) if given.quick else (given.groups, given.after)
    missed = list[str]()
    merging.LEASES = 1 << 20  # lend what is asked for: then both close each leaf at the same question
    features = Features(categorical={name: 32 for name in "abcdefgh"})
    plan = Plan.tight(epsilon=4.0, delta=1e-6, units="people", unit_labels=4)

    def make() -> POP:
        return POP(None, plan, labels=["no", "yes"], features=features, units="people", seed=Random(3), fallback="no")

    for rows in [256] if given.quick else given.rows:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # CPU is measured, not the disk
        with tempfile.TemporaryDirectory(dir=memory) as name:
            base, draws = Path(name), np.random.default_rng(1)
            one = PopDesk.open(base / "one", make, save_every=None)
            server = MergerServer(
                lambda base=base: Merger.open(base / "merger", make, given.partitions), "127.0.0.1", 0, KEY
            )
            post = HttpPost(f"http://127.0.0.1:{server.port}", KEY)
            follower = Follower(post, "here")
            desks = {
                number: PartitionDesk.of(follower, number, base / f"p{number}", make, patience=30.0, save_every=None)
                for number in range(given.partitions)
            }
            many = PartitionedDesk("model", KEY, given.partitions, desks, follower, post)
            merger = server.merger()
            while merger.guide.rounds < after or merger.guide.due is not None:
                if merger.lend("nobody", 1 << 30) is None:
                    time.sleep(0.002)  # the places offer what they have of the leaf: nothing
            one.pop.operator.loop.account.taken = merger.guide.rounds
            spent = {"one": list[float](), "many": list[float]()}
            for group in range(groups):
                values = draws.integers(0, 40, size=(rows, 8))
                who = draws.integers(0, PEOPLE, size=rows)
                questions = [
                    Question(f"s{who[i]}", f"{group}-{i}", dict(zip("abcdefgh", map(str, values[i]), strict=True)))
                    for i in range(rows)
                ]
                labels = ["yes" if row[0] + row[1] > 40 else "no" for row in values.tolist()]
                for kind, desk in (("one", one), ("many", many)) if group % 2 else (("many", many), ("one", one)):
                    spent[kind].append(served(desk, questions, labels) / rows)  # type: ignore[arg-type]
            warm = groups // 4  # kernels are loaded, and the first leaves are short
            alone, apart = (1e6 * float(np.median(spent[kind][warm:])) for kind in ("one", "many"))
            mine, theirs = one.pop.released, server.merger().pop.released
            same = len(mine) == len(theirs) and all(
                a[:2] == b[:2] and np.array_equal(a[2], b[2]) for a, b in zip(mine, theirs, strict=True)
            )
            model, other = one.pop.guide, server.merger().pop.guide
            assert model is not None and other is not None
            same &= model.export() == other.export()
            print(
                f"groups of {rows}: one owner {alone:.0f} µs a round, {given.partitions} partitions {apart:.0f} µs, "
                f"{apart / alone:.2f} ×; {len(mine)} releases and θ bit-equal: {same}",
                flush=True,
            )
            many.close()
            server.close()
            one.close()
            if apart > TARGET * alone or not same:
                missed.append(f"groups of {rows}: {apart / alone:.2f} ×, asked {TARGET}; bits equal: {same}")
    if missed:
        raise SystemExit("; ".join(missed))


if __name__ == "__main__":
    main()
