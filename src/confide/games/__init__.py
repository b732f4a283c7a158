"""The adversary's side: the paper's games, adversaries that play them, and an auditor.

    confide.games.OnlineGame(make_mechanism, adversary, rounds, challenges=1).play(bit)   # the adversary's view
    confide.games.audit(make_mechanism, adversary, games=10_000)                          # a lower bound on the leak
    confide.games.draw.draw(reports, path)                                                # its picture: confide[report]

See docs/audit.md.
"""

from confide.games.adversaries import LastDrop, RandomAdversary, WorstMargin
from confide.games.auditor import Terms, audit, audit_game
from confide.games.gradients import OppositeLabels
from confide.games.laws import Curve, constant_query, yardstick
from confide.games.meta import Membership, Repeated, Simulator, Unprotected
from confide.games.moves import (
    BOTTOM,
    Adversary,
    Batch,
    Label,
    Mechanism,
    Record,
    Records,
    Round,
    RuleBroken,
    Seen,
    View,
)
from confide.games.others import (
    AdaptiveInput,
    AdaptiveQuery,
    ChallengeATGame,
    CompositionGame,
    GeneralGame,
    Input,
    OnData,
    Phase,
    Query,
    Session,
    Start,
)
from confide.games.play import OnlineGame
from confide.games.power import Fault, Power, power, smallest
from confide.games.region import Region
from confide.games.report import Report
from confide.games.split import SplitVote
from confide.games.worst_lean import WorstLean, lean_yardstick

__all__ = [
    "BOTTOM", "AdaptiveInput", "AdaptiveQuery", "Adversary", "Batch", "ChallengeATGame", "CompositionGame", "Curve",
    "Fault", "GeneralGame", "Input", "Label", "LastDrop", "Mechanism", "Membership", "OnData", "OnlineGame",
    "OppositeLabels", "Phase", "Power", "Query", "RandomAdversary", "Record", "Records", "Region", "Repeated", "Report",
    "Round", "RuleBroken", "Seen", "Session", "Simulator", "SplitVote", "Start", "Terms", "Unprotected", "View",
    "WorstLean", "WorstMargin", "audit", "audit_game", "constant_query", "lean_yardstick", "power", "smallest",
    "yardstick",
]  # fmt: skip
