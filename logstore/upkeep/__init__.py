"""What is done for a store without being asked: retention, compaction, timed flush, erasure."""
