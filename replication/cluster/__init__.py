"""The cluster: its metadata, where replicas are placed, and what its controller does."""
