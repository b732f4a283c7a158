"""Littlestone's dimension and the paper's coin game."""
