"""Questions about Spark's source and sink."""
