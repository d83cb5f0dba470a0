"""Pipelines on real flights, runnable one by one: ``python -m spark_connector.examples.NAME`` (see ../README.md)."""
