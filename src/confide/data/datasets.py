"""Streams by name: the showcase, Elec from a folder, River's data sets and generators, and files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from confide.data.files import draft, open_file
from confide.data.pieces import FILES
from confide.data.rows import BadRow, Item, Row, Stream
from confide.data.schema import Schema
from confide.data.values import WORDS
from confide.data.visits import visits
from confide.extras import need
from confide.learners import Features


def open_stream(
    name: str,
    *,
    rows: int | None = None,
    seed: int = 0,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    unit: str | None = None,
    **reading: Any,
) -> Stream:
    """A stream by its name.

    Parameters
    ----------
    name
        A path ending in .csv, .tsv (both also .gz) or .parquet; a folder of such files, as `data/`; `visits`, the
        showcase; `elec` from the folder that the environment variable CONFIDE_DATA names; or a classification data set
        or generator of River's in lower case, such as `shuttle`, `sea`, `sea:2`, `led` or `agrawal:3`, by its fourth
        label function.
    rows
        How many rows to take; endless generators need it.
    seed
        Of a generator: public, and no source of privacy.
    label, labels, unit, **reading
        For files: see `confide.data.files.open_file`.

    Examples
    --------
    >>> open_stream("agrawal:3", rows=1000).names[:3]
    ('salary', 'commission', 'age')
    """
    if rows is not None and rows < 1:
        raise ValueError(f"rows={rows} must be at least 1")
    folder = Path(name).is_dir()
    if name.endswith((*FILES, "/", os.sep)) or (folder and ("/" in name or os.sep in name)):
        _no_seed(seed)
        return open_file(Path(name), label=label, labels=labels, unit=unit, **reading)
    if Path(name).is_file():
        raise ValueError(f"{name} is a file, but none that can be read: its name must end in {', '.join(FILES)}")
    reading.pop("told", None)
    if any((label, labels, unit, *reading.values())):
        own = f"{name} is a folder, which is written {name}/" if folder else f"{name!r} declares its own"
        raise ValueError(f"--label, --labels, --unit and how to read columns are for files; {own}")
    base, _, which = name.lower().partition(":")
    if base == "visits" and not which:
        return visits(name, _endless(name, rows), seed)
    if base == "elec" and not which:
        _no_seed(seed)
        path = _elec()
        asked = Schema(label="class", labels=("0", "1"))
        stream = open_file(path, schema=draft(path, asked, ranges=True)[0])
        return replace(stream, name=name, notes=(), files=())  # public: nothing is to be said of it
    return _river(name, base, which, rows, seed)


def _no_seed(seed: int) -> None:
    if seed:
        raise ValueError("--stream-seed is for generated streams: the rows of this one are what they are; leave it out")


def _number(name: str, text: str, most: int) -> int:
    if text and not (text.isdecimal() and int(text) <= most):
        raise ValueError(f"{name!r}: the number after the colon must be from 0 to {most}")
    return int(text or 0)


def _endless(name: str, rows: int | None) -> int:
    if rows is None:
        raise ValueError(f"{name!r} has no end: say how many rows to take with --rounds")
    return rows


def _elec() -> Path:
    folder = os.environ.get("CONFIDE_DATA")
    if folder and (path := Path(folder) / "elec.csv").is_file():
        return path
    raise ValueError("elec.csv is missing: get OpenML's `electricity`, put it in a folder, and name it in CONFIDE_DATA")


_FUNCTION = "classification_function"
_VARIANTS = {"agrawal": (_FUNCTION, 9), "sea": ("variant", 3), "sine": (_FUNCTION, 3), "stagger": (_FUNCTION, 2)}


def _river(name: str, base: str, which: str, rows: int | None, seed: int) -> Stream:
    """A bundled data set or a generator of River's; its feature names and labels are published with it."""
    folder = f" (the folder is written {name}/)" if Path(name).is_dir() else ""
    datasets: Any = need("river.datasets", "river", f"{name!r} is none of Confide's streams{folder}; one of River's")
    places = (datasets, datasets.synth)
    known = {k.lower(): v for place in places for k, v in vars(place).items() if inspect.isclass(v)}
    kind = known.get(base)
    if kind is None or not issubclass(kind, datasets.base.Dataset):
        raise ValueError(
            f"no stream is called {name!r}{folder}: give a file ({', '.join(FILES)}), a folder of them, visits, elec, "
            "or a data set of River's in lower case"
        )
    endless = issubclass(kind, datasets.base.SyntheticDataset)
    made: Any = partial(kind, **_options(name, base, which, seed, kind if endless else None))
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
    features = _features(first)

    def source(dicts: bool) -> Iterator[Item]:
        items = (Row(x, y) for x, y in islice(made(), length))
        return items if dicts or not isinstance(features, int) else _arrays(tuple(first), items)

    return Stream(name, tuple(classes), tuple(first), features, source, length, notes)


def _features(first: dict[Hashable, Any]) -> int | Features:
    """The columns' kinds by the first row of a public data set."""
    texts = {str(name): value for name, value in first.items() if isinstance(value, str)}
    if not texts:
        return len(first)
    long = [name for name, value in texts.items() if len(value.split()) >= WORDS]
    numeric = [str(name) for name in first if str(name) not in texts]
    return Features(numeric, (), {name: 64 for name in texts if name not in long}, {name: 512 for name in long})


def _arrays(names: tuple[Hashable, ...], rows: Iterable[Row]) -> Iterator[Item]:
    """The same rows as arrays, by declared names; one whose x is not what was declared goes on without it."""
    encode = Features(numeric=list(names)).encode  # type: ignore[arg-type]  # River also names features by numbers
    for number, row in enumerate(rows, 1):
        try:
            yield Row(encode(row.x), row.y)
        except ValueError:
            yield BadRow(number, "one of its features is not what was declared", None, row.y)


def _options(name: str, base: str, which: str, seed: int, generator: Any) -> dict[str, Any]:
    """What a data set of River's is made with."""
    options: dict[str, Any] = {}
    if which:
        if base not in _VARIANTS:
            raise ValueError(f"{base!r} takes no number after a colon")
        option, most = _VARIANTS[base]
        options[option] = _number(name, which, most)
    if generator is not None and "seed" in inspect.signature(generator).parameters:
        options["seed"] = seed
    else:
        _no_seed(seed)
    return options
