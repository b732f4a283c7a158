"""Streams by name: Agrawal in blocks, KDD-99 and Elec from a folder, River's data sets and generators, and files."""

from __future__ import annotations

import importlib
import inspect
import os
import zlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from confide.data.rows import Item, Row, Stream, Table, open_file
from confide.learners import Features
from confide.learners.base import Floats

__all__ = ["AGRAWAL", "agrawal_label", "agrawal_rows", "open_stream"]

BLOCK = 4096
"""Rows made or encoded at a time."""


def open_stream(
    name: str,
    *,
    rows: int | None = None,
    seed: int = 0,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    unit: str | None = None,
) -> Stream:
    """A stream by its name.

    Parameters
    ----------
    name
        A path ending in .csv, .csv.gz or .parquet; `agrawal` or `agrawal:N` for one of its ten label functions;
        `kdd99`, `kdd99:all` or `elec` from the folder that the environment variable CONFIDE_DATA names; or a
        classification data set or generator of River's in lower case, such as `shuttle`, `sea`, `sea:2` or `led`.
    rows
        How many rows to take; endless generators need it.
    seed
        Of a generator: public, and no source of privacy.
    label, labels, unit
        For files: see `confide.data.rows.open_file`.

    Examples
    --------
    >>> open_stream("agrawal:3", rows=1000).names[:3]
    ('salary', 'commission', 'age')
    """
    if rows is not None and rows < 1:
        raise ValueError(f"rows={rows} must be at least 1")
    if name.endswith((".csv", ".csv.gz", ".parquet")):
        return open_file(Path(name), label=label, labels=labels, unit=unit)
    if label is not None or labels is not None or unit is not None:
        raise ValueError(f"--label, --labels and --unit are for files; {name!r} declares its own")
    base, _, which = name.lower().partition(":")
    if base == "agrawal":
        return _agrawal(name, _number(name, which, 9), _endless(name, rows), seed)
    if base == "kdd99" and which in ("", "all"):
        return _kdd99(name, which == "all")
    if base == "elec" and not which:
        path = _data("elec.csv", "OpenML's data set `electricity`")
        return replace(open_file(path, label="class", labels=["0", "1"], hashed=0), name=name)
    return _river(name, base, which, rows, seed)


def _number(name: str, text: str, most: int) -> int:
    if text and not (text.isdecimal() and int(text) <= most):
        raise ValueError(f"{name!r}: the number after the colon must be from 0 to {most}")
    return int(text or 0)


def _endless(name: str, rows: int | None) -> int:
    if rows is None:
        raise ValueError(f"{name!r} has no end: say how many rows to take with --rounds")
    return rows


def _data(file: str, source: str) -> Path:
    """A file in the folder of data sets, or how to get it."""
    folder = os.environ.get("CONFIDE_DATA")
    path = Path(folder or ".") / file
    if folder and path.is_file():
        return path
    raise ValueError(f"{file} is missing: get {source}, put it in a folder, and name that in CONFIDE_DATA")


# ---------------------------------------------------------------------- Agrawal

AGRAWAL = ("salary", "commission", "age", "elevel", "car", "zipcode", "hvalue", "hyears", "loan")
"""The nine features of Agrawal, Imielinski and Swami, "Database Mining: A Performance Perspective" (1993)."""


def agrawal_rows(rng: np.random.Generator, rows: int) -> Floats:
    """Rows of the nine features, distributed as River's generator draws them.

    Examples
    --------
    >>> agrawal_rows(np.random.default_rng(0), 2).shape
    (2, 9)
    """
    salary = rng.uniform(20_000, 150_000, rows)
    commission = np.where(salary < 75_000, rng.uniform(10_000, 85_000, rows), 0.0)
    zipcode = rng.integers(0, 9, rows)
    return np.column_stack(
        (
            *(salary, commission, rng.integers(20, 81, rows), rng.integers(0, 5, rows), rng.integers(1, 21, rows)),
            *(zipcode, (8 - zipcode) * rng.uniform(50_000, 150_000, rows), rng.integers(1, 31, rows)),
            rng.uniform(0, 500_000, rows),
        )
    )


