# What an append touches of its topic; see the class.
cdef class TopicUsers:
    cdef public object _context
    cdef public object _lock
    cdef public object _unused
    cdef public Py_ssize_t _users
    cdef public bint _draining
    cdef public bint _leaving
    cdef public bint _deleted
    cdef public bint owned
    cdef public double last_used_s
    cdef public dict _logs
    cdef public object config

    cdef int come_in(self, until_s) except -1
    cdef int go(self, counts_as_use) except -1
    cdef int gone(self, counts_as_use) except -1


cdef inline int left(topic) except -1:
    if isinstance(topic, TopicUsers):
        return (<TopicUsers>topic).go(True)
    topic.leave()
    return 0
