"""One model over many owners: numbers once, each label in one release, one owner's bits, whatever crashes."""

import shutil
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from confide import POP, Plan, StateError
from confide.guide.guide import Release
from confide.guide.leaves import Kept
from confide.learners import DecisionTree, Features
from confide.pop.monitor import Monitor
from confide.pop.sharing import check_shared
from confide.pop.state import check
from confide.privacy.random import Random
from confide.service import posting
from confide.service.base import NotYet, Question, Taught
from confide.service.config import PartitionsConfig
from confide.service.following import Follower
from confide.service.journal import Row
from confide.service.merging import LIVES, Lease, Life, Merger, Offer, partition_of
from confide.service.models import partition_key
from confide.service.owner import Owner
from confide.service.parting import PartitionDesk
from confide.service.partitioned import PartitionedDesk
from confide.service.posting import HttpPost, MergerServer
from tests.service import simulate
from tests.service.opened import folder

pytestmark = pytest.mark.claim("partitions.md")
__all__ = ["folder"]

LABELS = ["no", "yes"]


def plan_for(units: Any = "people", **more: Any) -> Plan:
    return Plan.tight(epsilon=8.0, delta=1e-5, rounds=600, guide=1.0, units=units, **more)


def make(plan: Plan, features: Any = 2, seed: int = 7) -> POP:
    units: Any = plan.units or "rounds"
    return POP(None, plan, labels=LABELS, features=features, units=units, seed=Random(seed), fallback="no")


class Cluster:
    """A merger and its places, in one process."""

    def __init__(self, folder: Path, plan: Plan, partitions: int = 3, places: int = 2, features: Any = 2) -> None:
        self.folder, self.plan, self.features, self.partitions = folder, plan, features, partitions
        self.merger = self.open_merger()
        self.followers = [Follower(self.merger, f"place {i}") for i in range(places)]
        self.desks = [self.open(i, i % places) for i in range(partitions)]

    def make(self) -> POP:
        return make(self.plan, self.features)

    def open_merger(self) -> Merger:
        return Merger.open(self.folder / "merger", self.make, self.partitions)

    def open(self, number: int, place: int) -> PartitionDesk:
        return PartitionDesk.of(self.followers[place], number, self.folder / f"p{number}", self.make)

    def look(self) -> None:
        for one in self.followers:
            one.look()

    def ask(self, subject: str, id: str, x: Any) -> Any:
        number = partition_of(b"key", self.partitions, subject)
        for _ in range(300):  # after a warm-up many leaves end at once
            try:
                reply = self.desks[number].ask([Question(subject, id, x)])[0]
                if reply.round > 0:
                    return reply
            except NotYet:
                pass
            self.look()
        raise AssertionError("no number was lent")

    def learn(self, subject: str, ticket: str, label: str) -> Any:
        return self.desks[partition_of(b"key", self.partitions, subject)].learn([Taught(subject, ticket, label)])[0]

    def close(self) -> None:
        for desk in self.desks:
            desk.close()
        self.merger.close()


@pytest.mark.parametrize("kind", ["people", "rounds", "ranges", "endless"])
def test_releases_and_weights_have_one_owners_bits(kind: str, folder: Path) -> None:
    features: Any = 2
    if kind in ("people", "rounds"):
        plan = plan_for(kind)
    elif kind == "ranges":  # and what the warm-up was taught is kept for the map that comes after it
        plan = Plan.tight(epsilon=8.0, delta=1e-5, rounds=20_000, guide=1.0)
        features = Features(numeric=("a", "b"))
        assert plan.guide is not None and plan.guide.range_rounds and plan.guide.kept_clip
    else:
        plan = Plan.tight(epsilon=8.0, delta=1e-5, units="people")
        features = Features(categorical={"a": 16, "b": 16})
        assert plan.endless
    with_ranges = plan.guide is not None and plan.guide.range_rounds > 0
    rounds = (plan.guide.range_rounds + 400 if with_ranges and kind == "ranges" else 300) if plan.guide else 0
    cluster = Cluster(folder, plan, features=features)
    one = make(plan, features)  # the same noise: the same seed
    draws, waiting = np.random.default_rng(3), list[tuple[str, str, str, str]]()
    for i in range(rounds):
        subject = f"s{draws.integers(60)}"
        a, b = draws.normal(size=2).tolist()
        x: Any = (
            [a, b] if features == 2 else {"a": a, "b": b} if kind == "ranges" else {"a": str(a)[:3], "b": str(b)[:3]}
        )
        reply = cluster.ask(subject, str(i), x)
        alone = one.predict(x, unit=subject if plan.units == "people" else None)
        assert reply.round == i + 1 and reply.answer is not None
        assert reply.answer.label == alone.label and reply.answer.source == alone.source
        waiting.append((subject, reply.answer.ticket, alone.ticket, "yes" if a > b else "no"))
        if draws.random() < 0.8:
            # What is kept has the number of its partition's last round: labels come where a round was just taken.
            where = partition_of(b"key", 3, subject)
            here = [i for i, (other, *_) in enumerate(waiting) if partition_of(b"key", 3, other) == where]
            subject, ticket, mine, label = waiting.pop(here[int(draws.integers(len(here)))])
            assert cluster.learn(subject, ticket, label) is None
            one.learn(mine, label)
    there, mine_ = cluster.merger.pop.released, one.released
    assert len(there) == len(mine_) >= 10
    assert all(p[:2] == q[:2] and np.array_equal(p[2], q[2]) for p, q in zip(there, mine_, strict=True))
    assert one.guide is not None and cluster.merger.pop.guide is not None
    for guide in (cluster.merger.guide, *(follower._guide for follower in cluster.followers)):
        assert (
            guide is not None and guide.model.theta.tobytes() == one.operator.loop.guiding.guide.model.theta.tobytes()
        )  # type: ignore[union-attr]
    cluster.close()
    assert check(folder / "merger").parts["linear"].released == len(
        [1 for kind, *_ in there if "ranges" not in kind and "epoch" not in kind]
    )


