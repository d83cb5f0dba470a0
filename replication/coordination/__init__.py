"""Coordinators of groups and transactions on replicated internal topics."""
