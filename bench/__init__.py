"""Measurements against peers in the same run: one file per question (see README.md)."""
