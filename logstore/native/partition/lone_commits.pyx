"""The compiled twin of ``LoneCommits`` in partition/committer.py: a commit of one log by one thread."""

from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()


cdef class LoneCommits:
    """What a commit of one log by one thread touches of the committer. ``_mutex`` guards the fields."""

    def __init__(self, clock, mutex, bint threads):
        self._clock, self._mutex, self._threads = clock, mutex, threads

    def commit_one(self, log, target):
        """``commit`` of one log."""
        self.committed(log, target)

    cdef int committed(self, log, target) except -1:
        cdef bint alone = True
        if self._threads:
            self._mutex.acquire()
            try:
                alone = self._inside == 0 and (self._crowded_until_s == 0.0 or not self._is_crowded())
                if alone:
                    self._inside += 1
            finally:
                self._mutex.release()
        if not alone:
            self.commit([(log, target)])
            return 0
        try:
            if log.flushed_offset < target:
                log.sync()
        finally:
            if self._threads:
                self._mutex.acquire()
                self._inside -= 1
                self._mutex.release()
        return 0

    def _is_crowded(self):
        """Whether a group was there a moment ago. The mutex is held."""
        if self._crowded_until_s == 0.0:
            return False
        if self._clock.monotonic_s() < self._crowded_until_s:
            return True
        self._crowded_until_s = 0.0
        return False
