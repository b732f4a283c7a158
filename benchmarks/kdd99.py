"""KDD-99: how a record becomes numbers, and the file, in the folder that CONFIDE_DATA names, as a stream."""

from __future__ import annotations

import os
import zlib
from collections.abc import Hashable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from confide.data.rows import Item, Row, Stream
from confide.learners import Features

Floats = NDArray[np.float64]
FILE = "kddcup.data_10_percent.gz"

BLOCK = 4096
"""Rows encoded at a time."""

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


def kdd99(every_class: bool = False) -> Stream:
    """The 10 % file, shuffled by a fixed seed: in the file the attacks come one kind after the other."""
    path = Path(os.environ.get("CONFIDE_DATA", ".")) / FILE
    if not path.is_file():
        raise ValueError(f"{FILE} is missing: get it from the UCI repository, and name its folder in CONFIDE_DATA")
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
            xs = part.drop_columns(["label"]).to_pylist() if dicts else _kdd_block(part)
            yield from map(Row, xs, labels[start : start + BLOCK])

    classes: tuple[Hashable, ...] = tuple(_KDD_LABELS.split()) if every_class else (0, 1)
    name = "kdd99:all" if every_class else "kdd99"
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