def test_a_leaf_waits_for_every_partition_and_the_released_model_answers_meanwhile(folder: Path) -> None:
    cluster = Cluster(folder, plan_for(), partitions=2)
    one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
    for i in range(40):
        cluster.ask(one, str(i), [1.0, 0.0])
    made = cluster.merger.standing().made
    assert made >= 2
    lost = cluster.desks[1]
    simulate.drop(lost.pop)  # its process is gone
    cluster.followers[1]._seats.clear()
    told = [cluster.desks[0].ask([Question(one, f"more {i}", [1.0, 0.0])])[0] for i in range(20)]
    cluster.look()
    assert cluster.merger.standing() == (1, made, True) and cluster.merger.missing() == [1]
    free = [reply for reply in told if reply.round < 0]
    assert free and all(reply.answer is not None and not reply.answer.ticket for reply in free)
    cluster.desks[1] = cluster.open(1, 1)
    cluster.look()
    cluster.look()
    assert cluster.merger.standing().made == made + 1, "it goes on when the partition is back"
    assert cluster.desks[0].ask([Question(one, "more 19", [1.0, 0.0])])[0].round > 0, "and the question has its round"
    cluster.close()


def test_labels_wait_while_a_leaf_is_sealed(folder: Path) -> None:
    cluster = Cluster(folder, plan_for(unit_labels=8), partitions=2)
    one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
    first = cluster.ask(one, "0", [1.0, 0.0])
    for i in range(1, 16):
        cluster.ask(one, str(i), [1.0, 0.0])
    with pytest.raises(NotYet):  # the leaf is over, and the other place has not heard of it
        cluster.desks[0].ask([Question(one, "16", [1.0, 0.0])])
    assert cluster.followers[0].sealed
    assert cluster.learn(one, first.answer.ticket, "yes").kind == "later"
    share = cluster.desks[0]._seat.share
    assert not share._leaves.open.any(), "nothing was added to what was offered"
    cluster.look()
    cluster.look()
    assert cluster.learn(one, first.answer.ticket, "yes") is None and share._leaves.open.any()
    cluster.close()


def sealed_cluster(folder: Path) -> tuple[Cluster, str, Any]:
    """Partition 0 waits for the other place, which has not heard of the seal; somebody in it, and their first reply."""
    cluster = Cluster(folder, plan_for(unit_labels=8), partitions=2)
    one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
    first = cluster.ask(one, "0", [1.0, 0.0])
    for i in range(1, 17):
        cluster.ask(one, str(i), [1.0, 0.0])
    while not cluster.merger.standing().sealing:
        cluster.merger.lend("place 1", 16)
    cluster.followers[0].look()
    assert cluster.followers[0].sealed
    return cluster, one, first


@pytest.mark.parametrize("many", [1, 2])
def test_nothing_is_taught_to_a_share_that_was_offered(many: int, folder: Path) -> None:
    cluster = Cluster(folder, plan_for(), partitions=1, places=1)
    share = cluster.desks[0]._seat.share
    questions = [share.encode([1.0, 0.0])] * many
    share.gradients(questions, [1] * many)
    before = share.seal()
    assert before.any()
    with pytest.raises(StateError, match="sealed"):
        share.gradients(questions, [1] * many)
    with pytest.raises(StateError, match="sealed"):
        share.gradient(questions[0], 1)
    assert np.array_equal(share.seal(), before)
    cluster.close()


def test_a_group_has_one_lease_and_goes_on_after_the_release_that_it_has_caused(folder: Path) -> None:
    """Nobody waits: this process has all partitions, so that it hears of the release when it has made its offers."""
    cluster = Cluster(folder, plan_for(), places=1)
    lent, lend = list[Lease | None](), cluster.merger.lend

    def counted(place: str, need: int) -> Lease | None:
        lent.append(lend(place, need))
        return lent[-1]

    cluster.merger.lend = counted  # type: ignore[method-assign]

    class Quiet:
        def news(self, known: Any) -> Any:
            raise OSError

        def close(self) -> None:
            pass

    desk = PartitionedDesk("spam", b"key", 3, dict(enumerate(cluster.desks)), cluster.followers[0], Quiet())
    first, then = (
        desk.ask([Question(f"s{i}", f"{at}-{i}", [1.0, 0.0]) for i in range(12)]) for at in ("first", "then")
    )
    assert [reply.round for reply in sorted(first, key=lambda one: one.round)] == list(range(1, 13))
    assert sorted(reply.round for reply in then) == list(range(13, 25)), "over the end of a leaf"
    assert lent == [(1, 12), (13, 16), None, (17, 24)]
    desk.close()
    cluster.merger.close()


