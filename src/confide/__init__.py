"""A classifier that learns from confidential feedback while it answers, private between its users."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.errors import ConfideWarning, Halted, StateError, TicketError
    from confide.learners.theory.littlestone import littlestone_dimension
    from confide.planning.mistakes import Certificate
    from confide.planning.plan import Guarantee, Plan
    from confide.planning.promise import Promise
    from confide.pop.base import Answer
    from confide.pop.evaluate import Evaluation, evaluate
    from confide.pop.monitor import Monitor
    from confide.pop.pop import POP
    from confide.privacy.gate import Gate
    from confide.privacy.halting import Halting
    from confide.private import Private
    from confide.runs.advising import Advice, advise
    from confide.service.client import AsyncClient, Client

__version__ = "0.2.0"

_HOMES = {
    "POP": "confide.pop.pop",
    "Advice": "confide.runs.advising",
    "Answer": "confide.pop.base",
    "AsyncClient": "confide.service.client",
    "Certificate": "confide.planning.mistakes",
    "Client": "confide.service.client",
    "ConfideWarning": "confide.errors",
    "Evaluation": "confide.pop.evaluate",
    "Gate": "confide.privacy.gate",
    "Guarantee": "confide.planning.plan",
    "Halted": "confide.errors",
    "Halting": "confide.privacy.halting",
    "Monitor": "confide.pop.monitor",
    "Plan": "confide.planning.plan",
    "Private": "confide.private",
    "Promise": "confide.planning.promise",
    "StateError": "confide.errors",
    "TicketError": "confide.errors",
    "advise": "confide.runs.advising",
    "evaluate": "confide.pop.evaluate",
    "littlestone_dimension": "confide.learners.theory.littlestone",
}

__all__ = [
    "POP",
    "Advice",
    "Answer",
    "AsyncClient",
    "Certificate",
    "Client",
    "ConfideWarning",
    "Evaluation",
    "Gate",
    "Guarantee",
    "Halted",
    "Halting",
    "Monitor",
    "Plan",
    "Private",
    "Promise",
    "StateError",
    "TicketError",
    "__version__",
    "advise",
    "evaluate",
    "littlestone_dimension",
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
