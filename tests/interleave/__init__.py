"""Interleavings inside critical steps: one thread is stopped at a named point, another acts, the first goes on."""
