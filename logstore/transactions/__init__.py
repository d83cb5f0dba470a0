"""Transactions: the coordinator as a pure state machine, and its records (see README.md)."""
