"""Packages that only some encoders need."""

from __future__ import annotations

import importlib
from types import ModuleType


def need(module: str, package: str, encoder: str) -> ModuleType:
    """A module by name; where it is missing, ValueError says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise ValueError(f'the encoder {encoder!r} needs one more package: pip install "{package}"') from None
