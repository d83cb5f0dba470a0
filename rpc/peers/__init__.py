"""How the brokers of a cluster speak to each other: Raft's messages and calls over gRPC."""
