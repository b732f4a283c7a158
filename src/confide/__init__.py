"""Confide: private predictions, labels and counts from shared models, one round at a time."""

__version__ = "0.1.0"
