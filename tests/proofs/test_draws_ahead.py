"""Where a word is drawn does not matter, and what shares a word does: docs/proofs/polls.md, docs/proofs/halting.md.

Words have four values here, so that all streams of words can be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations, product

import pytest

pytestmark = [pytest.mark.claim("polls.md"), pytest.mark.claim("halting.md")]

WORDS = 4
SURE = (1, 1, 3)
"""A label iff the word is below SURE[margin]."""
GO = (3, 3, 2, 1)
"""It goes on iff the word is below GO[count]."""
VOTES = (1, 0)
"""How two copies vote in every round; the poll is one of them, and a third copy that always votes 1."""
ROUNDS = 2

View = tuple[object, ...]


def _poll(word: int) -> int:
    return word % 2


def _outcome(poll: int, gate: int, halt: int, count: int) -> tuple[int | None, int, bool]:
    """One round: the label or None, the new count, whether it goes on."""
    votes = (VOTES[poll], 1)
    label = int(sum(votes) > 1) if gate < SURE[abs(2 * sum(votes) - 2)] else None
    count += label is None
    return label, count, halt < GO[count]


def one_stream(words: Sequence[int]) -> View:
    """One generator for everything, each word drawn when it is needed: a coin moves what comes after it."""
    stream, view, count = iter(words), [], 0
    for _ in range(ROUNDS):
        label, count, goes_on = _outcome(_poll(next(stream)), next(stream), next(stream), count)
        view.append((next(stream) % 2, False) if label is None else (label, True))
        if not goes_on:
            return (*view, "halt")
    return tuple(view)


def own_coins(words: Sequence[int]) -> View:
    """The fallback's coin from words of its own; polls, gate words and halting words follow the round's number."""
    return _by_number(words, lambda i: 3 * i)


def ahead(words: Sequence[int]) -> View:
    """All polls of the batch first, then all gate words, then all halting words; what a halt leaves over is lost."""
    polls, gates, halts, coins = (words[ROUNDS * j : ROUNDS * (j + 1)] for j in range(4))
    view, count = [], 0
    for i in range(ROUNDS):
        label, count, goes_on = _outcome(_poll(polls[i]), gates[i], halts[i], count)
        view.append((coins[i] % 2, False) if label is None else (label, True))
        if not goes_on:
            return (*view, "halt")
    return tuple(view)


def _by_number(words: Sequence[int], at: Callable[[int], int]) -> View:
    view, count, coins = [], 0, iter(words[3 * ROUNDS :])
    for i in range(ROUNDS):
        j = at(i)
        label, count, goes_on = _outcome(_poll(words[j]), words[j + 1], words[j + 2], count)
        view.append((next(coins) % 2, False) if label is None else (label, True))
        if not goes_on:
            return (*view, "halt")
    return tuple(view)


def one_poll(words: Sequence[int]) -> View:
    """Broken: one poll for the batch."""
    held = list(words)
    held[3] = held[0]
    return own_coins(held)


def same_word(words: Sequence[int]) -> View:
    """Broken: the halting draw reads the gate's word."""
    held = list(words)
    held[2], held[5] = held[1], held[4]
    return own_coins(held)


def picked(words: Sequence[int]) -> View:
    """Broken: of two words drawn ahead the round takes the one that makes it sure."""
    held = list(words)
    held[1], held[4] = min(held[1], held[4]), max(held[1], held[4])
    return own_coins(held)


def law(run: Callable[[Sequence[int]], View]) -> dict[View, Fraction]:
    streams = WORDS ** (4 * ROUNDS)
    seen = Counter(run(words) for words in product(range(WORDS), repeat=4 * ROUNDS))
    return {view: Fraction(times, streams) for view, times in seen.items()}


def test_the_order_of_drawing_changes_no_law() -> None:
    plain = law(one_stream)
    assert len(plain) > 10
    assert law(own_coins) == plain
    assert law(ahead) == plain


@pytest.mark.parametrize("broken", [one_poll, same_word, picked])
def test_shared_and_picked_words_do(broken: Callable[[Sequence[int]], View]) -> None:
    assert law(broken) != law(one_stream)


@pytest.mark.parametrize("labels", [2, 3])
def test_one_vote_is_two_of_margin_also_where_copies_abstain(labels: int) -> None:
    """Lemma 1, every vote of four copies; nobody voting is a tie. A bank that fails as a whole is no abstention."""

    def lead(votes: Sequence[int | None]) -> tuple[int, int]:
        counts = [sum(vote == label for vote in votes) for label in range(labels)]
        order = sorted(counts, reverse=True)
        return counts.index(order[0]), order[0] - order[1]

    assert lead([None, None]) == (0, 0)
    choices: list[int | None] = [None, *range(labels)]
    widest = 0
    for votes in product(choices, repeat=4):
        top, margin = lead(votes)
        for i, other in product(range(4), choices):
            changed_top, changed = lead([other if j == i else vote for j, vote in enumerate(votes)])
            assert abs(margin - changed) <= 2
            assert top == changed_top or margin + changed <= 2
        widest = max(widest, abs(margin - lead([None] * 4)[1]))
    assert widest == 4  # one copy's exception must not silence the others


def test_a_round_that_skips_its_draw_tells() -> None:
    """A person whose thirty rounds are malformed in one world and sure in the other, at h = 1/5: alive at the end?"""
    h = Fraction(1, 5)

    def alive(kinds: Sequence[str], skip: frozenset[str]) -> Fraction:
        chance = Fraction(1)
        for kind in kinds:
            chance *= 1 if kind in skip else 1 - h
        return chance

    worlds = ["malformed"] * 30, ["sure"] * 30
    assert alive(worlds[0], frozenset()) == alive(worlds[1], frozenset())
    skips = frozenset({"malformed"})
    assert alive(worlds[0], skips) - alive(worlds[1], skips) > Fraction(99, 100)


def test_a_poll_drawn_ahead_is_still_uniform() -> None:
    """S′, j and the coin of Theorem 4 make every subset equally often, so they may be drawn in any round before."""
    for copies, polls in ((3, 2), (4, 2), (5, 3)):
        q, seen = Fraction(polls, copies), Counter[frozenset[int]]()
        others = list(combinations(range(1, copies), polls))
        for subset in others:
            for j in subset:
                seen[frozenset(subset)] += (1 - q) / len(others) / polls  # type: ignore[assignment]
                seen[frozenset(subset) - {j} | {0}] += q / len(others) / polls  # type: ignore[assignment]
        assert set(seen.values()) == {Fraction(1, len(list(combinations(range(copies), polls))))}
