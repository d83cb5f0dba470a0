"""Questions about the log, its clients and its upkeep in one process."""
