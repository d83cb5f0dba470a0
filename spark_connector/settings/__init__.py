"""Options of reads and writes, parsed and checked; what they name."""
