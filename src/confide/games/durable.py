"""The disk of a world: what was written, when, and what a load must bring back. See docs/proofs/people.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from confide.games.reference import Expected, Line, digests
from confide.games.script import Again, Ask, AskMany, Follow, Over, Step, Teach, TeachMany
from confide.guide.guide import Guide
from confide.ledger.book import Book, Entry
from confide.pop.loop import Loop

Public = tuple[object, ...]


class Ear:
    """A book with an ear on it: what is entered, and what everybody could see while it was being written."""

    def __init__(self, book: Book, see: Callable[[], Public], guide: Guide | None) -> None:
        self.book, self.see = book, see
        self.entries: list[Entry] = []
        self.seen: list[Public] = []
        self._guide, self._releases = guide, list[int]()  # entries that hold sums that were released
        self._before = 0 if guide is None else guide.closed
        self.early = False
        """Whether sums were used before they were durable."""

    def add(self, entry: Entry) -> int:
        self.entries.append(entry)
        sequence = self.book.add(entry)
        self._releases += [sequence for kind, *_ in entry.released if kind in ("linear/warm", "linear/node")]
        return sequence

    def wait(self, sequence: int, *, private: bool = False) -> None:
        self.seen.append(self.see())
        self.look()
        self.book.wait(sequence, private=private)

    def look(self) -> None:
        """Whether the guide uses more than is durable."""
        durable = self._before + sum(sequence <= self.book.durable for sequence in self._releases)
        self.early = self.early or (self._guide is not None and self._guide.closed > durable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.book, name)


class Durable:
    """The state folder of a world, with its ledger; nothing is checked before the mechanism is saved there."""

    def __init__(self, folder: Path, see: Callable[[], Public]) -> None:
        self.folder, self.see = folder, see
        self.ear: Ear | None = None
        self.works, self.failed = True, False
        self.fault = ""
        self.forgot: dict[int, bytes | None] = {}
        """Copies that were reset since the last snapshot, and what they held then."""

    def listen(self, loop: Loop | None) -> None:
        """Put an ear on the book of a mechanism that was just saved or loaded."""
        if loop is not None and loop.account.book is not None:
            guide = None if loop.guiding is None else loop.guiding.guide
            self.ear = Ear(loop.account.book, self.see, guide)
            loop.account.book = cast(Book, self.ear)

    def turn(self, works: bool) -> None:
        """Let every write fail, or none. A book whose file is gone refuses to write."""
        if works != self.works:
            here, away = self.folder / "ledger.db", self.folder / "away"
            here.rename(away) if not works else away.rename(here)
        self.works, self.failed = works, self.failed or not works

    def take(self, step: Step | None, before: Public) -> list[Entry]:
        """What was entered in this step; notes where something left before it was durable.

        A record may wait for the next write that is waited for: what it taught leaves no earlier.
        """
        self.fault = ""
        if self.ear is None:
            return []
        entries, seen, records = self.ear.entries, self.ear.seen, Teach | TeachMany
        self.ear.entries, self.ear.seen = [], []
        self.ear.look()
        if self.ear.early:
            self.fault = "a sum was used before it was durable: after a crash it would be released again"
        elif any(_halts(public) != _halts(before) for public in seen):
            self.fault = "a halt could be seen before it was durable"
        elif entries and not self.failed and self.ear.durable < self.ear.sequence and not isinstance(step, records):
            self.fault = "the step was over before what it spent was durable"
        return entries

    def entered(self, step: Step | None, expected: Expected, line: Line) -> str:
        """Whether a question wrote one entry, on all who asked and nobody else; or none, if it takes no round."""
        if isinstance(step, Again | Over) and line.entries:
            return "a request that takes no round, as it was sent again or is beyond a quota, wrote something"
        if self.ear is None or not isinstance(step, Ask | AskMany | Follow):
            return ""
        if not self.works and not line.shown[0]:
            return "it answered though what was spent could not be written"
        if self.failed:
            return ""
        entries = [entry for entry in line.entries if not entry.released]
        if len(entries) != 1:
            return f"{len(entries)} entries were written, and there is one for each call, whatever came of it"
        asked, entry = {who for who in expected.whos if who is not None}, entries[0]
        if {who for who, _ in entry.shares} != asked or {who for who, _ in entry.watched} != asked:
            return "the entry names others than those who asked: its form depends on what came of the call"
        return ""

    def lost(self, spent: Mapping[str, int], knew: dict[int, bytes], loop: Loop | None) -> str:
        """What a load lost of what was spent, or brought back of what was forgotten; `knew`: the copies before it."""
        after = spending(loop)
        fell = [f"{name} fell from {n} to {after.get(name, 0)}" for name, n in spent.items() if after.get(name, 0) < n]
        if fell:
            return f"the load forgot what was spent: {', '.join(fell[:2])}"
        known = {} if loop is None else digests(loop.bank)
        for copy, held in self.forgot.items():
            if held is None and copy in known and known[copy] != knew.get(copy):
                return f"copy {copy}: the load brought back what it knew of a person who was forgotten"
        return ""


def _halts(public: Public) -> Public:
    """What nobody may see before it is durable: all but the number of rounds, and whether they are silent."""
    return public[1] == "halted", *public[2:]


def spending(loop: Loop | None) -> dict[str, int]:
    """Everything that may only grow."""
    if loop is None:
        return {}
    account = loop.account
    shares = {f"the unsure answers of unit {who.hex()[:6]}": n for who, n in account.shares.items()}
    counted = {f"the monitored rounds of unit {who.hex()[:6]}": n for who, n in account.watched.items()}
    learned = {f"the guide's labels of unit {who.hex()[:6]}": n for who, n in account.labels.items()}
    totals = {
        "the rounds": account.rounds,
        "the unsure answers": account.unsure,
        "the rows of history": account.history,
    }
    if loop.parts:
        totals["the sums released"] = loop.parts.closed
    return {**totals, "the halt": int(account.halted is not None), **shares, **counted, **learned}


def coins_that_return(load: Callable[[], Any], inside: Callable[[Any], Loop | None]) -> str:
    """Load twice, and see whether both draw the same coins."""
    coins = []
    for _ in range(2):
        fresh = load()
        loop = inside(fresh)
        coins.append(None if loop is None else loop.rng.words(4).tobytes())
        fresh.close()
    if coins[0] is not None and coins[0] == coins[1]:
        return "the load brought back randomness: another load of this state drew the same coins"
    return ""
