"""The operator's counts: few bins for any number of rounds, and nothing is lost when they grow wider."""

import random

from confide.service.counts import Counts


def test_bins_grow_wider_and_lose_nothing() -> None:
    coins, counts = random.Random(1), Counts()
    plain = {source: 0 for source in range(-1, 4)}
    for number in range(1, 40_001):
        source = coins.randrange(-1, 4)
        plain[source] += 1
        counts.asked([number], [source], number // 10)
        if number % 3 == 0:
            counts.labelled([number - 2], [number % 2 == 0])
        if number == 20_000:
            counts = Counts(counts.dump(7))
    totals, series = counts.totals(), counts.series()
    assert [totals[name] for name in ("refused", "fallback", "guide", "lean", "copies")] == list(plain.values())
    assert (totals["labels"], totals["wrong"]) == (13_333, 6666) and not counts.empty
    assert len(series["round"]) <= 256 and series["width"] == 256 and series["round"][:2] == [1, 257]
    assert series["unsure"] == [min(40_000, last + 255) // 10 for last in series["round"]]
    assert all(sum(row) in (256, 64) for row in zip(*(series[name] for name in list(totals)[:5]), strict=True))
