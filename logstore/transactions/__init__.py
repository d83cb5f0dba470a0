"""The transaction coordinator, a pure state machine. Comes with a later version (see README.md)."""
