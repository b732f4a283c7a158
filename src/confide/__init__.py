"""Confide makes any online learner private between its users."""

from confide.batches import Evaluation, evaluate
from confide.certificate import Certificate
from confide.gate import Gate
from confide.halting import Halting
from confide.littlestone import littlestone_dimension
from confide.monitor import Monitor
from confide.plan import Guarantee, Plan
from confide.pop import POP, Answer, TicketError
from confide.sparse import Halted
from confide.state import StateError

__version__ = "0.1.0"

__all__ = [
    "POP",
    "Answer",
    "Certificate",
    "Evaluation",
    "Gate",
    "Guarantee",
    "Halted",
    "Halting",
    "Monitor",
    "Plan",
    "StateError",
    "TicketError",
    "__version__",
    "evaluate",
    "littlestone_dimension",
]
