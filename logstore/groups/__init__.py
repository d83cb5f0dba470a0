"""Consumer groups: pure state machines. Offsets now; membership and assignment come with shared groups."""
