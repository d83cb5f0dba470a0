"""Compiled twins of one partition's log."""
