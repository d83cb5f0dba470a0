"""Seams to the outside: file system and time, each with the twin that a simulator drives."""
