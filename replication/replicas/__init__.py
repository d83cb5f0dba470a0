"""One partition's replica: its log as Raft sees it, its vote, its members, its appends, its repair."""
