"""Compiled twins of the producer's path."""