@pytest.mark.parametrize("brought", [False, True])
def test_a_label_that_waits_in_vain_takes_no_round_from_a_question(brought: bool, folder: Path) -> None:
    cluster, one, first = sealed_cluster(folder)
    if brought:
        assert cluster.learn(one, first.answer.ticket, "yes").kind == "later"
    cluster.desks[0]._patience = 20.0

    def hear() -> None:
        for follower in reversed(cluster.followers):
            follower.look()

    timer = threading.Timer(0.1, hear)
    timer.start()
    reply = cluster.desks[0].ask([Question(one, "waits", [1.0, 0.0])])[0]
    timer.join()
    assert reply.round == 33 and reply.answer is not None and reply.answer.ticket, "whether or not a label came before"
    cluster.close()


def test_what_a_label_is_told_at_a_seal_does_not_depend_on_others(folder: Path) -> None:
    """One that was taken before is acknowledged again, and a wrong one refused, though somebody's fresh one waits."""
    cluster = Cluster(folder, plan_for(unit_labels=8), partitions=2)
    here = [f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0]
    ann, bob = (cluster.ask(here[i], "q", [1.0, 0.0]).answer.ticket for i in range(2))
    assert cluster.learn(here[0], ann, "yes") is None
    while not cluster.merger.standing().sealing:
        cluster.merger.lend("place 1", 16)
    cluster.followers[0].look()
    again, wrong, fresh = Taught(here[0], ann, "yes"), Taught(here[0], ann, "no"), Taught(here[1], bob, "yes")
    alone = cluster.desks[0].learn([again, wrong])
    assert alone[0] is None and alone[1] is not None and alone[1].kind == "ticket"
    together = cluster.desks[0].learn([fresh, again, wrong])
    assert together[1:] == alone and together[0] is not None and together[0].kind == "later"
    cluster.close()


def test_a_known_question_has_its_stored_answer_also_beside_one_that_waits_for_a_number(folder: Path) -> None:
    cluster, one, first = sealed_cluster(folder)
    desk = cluster.desks[0]
    known, other = Question(one, "0", [1.0, 0.0]), Question(one, "0", [2.0, 0.0])
    again, conflict, new = desk.ask([known, other, Question(one, "new", [1.0, 0.0])])
    assert again.round == first.round and again.again and again.answer == first.answer
    assert conflict.refusal is not None and conflict.refusal.kind == "conflict"
    assert new.round < 0 and new.answer is not None and not new.answer.ticket
    desk.limited(1)
    over, new = desk.ask([Question(one, "over", [1.0, 0.0]), Question("somebody", "else", [1.0, 0.0])])
    assert over.refusal is not None and over.refusal.kind == "quota" and new.answer is not None
    cluster.close()


def test_a_merger_that_died_at_a_seal_is_asked_to_seal_again(folder: Path) -> None:
    """Every place knows of the seal, so that nobody would ask for a number any more."""
    with simulate.simulated():
        cluster, one, first = sealed_cluster(folder)
        simulate.drop(cluster.merger.pop)
        cluster.merger = cluster.open_merger()
        for follower in cluster.followers:
            follower._seal()
            follower._post = cluster.merger
        assert cluster.merger.standing() == (2, 1, False)
        cluster.look()
        cluster.look()
        assert cluster.merger.standing().made == 2
        assert cluster.learn(one, first.answer.ticket, "yes") is None
        assert cluster.ask(one, "more", [1.0, 0.0]).round == 33


def test_a_label_waits_for_what_is_due_without_a_question_also_where_the_merger_that_sealed_it_is_gone(
    folder: Path,
) -> None:
    """The warm-up is over and the counts are not released: who learns now learns for nothing."""
    plan = simulate.plan_of("ranges")
    assert plan.guide is not None
    with simulate.simulated():
        cluster = Cluster(folder, plan, partitions=2, features=simulate.features_of("ranges"))
        one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
        first = cluster.ask(one, "0", {"a": 1.0, "b": 0.0})
        while cluster.merger.standing().made < plan.guide.warm.leaves - 1:
            cluster.merger.lend("gone", 1 << 20)
            cluster.look()
        for _ in range(2):
            cluster.merger.lend("gone", 1 << 20)
        told = cluster.merger._release

        def dies() -> None:
            told()
            raise ConnectionError

        cluster.merger._release = dies  # type: ignore[method-assign]
        cluster.followers[0].look()
        with pytest.raises(ConnectionError):
            cluster.followers[1].look()
        simulate.drop(cluster.merger.pop)
        cluster.merger = cluster.open_merger()
        assert cluster.merger.guide.due == "ranges" and not cluster.merger.standing().sealing
        for follower in cluster.followers:
            follower._post = cluster.merger
        cluster.followers[0].look()
        assert cluster.learn(one, first.answer.ticket, "yes").kind == "later"
        cluster.look()
        cluster.look()
        assert cluster.learn(one, first.answer.ticket, "yes") is None, "and is taken after the release"


