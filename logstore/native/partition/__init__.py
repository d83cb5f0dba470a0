"""Compiled twins of the way to a log in this process."""
