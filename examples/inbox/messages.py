"""Messages to an inbox: SST-2's phrases where they are at hand, else made-up ones, written for this example."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np

__all__ = ["LABELS", "messages"]

LABELS = ("complaint", "praise")
"""What a message may be: SST-2's negative and positive."""

FILE = "sst2.tsv.gz"

_ABOUT = (
    *("the delivery", "your courier", "the new app", "the website", "the box", "the manual", "your support"),
    *("the lamp", "the chair", "the jacket", "the kettle", "the screen", "the charger", "the sofa", "the keyboard"),
    *("the colour", "the smell", "the fabric", "the sound", "the battery", "the wrapping", "your shop", "the refund"),
)
_SAYS = {
    "complaint": (
        *("is a disappointment", "came far too late", "stopped working after a day", "is not what the picture shows"),
        *("is broken", "is a waste of money", "makes me angry", "feels cheap", "is dull and clumsy", "is only trouble"),
        *("never worked", "is worse than the old one", "is a bad joke", "has cost me three evenings", "is awful"),
    ),
    "praise": (
        *("is wonderful", "came a day early", "works as promised", "is better than the picture", "made my week"),
        *("is worth every penny", "feels solid", "is a joy to use", "is the best in years", "surprised all of us"),
        *("is lovely", "could not be easier", "has saved me three evenings", "is a fine piece of work", "is great"),
    ),
}
_BEFORE = ("", "", "", "hello, ", "honestly, ", "to whoever reads: ", "i must say, ", "once more: ", "my mother says ")
_AFTER = ("", "", "", ", as ever", ", and i told my friends", ", that is all", ", please pass it on", ", no kidding")


def messages(most: int | None = None, seed: int = 7) -> tuple[str, list[str], list[str]]:
    """What the messages are, the messages, and what was right for each; SST-2 where CONFIDE_DATA has it."""
    folder, coins = os.environ.get("CONFIDE_DATA"), np.random.default_rng(seed)
    if folder and (Path(folder) / FILE).is_file():
        with gzip.open(Path(folder) / FILE, "rt", encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file][1:]
        rows = [rows[i] for i in coins.permutation(len(rows))][:most]
        return "SST-2", [text for _, text in rows], [LABELS[int(label)] for label, _ in rows]
    texts, right = list[str](), list[str]()
    for _ in range(20_000 if most is None else most):
        label = LABELS[int(coins.integers(2))]
        parts = [str(coins.choice(list(pool))) for pool in (_BEFORE, _ABOUT, _SAYS[label], _AFTER)]
        texts.append(f"{parts[0]}{parts[1]} {parts[2]}{parts[3]}")
        noisy = coins.random() < 0.08  # people err
        right.append(LABELS[1 - LABELS.index(label)] if noisy else label)
    return "made-up messages", texts, right
