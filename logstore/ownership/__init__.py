"""Several processes on one directory: locks, turns, live slots, heartbeats."""
