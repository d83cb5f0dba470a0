# The rows of a batch to be, as the modules that put rows into it see them.
from cpython.ref cimport PyObject


cdef struct Linked:
    # A row: its bytes with the overhead, and the next one of its partition, -1 behind the last.
    Py_ssize_t size
    Py_ssize_t next


cdef class RowBuffer:
    cdef PyObject* data  # bytes with room: a batch's header, not yet written, and the records; NULL: none yet
    cdef Py_ssize_t used, count
    cdef bint lent  # others have ``data``: it may not change any more
    cdef list kept  # all rows, since one came that is not plain; None: they are in ``data``

    cdef Py_ssize_t put(self, PyObject* key, PyObject* value, PyObject* headers) except -1
    cdef int put_linked(
        self, PyObject* rows, const Linked* links, Py_ssize_t number, Py_ssize_t end, Py_ssize_t most_bytes
    ) except -1
    cdef int make_room(self, Py_ssize_t more) except -1
    cdef list decoded(self)
    cdef list all_rows(self)