def test_what_was_offered_to_a_merger_that_was_replaced_is_offered_again(folder: Path) -> None:
    with simulate.simulated():
        cluster, one, _ = sealed_cluster(folder)
        old, cluster.merger = cluster.merger, cluster.open_merger()
        for follower in cluster.followers:
            follower._post = cluster.merger
        cluster.followers[0].look()
        follower, offer = cluster.followers[1], cluster.merger.offer
        cluster.merger.offer = old.offer  # type: ignore[method-assign]
        with pytest.raises(ConnectionError, match="replaced"):
            follower.look()
        cluster.merger.offer = offer  # type: ignore[method-assign]
        cluster.look()
        assert cluster.merger.standing().made == 2
        assert cluster.ask(one, "more", [1.0, 0.0]).round == 33


def test_a_place_that_comes_back_after_a_release_is_not_sealed_any_more(folder: Path) -> None:
    with simulate.simulated():
        cluster, one, _ = sealed_cluster(folder)
        cluster.desks[0].close()
        cluster.followers[1].look()
        cluster.desks[0] = cluster.open(0, 1)
        cluster.look()
        assert cluster.merger.standing().made == 2
        cluster.desks[0].close()
        cluster.desks[0] = cluster.open(0, 0)
        assert cluster.ask(one, "more", [1.0, 0.0]).round == 33


def test_who_lost_a_partition_offers_nothing_to_the_next_merger(folder: Path) -> None:
    """An earlier life that says its word to a new merger before the later one does."""
    with simulate.simulated():
        plan = plan_for(unit_labels=8)
        cluster = Cluster(folder, plan, partitions=2, places=3)
        one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
        reply = cluster.ask(one, "0", [1.0, 0.0])
        old, cluster.desks[0] = cluster.desks[0], cluster.open(0, 2)  # it is opened elsewhere, and the old one lives
        assert cluster.learn(one, reply.answer.ticket, "yes") is None
        simulate.drop(cluster.merger.pop)
        merger = cluster.open_merger()
        for follower in cluster.followers[:2]:  # the new owner has not heard of the new merger yet
            follower._post = merger
        assert merger.lend("place 0", 1) is None, "all numbers of the leaf are over with the merger who had them"
        for _ in range(3):
            with pytest.raises(StateError, match="opened elsewhere since"):
                cluster.followers[0].look()
            cluster.followers[1].look()
        assert merger.standing().made == 0 and merger.missing() == [0]
        with pytest.raises(StateError):
            old._seat.offered(*merger.standing()[:2])
        cluster.followers[2]._post = merger
        cluster.followers[2].look()
        assert merger.standing().made == 1
        released = merger.pop.operator.loop.guiding.guide.releases()[0]  # type: ignore[union-attr]
        assert released.exact.any(), "what the new owner learned is in the release"


def test_a_partition_from_a_backup_is_refused(folder: Path) -> None:
    cluster = Cluster(folder, plan_for(), partitions=2)
    life = cluster.desks[0]._seat.life
    one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
    for i in range(18):
        cluster.ask(one, str(i), [1.0, 0.0])
    assert cluster.merger.standing().made == 1
    with pytest.raises(StateError, match="rolled back"):
        cluster.merger.hello("elsewhere", {0: Life(life.epoch + 5, life.version)})
    now = cluster.desks[0]._seat.life
    cluster.merger.hello("place 0", {0: now})
    with pytest.raises(StateError, match="rolled back"):  # no two claims on one ledger have one epoch
        cluster.merger.hello("elsewhere", {0: now})
    cluster.close()
    with pytest.raises(ValueError, match="2 partitions for good"):
        Merger.open(folder / "merger", cluster.make, 3)
    again = cluster.open_merger()
    with pytest.raises(StateError, match="rolled back"):
        again.hello("elsewhere", {0: Life(life.epoch + 5, life.version)})
    again.close()


def test_a_partition_from_a_backup_is_refused_also_by_a_merger_that_was_started_again(folder: Path) -> None:
    """Nothing was released since the backup: the merger's ledger has the lives that it was told of."""
    cluster = Cluster(folder, plan_for(unit_labels=8), partitions=2)
    one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
    reply = cluster.ask(one, "0", [1.0, 0.0])
    cluster.desks[0].close()
    shutil.copytree(folder / "p0", folder / "backup")
    cluster.desks[0] = cluster.open(0, 0)
    assert cluster.learn(one, reply.answer.ticket, "yes") is None
    cluster.close()
    shutil.rmtree(folder / "p0")
    shutil.copytree(folder / "backup", folder / "p0")
    cluster.merger = cluster.open_merger()
    cluster.followers = [Follower(cluster.merger, f"another {i}") for i in range(2)]
    with pytest.raises(StateError, match="rolled back"):
        cluster.open(0, 0)
    cluster.open(1, 1).close()
    cluster.merger.close()


