"""The command `confide schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confide.cli.options import Label
from confide.cli.terminal import say
from confide.data.files import draft
from confide.data.schema import Schema
from confide.data.survey import HEAD


def schema(
    file: Annotated[Path, typer.Argument(help="A .csv, .tsv (also .gz) or .parquet file; best a public sample.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it here; to the terminal if left out.")] = None,
    label: Label = None,
    unit: Annotated[str | None, typer.Option(help="The column that names the person to protect.")] = None,
    public: Annotated[bool, typer.Option("--public", help="The file is public: write ranges of numbers too.")] = False,
) -> None:
    """Draft a schema for a file: what each column is. Review it, then give it to `confide run --schema`.

    It looks at the whole file, and what stands in a schema counts as public afterwards. So check every line, and
    prefer a public sample with the same columns.

    * `confide schema sample.csv --public -o visits.toml` — from a public sample, ranges included

    * `confide schema visits.csv -o visits.toml`, review, `confide run visits.csv --schema visits.toml`
    """
    if out is not None and out.exists():
        raise ValueError(f"{out} is there already, perhaps reviewed: name another file with --out")
    drafted, comments = draft(file, Schema(label=label, unit=unit), ranges=public)
    text = HEAD.format(name=file.name) + drafted.to_toml(comments)
    if out is None:
        say(text.rstrip())
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write {out}: {error.strerror}") from None
    say(f"written to {out}: review it, then: confide run {file} --schema {out}")
