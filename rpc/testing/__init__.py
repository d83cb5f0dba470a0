"""A broker for tests: a process of its own, with faults."""
