"""The producer: records to batches to the backend, with their deliveries, sequences and transactions."""
