"""Bytes <-> values: Apache Kafka's record batch (magic 2), its codecs, control records and Arrow."""
