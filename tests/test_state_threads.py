"""Many threads: nobody sees what is not durable, nobody waits for another's write with a lock, nothing is lost."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from confide import POP, Halted, StateError
from confide.ledger import Book, Ledger
from tests.saved import CLEAR, DOUBT, ECHO, Spy, account, echo, full, small_plan

pytestmark = pytest.mark.claim("people.md")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


class Gatekeeper:
    """Holds up every write until it is told to let go, or to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writing, self.go = threading.Event(), threading.Event()
        self.fails, self.writes = False, 0
        write = Book._write

        def wait(book: Book) -> None:
            self.writes += 1
            self.writing.set()
            assert self.go.wait(30)
            if self.fails:
                full(book)
            write(book)

        monkeypatch.setattr(Book, "_write", wait)


class Asker(threading.Thread):
    """Asks in a thread of its own, and keeps what it was told."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._act = act
        self.told: object = None
        self.start()

    def run(self) -> None:
        try:
            self.told = self._act()
        except Exception as error:
            self.told = error


@pytest.mark.parametrize("fails", [False, True], ids=["written", "failed"])
@pytest.mark.parametrize("after_halt", ["raise", "fallback"])
def test_a_halt_is_seen_once_it_is_durable(
    after_halt: str, fails: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pop = echo(after_halt=after_halt)
    pop.save(folder)
    pop.predict(CLEAR, unit="ann")
    account(pop).unsure = 10_000  # the next draw halts
    keeper = Gatekeeper(monkeypatch)
    first = Asker(lambda: pop.predict(CLEAR, unit="bob"))
    assert keeper.writing.wait(30)
    others = [
        Asker(lambda: pop.predict(CLEAR, unit="carl")),
        Asker(lambda: pop.predict_many([CLEAR], units=["dora"])),
    ]
    for other in others:
        other.join(0.2)
    assert account(pop).halted == "budget", "it has halted inside"
    rounds = 1 if after_halt == "raise" else 4  # where a halt ends nothing, a round is seen as soon as it is taken
    assert (pop.state, pop.halt_reason, pop.rounds) == ("live", None, rounds) and "halted" not in repr(pop)
    assert all(asker.is_alive() for asker in (first, *others)), "and nobody has been told"
    keeper.fails = fails
    keeper.go.set()
    for asker in (first, *others):
        asker.join(30)
    if fails:
        assert all(isinstance(asker.told, StateError) for asker in (first, *others))
        assert (pop.state, pop.halt_reason, pop.rounds) == ("live", None, rounds), "never shown, as it may be forgotten"
    else:
        assert (pop.state, pop.halt_reason, pop.rounds) == ("halted", "budget", 2 if after_halt == "raise" else 4)
        assert all(isinstance(other.told, Halted) == (after_halt == "raise") for other in others)
    pop.close()


def test_others_are_asked_while_one_waits_for_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock is held over a write, and who comes before it begins shares it."""
    pop = echo()
    pop.save(folder)
    keeper = Gatekeeper(monkeypatch)
    askers = [Asker(lambda i=i: pop.predict(CLEAR, unit=f"person {i}")) for i in range(7)]  # type: ignore[misc]
    for _ in range(600):
        if account(pop).rounds == 7:
            break
        threading.Event().wait(0.05)
    assert account(pop).rounds == 7 and pop.rounds == 0
    keeper.go.set()
    for asker in askers:
        asker.join(30)
    assert keeper.writes <= 2
    assert len({asker.told.ticket for asker in askers}) == pop.rounds == 7  # type: ignore[attr-defined]
    pop.close()


def test_nothing_is_lost_between_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads ask and learn; what any of them was told is on disk at that moment."""
    pop = echo(plan=small_plan(copies=60, unsure=1000))
    pop.save(folder)
    spy, ledger, tickets = Spy(monkeypatch), Ledger(folder / "ledger.db"), list[str]()

    def live(thread: int) -> None:
        for i in range(6):
            answer = pop.predict([CLEAR, DOUBT][i % 2], unit=f"person {thread} {i}")
            kept = ledger.read("pop")
            who = pop.operator.loop.routing.who(f"person {thread} {i}")
            assert who is not None and kept.shares.get(who, 0) == i % 2
            pop.learn(answer.ticket, "yes")
            epoch, number = (int(part) for part in answer.ticket.split("-")[:2])
            assert (epoch, number) in ledger.read("pop").used
            tickets.append(answer.ticket)

    askers = [Asker(lambda thread=thread: live(thread)) for thread in range(8)]  # type: ignore[misc]
    for asker in askers:
        asker.join(60)
    assert [asker.told for asker in askers] == [None] * 8
    assert len(spy.entries) == 96 and spy.writes < 96, "they share writes"
    pop.close()
    assert {int(ticket.split("-")[1]) for ticket in tickets} == set(range(1, 49))
    with POP.load(folder, **ECHO) as back:
        assert (back.rounds, back.operator.unsure) == (48, 24)
