"""The sink: rows staged, prepared or sent, and the batches that a driver commits."""
