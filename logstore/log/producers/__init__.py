"""Producer state of a partition: dedupe, fencing, open transactions, snapshots and the transaction index."""