def agrawal_label(function: int, x: Floats) -> NDArray[np.bool_]:
    """Whether each row has label 1 by one of the ten functions, numbered from 0, as River answers them.

    Function 4 is River's: for the young and the middle-aged it asks for a salary where the paper asks for a loan.

    Examples
    --------
    >>> agrawal_label(0, np.array([[50_000, 20_000, 35, 2, 7, 3, 500_000, 9, 90_000.0]]))
    array([ True])
    """
    columns: tuple[Floats, ...] = tuple(x.T)
    salary, commission, age, elevel, _, _, hvalue, hyears, loan = columns
    left: Floats
    young, old = age < 40, age >= 60
    total = salary + commission

    def by_age(a: NDArray[np.bool_], b: NDArray[np.bool_], c: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.where(young, a, np.where(old, c, b))

    def within(value: Floats, low: float, high: float) -> NDArray[np.bool_]:
        return (1000 * low <= value) & (value <= 1000 * high)

    match function:
        case 0:
            return np.logical_or(young, old)
        case 1:
            return by_age(within(salary, 50, 100), within(salary, 75, 125), within(salary, 25, 75))
        case 2:
            return by_age(elevel <= 1, (elevel >= 1) & (elevel <= 3), elevel >= 2)
        case 3:
            low, middle, high = within(salary, 25, 75), within(salary, 50, 100), within(salary, 75, 125)
            return by_age(
                np.where(elevel <= 1, low, middle),
                np.where((elevel >= 1) & (elevel <= 3), middle, high),
                np.where(elevel >= 2, middle, low),
            )
        case 4:
            return by_age(
                np.where(within(salary, 50, 100), within(loan, 100, 300), within(salary, 200, 400)),
                np.where(within(salary, 75, 125), (salary >= 200_000) & (loan <= 400_000), within(salary, 300, 500)),
                np.where(within(salary, 25, 75), within(loan, 300, 500), within(loan, 75, 300)),
            )
        case 5:
            return by_age(within(total, 50, 100), within(total, 75, 125), within(total, 25, 75))
        case 6:
            left = 2 * total / 3 - loan / 5 - 20_000
        case 7:
            left = 2 * total / 3 - 5000 * elevel - 20_000
        case 8:
            left = 2 * total / 3 - 5000 * elevel - loan / 5 - 10_000
        case 9:
            equity = np.where(hyears >= 20, hvalue * (hyears - 20) / 10, 0.0)
            left = 2 * total / 3 - 5000 * elevel + equity / 5 - 10_000
        case _:
            raise ValueError(f"function={function} must be from 0 to 9")
    return np.less_equal(left, 1)


def _agrawal(name: str, function: int, rows: int, seed: int) -> Stream:
    def source(dicts: bool) -> Iterator[Item]:
        rng = np.random.default_rng(seed)
        for start in range(0, rows, BLOCK):
            block = agrawal_rows(rng, BLOCK)[: rows - start]
            labels = agrawal_label(function, block).astype(int).tolist()
            yield from _from_block(block, labels, AGRAWAL if dicts else None)

    return Stream(name, (0, 1), AGRAWAL, len(AGRAWAL), source, rows)


def _from_block(block: Floats, labels: Sequence[Hashable], names: Sequence[str] | None) -> Iterator[Row]:
    if names is None:
        return map(Row, block, labels)
    return (Row(dict(zip(names, x, strict=True)), y) for x, y in zip(block.tolist(), labels, strict=True))


# ---------------------------------------------------------------------- KDD-99

# The published order. ~ marks counts of very different sizes, taken by their logarithm; =N a category in N columns.
_KDD_SCHEMA = """
duration~ protocol_type=11 service=32 flag=15 src_bytes~ dst_bytes~ land wrong_fragment~ urgent~ hot~ num_failed_logins~
logged_in num_compromised~ root_shell su_attempted~ num_root~ num_file_creations~ num_shells~ num_access_files~
num_outbound_cmds~ is_host_login is_guest_login count~ srv_count~ serror_rate srv_serror_rate rerror_rate
srv_rerror_rate same_srv_rate diff_srv_rate srv_diff_host_rate dst_host_count~ dst_host_srv_count~
dst_host_same_srv_rate dst_host_diff_srv_rate dst_host_same_src_port_rate dst_host_srv_diff_host_rate
dst_host_serror_rate dst_host_srv_serror_rate dst_host_rerror_rate dst_host_srv_rerror_rate
"""
_KDD_LABELS = """
back buffer_overflow ftp_write guess_passwd imap ipsweep land loadmodule multihop neptune nmap normal perl phf pod
portsweep rootkit satan smurf spy teardrop warezclient warezmaster
"""
_KDD_FIELDS = _KDD_SCHEMA.split()
_KDD_NAMES = [field.rstrip("~").partition("=")[0] for field in _KDD_FIELDS]
_KDD_TEXTS = {name: int(width) for name, _, width in (field.partition("=") for field in _KDD_FIELDS) if width}
KDD99 = Features(
    numeric=[field for field in _KDD_FIELDS if "~" not in field and "=" not in field],
    log=[field.rstrip("~") for field in _KDD_FIELDS if "~" in field],
    categorical=_KDD_TEXTS,
)
"""How a KDD-99 record becomes numbers; then it is weighed by `KDD99_WEIGHTS`."""

KDD99_WEIGHTS = np.repeat([1.0, 0.2, 2.0], [len(KDD99.numeric), len(KDD99.log), sum(_KDD_TEXTS.values())])
"""Rates as they are, logarithms of counts a fifth, categories twice: for learners that do not scale by themselves.

Constants in a run, but chosen by trying several on this very data set (see benchmarks/kdd.py): on data of your own
such a choice looks at private records, and is outside the guarantee.
"""


def _kdd99(name: str, every_class: bool) -> Stream:
    """The 10 % file, shuffled by a fixed seed: in the file the attacks come one kind after the other."""
    path = _data("kddcup.data_10_percent.gz", "KDD Cup 1999's 10 % file from the UCI repository")
    kinds = {column: pa.string() if column in _KDD_TEXTS else pa.float64() for column in _KDD_NAMES}
    try:
        table = pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(column_names=[*_KDD_NAMES, "label"]),
            convert_options=pacsv.ConvertOptions(column_types={**kinds, "label": pa.string()}),
        )
    except (OSError, pa.ArrowInvalid):
        raise ValueError(f"{path.name} is damaged: get it again") from None
    table = table.take(np.random.default_rng(1999).permutation(table.num_rows)).combine_chunks()
    attacks = np.array([text.rstrip(".") for text in table["label"].to_pylist()])
    labels: list[Hashable] = attacks.tolist() if every_class else (attacks != "normal").astype(int).tolist()

    def source(dicts: bool) -> Iterator[Item]:
        for start in range(0, table.num_rows, BLOCK):
            part = table.slice(start, BLOCK)
            if dicts:
                yield from map(Row, part.drop_columns(["label"]).to_pylist(), labels[start : start + BLOCK])
            else:
                yield from _from_block(_kdd_block(part), labels[start : start + BLOCK], None)

    classes: tuple[Hashable, ...] = tuple(_KDD_LABELS.split()) if every_class else (0, 1)
    return Stream(name, classes, tuple(_KDD_NAMES), KDD99.width, source, table.num_rows)


