"""Partitions as the rest of the engine sees them: topics in this process, their logs, and the group commit."""
