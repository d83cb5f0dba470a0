"""Tables: the latest value of each key of a topic, kept current."""