def test_a_mergers_ledger_without_lives_is_read_and_has_them_from_then_on(folder: Path) -> None:
    """As an earlier Confide wrote it: who lives on where it was is admitted, and nobody else in its name."""
    cluster = Cluster(folder, plan_for(), partitions=2)
    one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
    for i in range(18):
        cluster.ask(one, str(i), [1.0, 0.0])
    life = cluster.desks[0]._seat.life
    cluster.merger._book.tear(LIVES, cluster.merger._noted_lives)
    cluster.merger._note_versions()
    cluster.merger._book.wait(cluster.merger._book.sequence)
    cluster.merger.close()
    cluster.merger = cluster.open_merger()
    assert cluster.merger._noted_lives == -1 and cluster.merger._versions[0].epoch == life.epoch
    cluster.merger.hello("place 0", {0: life})
    cluster.merger.hello("elsewhere", {0: Life(life.epoch + 1, life.version)})
    with pytest.raises(StateError, match="opened elsewhere"):
        cluster.merger.hello("place 0", {0: life})
    for desk in cluster.desks:
        simulate.drop(desk.pop)
    cluster.merger.close()


def test_a_ticket_from_beyond_its_end_seals_a_partition_whose_backup_no_merger_can_tell(folder: Path) -> None:
    """The copy is of the last life itself, and nothing was released or said since."""
    cluster = Cluster(folder, plan_for(unit_labels=8), partitions=2)
    one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
    cluster.ask(one, "0", [1.0, 0.0])
    shutil.copytree(folder / "p0", folder / "backup")
    reply = cluster.ask(one, "1", [1.0, 0.0])
    cluster.close()
    shutil.rmtree(folder / "p0")
    shutil.copytree(folder / "backup", folder / "p0")
    cluster.merger = cluster.open_merger()
    cluster.followers = [Follower(cluster.merger, f"another {i}") for i in range(2)]
    cluster.desks[0] = cluster.open(0, 0)
    with pytest.raises(StateError, match="rolled back"):
        cluster.learn(one, reply.answer.ticket, "yes")
    assert cluster.desks[0].ended
    simulate.drop(cluster.desks[0].pop)
    cluster.merger.close()


def test_a_merger_from_a_backup_is_refused_by_partitions_that_know_later_numbers(folder: Path) -> None:
    """Also where every place was started again: a leaf would be released twice, with two noises."""
    cluster = Cluster(folder, plan_for(), partitions=2)
    one = next(f"s{i}" for i in range(99) if partition_of(b"key", 2, f"s{i}") == 0)
    cluster.ask(one, "0", [1.0, 0.0])
    cluster.merger.close()
    shutil.copytree(folder / "merger", folder / "backup")
    cluster.merger = cluster.open_merger()
    for follower in cluster.followers:
        follower._post = cluster.merger
    for i in range(1, 40):
        cluster.ask(one, str(i), [1.0, 0.0])
    assert cluster.merger.standing().made >= 2
    cluster.close()
    shutil.rmtree(folder / "merger")
    shutil.copytree(folder / "backup", folder / "merger")
    cluster.merger = cluster.open_merger()
    cluster.followers = [Follower(cluster.merger, f"another {i}") for i in range(2)]
    with pytest.raises(StateError, match="the merger does not know all rounds"):
        cluster.open(0, 0)
    cluster.merger.close()


def test_a_lease_lies_in_one_leaf_and_numbers_of_another_one_are_not_used(folder: Path) -> None:
    cluster = Cluster(folder, plan_for(), partitions=2)
    lent = list[Lease]()
    while (one := cluster.merger.lend("place 0", 5)) is not None:
        lent.append(one)
    assert [*range(1, 17)] == [number for one in lent for number in range(one.first, one.last + 1)]
    follower = cluster.followers[0]
    assert follower._open(Lease(1, 16)) and not follower._open(Lease(16, 17)) and not follower._open(Lease(17, 18))
    cluster.look()
    cluster.look()
    assert not follower._open(Lease(16, 16)) and follower._open(Lease(17, 32))
    cluster.close()


def test_offers_for_another_release_or_of_another_size_change_nothing(folder: Path) -> None:
    cluster = Cluster(folder, plan_for(), partitions=2)
    merger, epoch = cluster.merger, cluster.merger.standing().epoch
    while merger.lend("x", 16) is not None:
        pass
    lives = {number: desk._seat.life for number, desk in enumerate(cluster.desks)}
    size = cluster.desks[0]._seat.share._leaves.open.size * 8
    for made, of in ((1, epoch), (0, epoch + 1)):
        merger.offer(of, made, [Offer(number, life, bytes(size)) for number, life in lives.items()])
        assert merger.standing().made == 0 and merger.missing() == [0, 1]
    with pytest.raises(StateError, match="another guide"):
        merger.offer(epoch, 0, [Offer(0, lives[0], bytes(size)), Offer(1, lives[1], bytes(size + 8))])
    cluster.look()
    cluster.look()
    assert merger.standing().made == 1, "and what is offered then is released"
    cluster.close()


def refusals() -> dict[str, POP]:
    tight: Any = {"epsilon": 8.0, "delta": 1e-5}
    return {
        "copies": POP(DecisionTree(), Plan.tight(rounds=50_000, copies=200, **tight), labels=LABELS, features=2),
        "labels alone": POP(None, Plan.labels_alone(1.0, 2), labels=LABELS, features=2),
        "history": POP(None, Plan.tight(rounds=600, guide=1.0, history=50, **tight), labels=LABELS, features=2),
        "a monitor": POP(None, plan_for("rounds"), labels=LABELS, features=2, monitor=Monitor(0.1)),
        "caps by period": make(Plan.tight(units="people", **tight).but(per=100, periods=2)),
        "after_halt": POP(None, plan_for("rounds"), labels=LABELS, features=2, after_halt="raise"),
    }


