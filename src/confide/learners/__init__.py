"""Learners: one non-private online learner a file, and the features in front of them."""

from confide.learners.agnostic_experts import AgnosticExperts as AgnosticExperts
from confide.learners.base import Bounded, Learner, Stacked
from confide.learners.conjunctions import Conjunctions as Conjunctions
from confide.learners.features import Columns, Encoder, Features, HashedFeatures, Pipeline
from confide.learners.foreign import as_learner
from confide.learners.halving import Halving as Halving
from confide.learners.knn import KNNClassifier
from confide.learners.logistic import LogisticRegression
from confide.learners.naive_bayes import BernoulliNB, GaussianNB
from confide.learners.parities import Parities as Parities
from confide.learners.passive_aggressive import PAClassifier
from confide.learners.perceptron import Perceptron
from confide.learners.points import Points as Points
from confide.learners.refit import Refit
from confide.learners.standard_optimal import StandardOptimal as StandardOptimal
from confide.learners.thresholds import Thresholds as Thresholds
from confide.learners.tree import DecisionTree
from confide.learners.weighted_majority import WeightedMajority as WeightedMajority
from confide.learners.winnow import Winnow as Winnow

__all__ = [
    "BernoulliNB",
    "Bounded",
    "Columns",
    "DecisionTree",
    "Encoder",
    "Features",
    "GaussianNB",
    "HashedFeatures",
    "KNNClassifier",
    "Learner",
    "LogisticRegression",
    "PAClassifier",
    "Perceptron",
    "Pipeline",
    "Refit",
    "Stacked",
    "as_learner",
]
