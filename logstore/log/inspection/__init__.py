"""Looks into files without opening a store for writing: dump and verify."""
