"""The compiled twin of ownership/lock_check.py: what every append asks of the locks that are held."""

from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()

cdef double CHECKED_FOR_S = 0.001


cdef class LockCheck:
    """What every append asks of its locks."""

    cdef public object _clock
    cdef public double _checked_until_s
    cdef public bint _lost

    def __init__(self, clock):
        self._clock = clock

    def check(self, *, bint now=False):
        """LockLostError if the file of the locks that are held was removed or replaced: another process may hold
        the same by a new one. Looks at the file at most once a millisecond unless ``now``: a process that opens
        the store anew takes longer until its first write."""
        cdef double now_s
        if not now:
            now_s = self._clock.monotonic_s()
            if now_s < self._checked_until_s and not self._lost:
                return
            self._checked_until_s = now_s + CHECKED_FOR_S
        self._look()
