"""Learners: one non-private online learner a file, and the features in front of them."""

from confide.learners.agnostic_experts import AgnosticExperts
from confide.learners.base import Bounded, Learner, Stacked
from confide.learners.conjunctions import Conjunctions
from confide.learners.features import Columns, Encoder, Features, HashedFeatures, Pipeline
from confide.learners.foreign import as_learner
from confide.learners.forest import ExtraTrees
from confide.learners.halving import Halving
from confide.learners.intervals import Intervals
from confide.learners.knn import KNNClassifier
from confide.learners.logistic import LogisticRegression
from confide.learners.naive_bayes import BernoulliNB, GaussianNB
from confide.learners.parities import Parities
from confide.learners.passive_aggressive import PAClassifier
from confide.learners.perceptron import Perceptron
from confide.learners.points import Points
from confide.learners.refit import Refit
from confide.learners.standard_optimal import StandardOptimal
from confide.learners.thresholds import Thresholds
from confide.learners.tree import DecisionTree
from confide.learners.weighted_majority import WeightedMajority
from confide.learners.winnow import Winnow

__all__ = [
    "AgnosticExperts", "BernoulliNB", "Bounded", "Columns", "Conjunctions", "DecisionTree", "Encoder", "ExtraTrees",
    "Features", "GaussianNB", "Halving", "HashedFeatures", "Intervals", "KNNClassifier", "Learner",
    "LogisticRegression", "PAClassifier", "Parities", "Perceptron", "Pipeline", "Points", "Refit", "Stacked",
    "StandardOptimal", "Thresholds", "WeightedMajority", "Winnow", "as_learner",
]  # fmt: skip
