"""One partition on disk: segments, indexes, epochs, recovery, and the facade over them."""
