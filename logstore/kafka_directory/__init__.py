"""A Kafka broker's log directory, read-only, also beside the running broker."""
