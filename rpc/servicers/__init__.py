"""The contract's services over gRPC: each parses, calls a handler, and answers; nothing is decided here."""
