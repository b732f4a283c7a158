"""What an audit found, for people and machines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confide.games.bounds import Point
from confide.games.fit import Misfit
from confide.games.laws import Curve
from confide.games.region import Region
from confide.notebook import card

ALARM = 1e-6
"""Probability of a false alarm of one audit, of either kind."""


@dataclass(frozen=True)
class Report:
    """What an audit found. All lower bounds hold together with probability `confidence`."""

    name: str
    adversary: str
    games: int
    """Test games at each bit."""
    training: int
    """Games at each bit that the score and the thresholds were made from, and not tested on."""
    confidence: float
    delta: float
    points: tuple[Point, ...]
    """The measured curve: each point is a lower bound."""
    gaussian_epsilon: float
    """ε at δ if the scores were Gaussian with equal variance: an assumption, not a bound."""
    region: Region | None
    certified: tuple[float, float] | None
    law: Curve | None
    """The exact curve of this adversary's score."""
    yardstick: Curve | None
    alarm: bool
    """Whether a point lies above the certificate."""
    alarm_point: Point | None = None
    misfit: Misfit | None = None
    """What the exact laws of the plan's tables exclude, if anything: this is then not the mechanism of the plan."""
    alarm_level: float = ALARM
    """Probability of an alarm or a misfit where both tables and certificate are right."""
    repetitions: tuple[float, ...] = ()
    """The bounds on ε of a hundred audits, each of its own hundredth of the games."""
    repetition_alarms: int = 0
    """How many of those sounded the alarm."""

    @property
    def advantage(self) -> float:
        """A lower bound of the total variation distance; 0 where nothing was found."""
        return max(point.advantage for point in self.points)

    @property
    def epsilon(self) -> float:
        """A lower bound of ε at `delta`; 0 where nothing was found."""
        return max(point.epsilon(self.delta) for point in self.points)

    @property
    def best(self) -> Point:
        """The point with the largest advantage."""
        return max(self.points, key=lambda point: point.advantage)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the exact laws, for JSON."""
        exact = self.yardstick or self.law
        return {
            "name": self.name,
            "adversary": self.adversary,
            "games at each bit": self.games,
            "training games at each bit": self.training,
            "confidence": self.confidence,
            "delta": self.delta,
            "advantage at least": self.advantage,
            "epsilon at least": self.epsilon,
            "epsilon if Gaussian (an assumption)": self.gaussian_epsilon,
            "exact advantage": None if exact is None else exact.advantage,
            "exact epsilon": None if exact is None else exact.epsilon(self.delta),
            "certified": self.certified,
            "alarm": self.alarm,
            "misfit": None if self.misfit is None else str(self.misfit),
            "alarm level": self.alarm_level,
            "repetitions": len(self.repetitions),
            "largest epsilon of the repetitions": max(self.repetitions, default=None),
            "alarms of the repetitions": self.repetition_alarms,
            "curve": [
                {
                    "aim": point.aim,
                    "threshold": point.threshold,
                    "hits": list(point.hits),
                    "false positives at most": point.false,
                    "true positives at least": point.true,
                }
                for point in self.points
            ],
        }

    def write_json(self, path: Path | str) -> None:
        """The numbers, for machines."""
        Path(path).write_text(json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n")

    def _repr_html_(self) -> str:
        exact = self.yardstick
        told = ("", "") if exact is None else (f"{exact.advantage:.4f}", f"{exact.epsilon(self.delta):.4f}")
        promised = "" if self.certified is None else f"{self.certified[0]:.4f}"
        rows = [
            ("advantage", f"{self.advantage:.4f}", told[0], ""),
            (f"ε at δ = {self.delta:g}", f"{self.epsilon:.4f}", told[1], promised),
        ]
        found = ["ALARM: more was measured than is certified"] if self.alarm else []
        if self.misfit is not None:
            found.append(f"MISFIT: the mechanism does not follow its plan's tables; {self.misfit}")
        played = f"{self.games:,} games at each bit; all bounds together with probability {self.confidence:.2%}"
        head = ("", "measured, at least", "yardstick, exactly", "certified")
        return card(f"{self.name}: {self.adversary}", rows, head=head, alarms=found, notes=(played,))

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.adversary}",
            f"{self.games:,} games at each bit, {self.training:,} more to learn from; all bounds together with "
            f"probability {self.confidence:.2%}",
            f"advantage ≥ {self.advantage:.4f}"
            + ("" if self.yardstick is None else f"   (yardstick, exactly: {self.yardstick.advantage:.4f})"),
            f"ε ≥ {self.epsilon:.3f} at δ = {self.delta:g}"
            + ("" if self.yardstick is None else f"   (yardstick, exactly: {self.yardstick.epsilon(self.delta):.3f})"),
            f"ε = {self.gaussian_epsilon:.3f} if the scores were Gaussian: an assumption, not a bound",
        ]
        if self.certified is not None:
            lines.append(f"certified: ε = {self.certified[0]:.3f} at δ = {self.certified[1]:g}")
            lines.append(
                "ALARM: more was measured than is certified"
                if self.alarm
                else f"no measured point lies above the certificate (level {self.alarm_level:.2g})"
            )
        if self.misfit is not None:
            lines.append(f"MISFIT: the mechanism does not follow its plan's tables; {self.misfit}")
        if self.repetitions:
            lines.append(
                f"{len(self.repetitions)} repetitions with a part of the games each: ε ≥ {max(self.repetitions):.3f} "
                f"at most, {self.repetition_alarms} alarms"
            )
        return "\n".join(lines)
