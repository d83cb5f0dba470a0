"""Partitions as a Spark source and an exactly-once sink. Built after the broker (see README.md)."""
