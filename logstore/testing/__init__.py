"""What users of logstore need in their own tests. Comes with a later version (see README.md)."""
