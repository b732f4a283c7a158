"""Confide makes any online learner private between its users."""

from confide.certificate import Certificate
from confide.gate import Gate
from confide.halting import Halting
from confide.plan import Guarantee, Plan

__version__ = "0.1.0"

__all__ = ["Certificate", "Gate", "Guarantee", "Halting", "Plan", "__version__"]
