"""Raft for every partition: the log is the Raft log. Built after the embedded engine (see README.md)."""