def test_what_is_not_proved_over_partitions_is_refused_by_name(folder: Path) -> None:
    for name, pop in refusals().items():
        with pytest.raises(ValueError, match=f"takes no {name}"):
            check_shared(pop)
        with pytest.raises(ValueError, match=name):
            Merger.open(folder / "m", lambda pop=pop: pop)  # type: ignore[misc]
    check_shared(make(plan_for()))
    cluster = Cluster(folder, plan_for(), partitions=1, places=1)
    with pytest.raises(ValueError, match="takes no history"):
        cluster.desks[0].teach([("ann", [1.0, 2.0], "yes")])
    cluster.close()


def test_partitions_of_one_process_are_served_by_many_threads(folder: Path) -> None:
    """Questions and labels of four partitions at once: every number once, and leaves go on closing."""
    cluster = Cluster(folder, plan_for(unit_labels=8), partitions=4, places=1)
    for desk in cluster.desks:
        desk._patience = 20.0
    numbers, errors = list[int](), list[BaseException]()

    def serve(me: int) -> None:
        try:
            for i in range(40):
                reply = cluster.desks[me].ask([Question(f"t{me}", str(i), [float(i % 5), 2.0])])[0]
                assert reply.answer is not None
                numbers.append(reply.round)
                assert cluster.desks[me].learn([Taught(f"t{me}", reply.answer.ticket, "yes")]) == [None]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and len(numbers) == len(set(numbers)) == 160
    assert cluster.merger.standing().made >= 8
    cluster.close()


# ---------------------------------------------------------------------- over HTTP


def test_partitions_behind_one_desk_speak_to_a_merger_at_its_port(folder: Path) -> None:
    plan, secret = plan_for(unit_labels=8), bytes(range(32))
    server = MergerServer(lambda: Merger.open(folder / "merger", lambda: make(plan), 3), "127.0.0.1", 0, secret)
    url = f"http://127.0.0.1:{server.port}"
    stranger = HttpPost(url, bytes(32))  # another secret
    with pytest.raises(OSError, match="does not answer"):
        stranger.standing()
    post = HttpPost(url, secret)
    follower = Follower(post, "here")
    desks = {
        number: PartitionDesk.of(follower, number, folder / f"p{number}", lambda: make(plan), patience=30.0)
        for number in range(3)
    }
    desk = PartitionedDesk("spam", secret, 3, desks, follower, post)
    questions = [Question(f"s{i % 17}", str(i), [float(i % 3), 1.0]) for i in range(90)]
    replies = desk.ask(questions)
    assert sorted(reply.round for reply in replies) == list(range(1, 91))
    pairs = [(one, two.answer) for one, two in zip(questions, replies, strict=True) if two.answer is not None]
    assert set(desk.learn([Taught(one.subject, answer.ticket, "yes") for one, answer in pairs])) == {None}
    again = desk.ask(questions)
    assert [one.round for one in again] == [one.round for one in replies] and all(one.again for one in again)
    seen = desk.private()
    assert seen["labels"] == 90 and seen["guide_labels"] == 90 and seen["partitions"]["here"] == [0, 1, 2]
    assert sum(seen["series"]["labels"]) == 90 and not desk.ended and desk.public()["partitions"] == 3
    assert post.standing().made >= 5
    before, shown = desk.moment, desk.public()["rounds"]
    other = next(f"s{i}" for i in range(99) if partition_of(secret, 3, f"s{i}") == 2)
    assert desk.ask([Question(other, "one more", [1.0, 2.0])])[0].round == desk.public()["rounds"] > shown
    assert desk.moment != before, "what is shown is another, whichever partition took the round"
    assert desk.person("s1")["rounds"] == 6 and desk.forget("s1") and desk.person("s1")["labels"] == 0
    fewer = PartitionedDesk("spam", secret, 3, {0: desks[0]}, follower, post)
    elsewhere = next(f"s{i}" for i in range(99) if partition_of(secret, 3, f"s{i}") == 1)
    refused = fewer.ask([Question(elsewhere, "new", [1.0, 2.0])])[0].refusal
    assert refused is not None and refused.kind == "later"
    with pytest.raises(ValueError, match="another process"):
        fewer.person(elsewhere)
    stranger.close()
    fewer._closing.set()  # what it serves is the other's
    desk.close()
    fewer._thread.join(10)
    assert not fewer._thread.is_alive()
    server.close()


