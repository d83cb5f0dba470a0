"""The broker and the remote client over gRPC. Built after replication (see README.md)."""
