"""Rows and files in."""
