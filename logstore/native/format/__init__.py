"""Compiled twins of the codec."""