def test_a_place_that_hears_no_more_of_its_merger_says_so_and_nothing_of_what_broke_it(folder: Path) -> None:
    """Whatever ends the thread that hears: the desk has ended, is not ready, and its owner opens it again."""
    cluster = Cluster(folder, plan_for(), partitions=1, places=1)

    class Broken:
        def news(self, known: Any) -> Any:
            raise RuntimeError("somebody's private value")

        def close(self) -> None:
            pass

    desk = PartitionedDesk("spam", b"key", 1, {0: cluster.desks[0]}, cluster.followers[0], Broken())
    desk._thread.join(10)
    assert desk.ended, "it does not hear of seals any more"
    with pytest.raises(StateError, match="RuntimeError") as said:
        desk.beat()
    assert "private" not in str(said.value)
    with pytest.raises(StateError):
        desk.ask([Question("ann", "1", [1.0, 2.0])])

    class Log:
        def __init__(self) -> None:
            self.told = list[str | None]()

        def served(self, *_: Any) -> None: ...

        def failed(self, *_: Any) -> None: ...

        def ready(self, model: str, why: str | None) -> None:
            self.told.append(why)

    log = Log()
    owner = Owner(desk, log)  # type: ignore[arg-type]
    assert owner.ended, "readiness tells the truth before anybody asks"
    owner._fail(desk, str(said.value))  # type: ignore[arg-type]
    owner.close()
    assert "RuntimeError" in str(log.told[-1])
    cluster.merger.close()


def raw(port: int, sent: bytes, seconds: float = 30.0) -> bytes:
    """What the merger's port says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(sent)
        told = b""
        while part := connection.recv(4096):
            told += part
    return told


def answered(port: int, sent: bytes) -> bytes:
    """The same, once there is a place: whoever was there before has not left it at once."""
    told, until = b"", time.monotonic() + 60
    while not told and time.monotonic() < until:
        with suppress(ConnectionError):
            told = raw(port, sent)
        time.sleep(0.01)
    return told


def test_the_mergers_port_has_few_places_little_time_and_a_word_of_its_own_for_every_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, heard = bytes(range(32)), list[bytes]()
    monkeypatch.setattr(posting, "HEAD", 0.3)
    monkeypatch.setattr(posting, "PLACES", 2)
    server = MergerServer(lambda: Merger.open(folder / "m", lambda: make(plan_for()), 2), "127.0.0.1", 0, secret)
    url = f"http://127.0.0.1:{server.port}"
    assert raw(server.port, b"POST /standing HT") == b"", "who says nothing more is not waited for"
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow, suppress(OSError):
        while slow.send(b"P") and time.monotonic() < began + 10:  # byte by byte
            time.sleep(0.05)
    assert time.monotonic() < began + 5, "nor is who says it slowly"
    time.sleep(0.1)
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(2)]
    time.sleep(0.1)
    assert raw(server.port, b"") == b"" and time.monotonic(), "no place is left"
    for one in idle:
        one.close()
    large = b"POST /offer HTTP/1.1\r\ncontent-length: 200000000\r\nauthorization: nobody\r\n\r\n"
    assert b" 401 " in answered(server.port, large).split(b"\r\n")[0], "a body is not read before its sender is known"
    real = posting._signed

    def listened(*given: Any) -> str:
        heard.append(real(*given).encode())
        return heard[-1].decode()

    monkeypatch.setattr(posting, "_signed", listened)
    post = HttpPost(url, secret)
    assert post.standing() == post.standing() == (1, 0, False)
    assert len(heard) == len(set(heard)) > 0 and not any(secret.hex().encode() in one for one in heard)
    body = b'{"place": "x", "need": 5}'
    stolen = heard[0].decode()  # the word of another request
    for call in ("standing", "lend"):
        head = f"POST /{call} HTTP/1.1\r\ncontent-length: {len(body)}\r\nauthorization: {stolen}\r\n\r\n"
        assert b" 401 " in answered(server.port, head.encode() + body).split(b"\r\n")[0], "it is for its own body alone"
    post.close()
    server.close()


def test_what_another_process_at_the_mergers_port_says_is_not_believed() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b'{"told": [9, 9, true]}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        post = HttpPost(f"http://127.0.0.1:{server.server_address[1]}", bytes(32))
        with pytest.raises(OSError, match="merger"):
            post.standing()
        post.close()
        server.shutdown()


def test_what_breaks_at_the_mergers_port_is_told_to_the_operator_by_its_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken(RuntimeError):
        """Neither a state nor a request that is refused."""

    class Breaks:
        ended = False

        def standing(self) -> Any:
            raise Broken("a sum of somebody")

        def close(self) -> None: ...

    port = MergerServer(lambda: cast(Any, Breaks()), "127.0.0.1", 0, bytes(32))
    try:
        post = HttpPost(f"http://127.0.0.1:{port.port}", bytes(32))
        with pytest.raises(OSError):
            post.standing()
        post.close()
    finally:
        port.close()
    told = capsys.readouterr().err
    assert '"event": "merger", "error": "Broken"' in told and "somebody" not in told


def test_a_connection_that_the_merger_closed_meanwhile_is_opened_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "IDLE", 0.2)
    server = MergerServer(lambda: Merger.open(folder / "m", lambda: make(plan_for()), 2), "127.0.0.1", 0, bytes(32))
    post = HttpPost(f"http://127.0.0.1:{server.port}", bytes(32))
    first = post.standing()
    time.sleep(0.6)
    assert post.standing() == first
    post.close()
    server.close()


def test_a_connection_that_opens_while_its_post_is_closed_is_closed_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MergerServer(lambda: Merger.open(folder / "m", lambda: make(plan_for()), 2), "127.0.0.1", 0, bytes(32))
    post = HttpPost(f"http://127.0.0.1:{server.port}", bytes(32))
    signed = posting._signed

    def late(*given: Any) -> str:
        post.close()  # by another thread, when this one has looked whether it is
        return signed(*given)

    monkeypatch.setattr(posting, "_signed", late)
    with pytest.raises(OSError, match="merger"):
        post.standing()
    assert [one.sock for one in post._all] == [None]
    server.close()


def test_nothing_private_is_in_a_repr() -> None:
    """What an error's traceback, a debugger or a log would show of sums, rows and lessons."""
    sums, x = np.array([123_456_789]), b"123456789"
    private = [
        Offer(1, Life(2, 3), sums.tobytes()),
        Row(x, x, x, 7, 1, -1, 0, 123_456_789, 0, 0, x),
        Release("node", 4, sums, sums),
        Kept(5, x, 123_456_789),  # type: ignore[arg-type]
    ]
    for one in private:
        assert "123456789" not in repr(one) and repr(sums.tobytes()) not in repr(one), type(one)
        assert "123456789" not in f"{one} {[one]}"
    assert "partition=1" in repr(private[0]) and "number=7" in repr(private[1])


