"""How a client finds the broker that answers for a partition, a group or the cluster."""
