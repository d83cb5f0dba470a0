"""Segment files with their indexes, and the list of them."""