def test_a_file_names_every_partition_once_and_where_the_merger_is(tmp_path: Path) -> None:
    given: dict[str, Any] = {"key": tmp_path / "key", "number": 4, "owns": "0-1", "merger": "http://127.0.0.1:1"}
    good = PartitionsConfig(**given, owners={"2-3": "http://127.0.0.1:2"})
    assert good.here == [0, 1] and good.there == {2: "http://127.0.0.1:2", 3: "http://127.0.0.1:2"}
    assert PartitionsConfig(key=tmp_path, number=2, owners={"0,1": "http://127.0.0.1:2"}).here == [], "a door"
    for wrong in (
        {"owners": {}}, {"owners": {"1-3": "http://127.0.0.1:2"}}, {"owners": {"2-4": "http://127.0.0.1:2"}},
        {"owners": {"2-3": "ftp://x"}}, {"owners": {"two": "http://127.0.0.1:2"}},
        {"owners": {"2-3": "http://127.0.0.1:2"}, "merger": None},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            PartitionsConfig(**{**given, **wrong})  # type: ignore[arg-type]
    (tmp_path / "key").write_text("short")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        partition_key(tmp_path / "key")


def test_one_file_serves_every_process_if_each_says_at_which_address_it_is(tmp_path: Path) -> None:
    """`owners` names all of them then, and `owns` the address of this one."""
    urls = "http://a:8000", "http://b:8000"
    given: dict[str, Any] = {
        "key": tmp_path / "key", "number": 4, "merger": "http://m:8002",
        "owners": {"0-1": urls[0], "2": urls[1], "3": urls[1]},
    }  # fmt: skip
    first, second = (PartitionsConfig(**given, owns=url) for url in urls)
    assert (first.here, second.here) == ([0, 1], [2, 3])
    assert first.there == dict.fromkeys((2, 3), urls[1]) and second.there == dict.fromkeys((0, 1), urls[0])
    door = PartitionsConfig(**given)
    assert door.here == [] and door.there == first.there | second.there
    alone = PartitionsConfig(**{**given, "owners": {"0-3": urls[0]}}, owns=urls[0])
    assert alone.here == [0, 1, 2, 3] and alone.there == {}
    for wrong, why in (
        ({"owns": "http://c:8000"}, "owners has no partitions at http://c:8000"),
        ({"owns": urls[0], "merger": None}, "must know where the merger is"),
        ({"owns": urls[0], "owners": {"0-2": urls[0], "2-3": urls[1]}}, "once"),
        ({"owns": urls[0], "owners": {"0-1": urls[0]}}, "once"),
        ({"owns": "0-1"}, "once"),
    ):
        with pytest.raises(ValueError, match=why):
            PartitionsConfig(**{**given, **wrong})


# ---------------------------------------------------------------------- simulated


def test_lives_with_crashes_lost_messages_and_two_mergers_keep_every_rule() -> None:
    with simulate.simulated() as base:
        worlds = [simulate.run(seed, base) for seed in range(1, 17)]
        assert sum(max(made for made, _ in world.openings) for world in worlds) > 12, "leaves close under faults too"
        assert {world.kind for world in worlds} == set(simulate.KINDS)
        assert sum(world.kept for world in worlds) > 30, "kept lessons were held against one owner's"


def test_what_one_person_brings_moves_nobodys_number_lease_seal_or_release() -> None:
    with simulate.simulated() as base:
        for seed in range(1, 6):
            simulate.pair(seed, base)


FOUND = {"a merger without a fence": 8, "numbers of a sealed leaf": 7, "a kept lesson in many leaves": 5}
"""In which life a rule was found broken, where it is not the first or second: from there on it is looked for."""


@pytest.mark.parametrize("name", simulate.DOUBLES)
def test_a_broken_rule_is_found_out(name: str) -> None:
    with simulate.simulated() as base:
        assert simulate.caught(name, base, range(FOUND.get(name, 1), 100)) is not None
