"""A classifier that learns from confidential feedback while it answers, private between its users."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.errors import ConfideWarning, Halted, StateError, TicketError
    from confide.planning.plan import Plan
    from confide.planning.promise import Promise
    from confide.pop.evaluate import evaluate
    from confide.pop.monitor import Monitor
    from confide.pop.pop import POP
    from confide.private import Private
    from confide.runs.advising import advise
    from confide.service.client import Client

__version__ = "0.2.0"

_HOMES = {
    "POP": "confide.pop.pop",
    "Client": "confide.service.client",
    "ConfideWarning": "confide.errors",
    "Halted": "confide.errors",
    "Monitor": "confide.pop.monitor",
    "Plan": "confide.planning.plan",
    "Private": "confide.private",
    "Promise": "confide.planning.promise",
    "StateError": "confide.errors",
    "TicketError": "confide.errors",
    "advise": "confide.runs.advising",
    "evaluate": "confide.pop.evaluate",
}

__all__ = [
    "POP",
    "Client",
    "ConfideWarning",
    "Halted",
    "Monitor",
    "Plan",
    "Private",
    "Promise",
    "StateError",
    "TicketError",
    "__version__",
    "advise",
    "evaluate",
]


def __getattr__(name: str) -> Any:
    """A public name, from its home when it is first asked for: `import confide` alone costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'confide' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
