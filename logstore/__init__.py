"""A partitioned, append-only log: embed it like SQLite."""
