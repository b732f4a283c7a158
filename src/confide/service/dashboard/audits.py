"""Audits in the background: one process at a time, asked for by an operator, watched from the dashboard."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, Literal

from confide.planning.plan import Plan

__all__ = ["AuditRunning", "Audits"]


class AuditRunning(Exception):
    """Another audit is not over yet."""


@dataclass
class _Audit:
    games: int
    process: subprocess.Popen[str]
    state: Literal["running", "done", "stopped", "failed"] = "running"
    played: int = 0
    report: dict[str, Any] | None = field(default=None)


class Audits:
    """The last audit of each model. They play against POPs of their own, and take from a model its plan alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._audits: dict[str, _Audit] = {}

    def start(self, model: str, plan: Plan, units: str, games: int) -> None:
        """Begin an audit of so many games at each bit; `AuditRunning` while another one runs."""
        with self._lock:
            if any(one.state == "running" for one in self._audits.values()):
                raise AuditRunning
            process = subprocess.Popen(
                [sys.executable, "-m", "confide.service.dashboard.fresh"], stdin=subprocess.PIPE, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8",
            )  # fmt: skip
            audit = self._audits[model] = _Audit(games, process)
        given = json.dumps({"plan": json.loads(plan.to_json()), "units": units, "games": games})
        threading.Thread(target=self._follow, args=(audit, given), name=f"audit {model}", daemon=True).start()

    def stop(self, model: str) -> None:
        """End this model's audit, if it runs."""
        with self._lock:
            audit = self._audits.get(model)
            if audit is not None and audit.state == "running":
                audit.state = "stopped"
                audit.process.kill()

    def look(self, model: str) -> dict[str, Any] | None:
        """How far this model's last audit is, and what it found; None if there was none."""
        with self._lock:
            audit = self._audits.get(model)
            if audit is None:
                return None
            return {"state": audit.state, "games": audit.games, "played": audit.played, "report": audit.report}

    def _follow(self, audit: _Audit, given: str) -> None:
        process = audit.process
        assert process.stdin is not None and process.stdout is not None
        try:
            with process.stdout, process.stdin:
                process.stdin.write(given)
                process.stdin.close()
                for line in process.stdout:
                    told = json.loads(line)
                    with self._lock:
                        audit.played = told.get("played", audit.played)
                        audit.report = told.get("report", audit.report)
        except (OSError, ValueError):  # it ended early: its state says so
            process.kill()
        process.wait()
        with self._lock:
            if audit.state == "running":
                audit.state = "done" if audit.report is not None and process.returncode == 0 else "failed"
                audit.played = 2 * audit.games if audit.state == "done" else audit.played
