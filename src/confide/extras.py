"""Parts that need a package which the core does not: loaded when first used, or a sentence says what to install."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["need"]


def need(module: str, extra: str, what: str, package: str = "") -> ModuleType:
    """A module by name; where a package is missing, ValueError says which extra of Confide, or what else, brings it.

    Examples
    --------
    >>> need("math", "parquet", "arithmetic").sqrt(9)
    3.0
    >>> need("no_such_package", "parquet", "reading .parquet files")
    Traceback (most recent call last):
    ...
    ValueError: reading .parquet files needs one more package: pip install "confide[parquet]"
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "confide":
            raise
        raise ValueError(f'{what} needs one more package: pip install "{package or f"confide[{extra}]"}"') from None
