"""Coordinators carried out: the runtime of the pure machines, and the managers of groups and transactions on it."""
