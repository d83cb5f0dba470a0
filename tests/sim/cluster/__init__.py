"""A whole cluster in one process under a deterministic scheduler: faults, workload, checkers, planted bugs."""
