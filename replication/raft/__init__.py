"""Raft as a pure step function: what a replica of one partition does when something happens to it."""
