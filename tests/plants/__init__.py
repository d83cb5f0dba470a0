"""Bugs planted into the engine, each hunted by what the suite has for its kind: `python -m tests.plants`."""
