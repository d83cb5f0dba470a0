"""What leaves a log: retention's decisions, compaction, retired files."""