def _kdd_block(part: pa.Table) -> Floats:
    """What `KDD99.encode` makes of each record times the weights, a block at a time."""
    numbers = np.column_stack([part[name].to_numpy() for name in KDD99.numeric])
    logs = np.column_stack([part[name].to_numpy() for name in KDD99.log])
    block = np.zeros((part.num_rows, KDD99.width))
    column = numbers.shape[1] + logs.shape[1]
    block[:, :column] = np.hstack((numbers, np.copysign(np.log1p(np.abs(logs)), logs)))
    for name, width in _KDD_TEXTS.items():
        places = [column + zlib.crc32(text.encode()) % width for text in part[name].to_pylist()]
        block[np.arange(part.num_rows), places] = 1.0
        column += width
    block *= KDD99_WEIGHTS
    return block


# ---------------------------------------------------------------------- River

_VARIANTS = {"sea": ("variant", 3), "sine": ("classification_function", 3), "stagger": ("classification_function", 2)}


def _river(name: str, base: str, which: str, rows: int | None, seed: int) -> Stream:
    """A bundled data set or a generator of River's; its feature names and labels are published with it."""
    try:
        datasets = importlib.import_module("river.datasets")
    except ImportError:
        raise ValueError(f"{name!r} may be one of River's streams: install river to see") from None
    places = (datasets, datasets.synth)
    known = {k.lower(): v for place in places for k, v in vars(place).items() if inspect.isclass(v)}
    kind = known.get(base)
    if kind is None or not issubclass(kind, datasets.base.Dataset):
        raise ValueError(
            f"no stream is called {name!r}: give a .csv, .csv.gz or .parquet file, agrawal, kdd99, elec, or "
            "a data set of River's in lower case"
        )
    options: dict[str, Any] = {}
    if which:
        if base not in _VARIANTS:
            raise ValueError(f"{base!r} takes no number after a colon")
        option, most = _VARIANTS[base]
        options[option] = _number(name, which, most)
    endless = issubclass(kind, datasets.base.SyntheticDataset)
    if endless and "seed" in inspect.signature(kind).parameters:
        options["seed"] = seed
    made: Any = partial(kind, **options)
    try:
        data = made()
    except TypeError:
        raise ValueError(f"River's {kind.__name__} needs more than a name: write its rows to a file") from None
    if data.task not in (datasets.base.BINARY_CLF, datasets.base.MULTI_CLF):
        raise ValueError(f"River's {kind.__name__} is not for classification")
    if not getattr(data, "is_downloaded", True):
        raise ValueError(f"River's {kind.__name__} is not on this machine: river.datasets.{kind.__name__}().download()")
    length = _endless(name, rows) if endless else data.n_samples if rows is None else min(rows, data.n_samples)
    first, y = next(iter(data))
    if endless:
        classes = [False, True] if isinstance(y, bool) else list(range(data.n_classes or 2))
        notes: tuple[str, ...] = ()
    else:
        classes = sorted({y for _, y in data})
        notes = (f"the {len(classes)} labels of River's {kind.__name__} are treated as public",)
    texts = any(isinstance(value, str) for value in first.values())
    table = Table(list(first)) if texts else Table(list(first), hashed=0)

    def source(dicts: bool) -> Iterator[Item]:
        items = (Row(x, y) for x, y in islice(made(), length))
        return items if dicts else table.rows(items)

    return Stream(name, tuple(classes), tuple(first), table.width, source, length, notes)
