"""Learners: one non-private online learner a file, and the features in front of them."""

from confide.learners.base import Bounded, Learner, Stacked
from confide.learners.features import Columns, Encoder, Features, HashedFeatures, Pipeline
from confide.learners.foreign import as_learner
from confide.learners.knn import KNNClassifier
from confide.learners.logistic import LogisticRegression
from confide.learners.naive_bayes import BernoulliNB, GaussianNB
from confide.learners.passive_aggressive import PAClassifier
from confide.learners.perceptron import Perceptron
from confide.learners.refit import Refit
from confide.learners.tree import DecisionTree

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
