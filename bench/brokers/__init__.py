"""Questions over brokers, alone and as a cluster, beside Kafka's."""
