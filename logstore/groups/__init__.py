"""Consumer groups: pure state machines for membership, assignment and committed offsets."""
