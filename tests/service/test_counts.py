"""The operator's counts: few bins for any number of rounds, and nothing is lost when they grow wider."""

import random
from pathlib import Path
from typing import Any

import pytest

from confide.errors import StateError
from confide.ledger.file import File
from confide.pop.base import OWN_SOURCES
from confide.service.counts import Counts
from confide.service.desk import PopDesk
from confide.service.journal import NOBODY, Columns, Row
from tests.saved import make, small_plan
from tests.service.opened import again, ask, folder, kind, learn, open_desk, ticket

__all__ = ["folder"]


def brought(number: int) -> Row:
    """The label 1 of a round."""
    return Row(NOBODY, NOBODY, NOBODY, number, 1, -1, -1, 1, 1, -1, None)


def test_bins_grow_wider_and_lose_nothing() -> None:
    coins, counts = random.Random(1), Counts()
    plain = {source: 0 for source in range(-1, 4)}
    for number in range(1, 40_001):
        source = coins.randrange(-1, 4)
        plain[source] += 1
        counts.asked([number], [source], number // 10)
        if number % 3 == 0:
            counts.labelled(Columns.of([brought(number - 2)]), [number % 2])
        if number == 20_000:
            note, counts = counts.note(), Counts()
            counts.read(note, 7)
            assert len(note) == len(Counts().note()) and counts.sequence == 7
    totals, series = counts.totals(), counts.series()
    assert [totals[name] for name in ("refused", "fallback", "guide", "lean", "copies")] == list(plain.values())
    assert (totals["labels"], totals["wrong"]) == (13_333, 6666) and not counts.empty
    assert len(series["round"]) <= 256 and series["width"] == 256 and series["round"][:2] == [1, 257]
    assert series["unsure"] == [min(40_000, last + 255) // 10 for last in series["round"]]
    assert all(sum(row) in (256, 64) for row in zip(*(series[name] for name in list(totals)[:6]), strict=True))


def seen(desk: PopDesk) -> dict[str, Any]:
    """What the operator is shown of the past; of unsure answers the count now, not at the end of every bin."""
    private = desk.private()
    series = {name: values for name, values in private["series"].items() if name != "unsure"}
    return {"series": series} | {name: private[name] for name in ("labels", "error", "shares", "rounds", "unsure")}


def test_a_label_is_counted_after_a_kill_though_its_question_was_dropped_from_the_journal(folder: Path) -> None:
    desk = open_desk(folder, ticket_life=10, save_every=None)
    for i in range(100):
        learn(desk, "ann", ticket(ask(desk, "ann", str(i), [1.0, 2.0])), "yes")
    assert seen(desk)["labels"] == 100
    back = again(desk)
    assert back.private()["labels"] == 100 and sum(back.private()["series"]["fallback"]) <= 100
    assert sum(sum(back.private()["series"][source]) for source in OWN_SOURCES) == 100
    back.close()


@pytest.mark.parametrize("seed", range(3))
def test_the_operator_is_shown_the_same_after_every_kill(folder: Path, seed: int) -> None:
    """Whatever was dropped from the journal, erased with a person, refused, saved or halted meanwhile."""
    coins = random.Random(seed)
    desk = open_desk(folder, plan=small_plan(rounds=350), ticket_life=10, save_every=90, after_halt="raise")
    tickets = list[tuple[str, str]]()
    for step in range(500):
        who, what = f"person {coins.randrange(5)}", coins.random()
        if what < 0.85:
            asked = ask(desk, who, str(step), coins.choice([[1.0, 2.0], [2.0, 0.5], "words"]))
            tickets += [] if asked.answer is None else [(who, asked.answer.ticket)]
        elif what < 0.87:
            desk.forget(who)
        elif what < 0.88:
            desk.save()
        elif what < 0.9:
            before = seen(desk)
            desk = again(desk)
            assert seen(desk) == before, step
        if tickets and coins.random() < 0.6:
            learn(desk, *tickets.pop(coins.randrange(len(tickets))), coins.choice(["no", "yes"]))
    before = seen(desk)
    desk.close()
    desk = PopDesk.open(folder.with_name(desk.folder.name), make)
    assert seen(desk) == before and before["labels"] > 50 and before["rounds"] == 350
    desk.close()


def test_what_is_not_durable_is_not_shown_so_that_no_recovery_takes_it_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, real = open_desk(folder), File.transaction
    tickets = [ticket(ask(desk, "ann", str(i), [1.0, 2.0])) for i in range(2)]
    learn(desk, "ann", tickets[0], "yes")
    before = seen(desk)

    def full(self: File) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(File, "transaction", full)
    assert kind(learn(desk, "ann", tickets[1], "no")) == "later"
    assert seen(desk) == before and before["labels"] == 1, "somebody is still to bring it again"
    with pytest.raises(StateError):
        ask(desk, "ann", "more", [1.0, 2.0])
    assert seen(desk) == before and desk.private()["alarms"]
    monkeypatch.setattr(File, "transaction", real)
    back = again(desk)
    assert seen(back) == before
    assert learn(back, "ann", tickets[1], "no") is None and seen(back)["labels"] == 2
    back.close()
