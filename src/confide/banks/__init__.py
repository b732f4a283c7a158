"""Banks: all copies of a learner behind one interface."""

from confide.banks.base import Bank, State
from confide.banks.choose import bank_for
from confide.banks.replicas import ReplicaBank
from confide.banks.shards import Place, ShardedBank, Threads
from confide.banks.stacked import StackedBank
from confide.banks.tally import TallyBank

__all__ = [
    "Bank", "Place", "ReplicaBank", "ShardedBank", "StackedBank", "State", "TallyBank", "Threads", "bank_for",
]  # fmt: skip
