# What a commit of one log by one thread touches of the committer; see the class.
cdef class LoneCommits:
    cdef public object _clock
    cdef public object _mutex
    cdef public bint _threads
    cdef public Py_ssize_t _inside
    cdef public double _crowded_until_s

    cdef int committed(self, log, target) except -1
