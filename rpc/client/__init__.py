"""The remote backend of the client API, over gRPC."""
