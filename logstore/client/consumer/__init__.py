"""The consumer: positions, fetches, groups and commits."""
