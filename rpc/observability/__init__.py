"""What a broker tells of itself: metrics, logs and traces."""
