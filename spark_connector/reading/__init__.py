"""The source: planned ranges as Arrow batches, and how far a query is."""
