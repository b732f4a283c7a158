"""Texts as vectors: public encoders, frozen before anybody's text was seen."""

from confide.text.embedding import Embedding, TextEncoder
from confide.text.names import NAMES, UnknownEncoder, encoder_named, register
from confide.text.wordllama import WordLlama

__all__ = ["NAMES", "Embedding", "TextEncoder", "UnknownEncoder", "WordLlama", "encoder_named", "register"]
