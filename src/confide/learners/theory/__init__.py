"""Littlestone's dimension."""
