"""What a run was worth, in words, after what is so wrong with its labels that no error can be read without it."""

from __future__ import annotations

from confide.runs.runner import Outcome
from confide.runs.verdict import verdict


def worth(outcome: Outcome) -> str:
    """Both, or nothing where both have nothing to say."""
    alarm = outcome.stream.alarm
    own = f"{alarm[0].upper()}{alarm[1:]}." if alarm else ""
    return " ".join(said for said in (own, verdict(outcome)) if said)
