# A batch on its way in, as the append sees it.
from libc.stdint cimport int64_t


cdef class Rules:
    cdef object config
    cdef bint plain  # the settings change nothing of an uncompressed batch, and ask nothing of its records
    cdef int64_t most_bytes
    cdef int64_t before_ms
    cdef int64_t after_ms


cdef Rules rules_of(config)
cdef object batches_in(buffer, where)
cdef object as_leader(batches, config, now_ms, where)
