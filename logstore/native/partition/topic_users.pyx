"""The compiled twin of partition/topic_users.py: those that are inside a topic, counted.

What waits, fails or is rare is left to methods of the Python class above it.
"""

from libc.stdint cimport int64_t

from logstore.native.format.varints cimport fingerprint

FINGERPRINT = fingerprint()

cdef object _inside = None


cdef class TopicUsers:
    """What an append touches of its topic. ``_lock`` guards the fields; ``_draining``: a release waits for the users,
    and only those that are inside already come in; ``_leaving``: it has seen the last one go."""

    def __init__(self, context, lock, unused):
        self._context = context
        self._lock, self._unused = lock, unused
        self._logs = {}
        global _inside
        if _inside is None:
            from logstore.ownership.topic_use import inside

            _inside = inside

    def enter(self, until_s=None):
        """Own the topic (taking its lock if need be) and count one more user. ``TopicLockedError`` after the
        store's ``lock_timeout_s``, or at ``until_s`` of the monotonic clock."""
        self.come_in(until_s)

    cdef int come_in(self, until_s) except -1:
        cdef int64_t depth = getattr(_inside, "topics", 0)
        context = self._context
        while True:
            if context.forked or context.closed or context.read_only:
                context.check_writable()
            else:
                context.locks.check()  # what is left of ``check_writable``, without its frame
            self._lock.acquire()
            try:
                if self.owned and not self._leaving and (depth or not self._draining):
                    self._users += 1
                    _inside.topics = depth + 1
                    return 0
            finally:
                self._lock.release()
            now_s = context.clock.monotonic_s()
            until_s = now_s + context.lock_timeout_s if until_s is None else until_s
            self._own(max(until_s - now_s, 0.0))

    def stay(self, int64_t more):
        """Count the thread, which is inside, as so many users more."""
        self._lock.acquire()
        try:
            self._users += more
        finally:
            self._lock.release()
        _inside.topics += more

    def try_enter(self):
        """``enter`` for who will not wait: only if the topic is owned and nobody is about to give it up."""
        self._lock.acquire()
        try:
            if not self.owned or self._leaving or self._draining or self._deleted:
                return False
            self._users += 1
            _inside.topics = getattr(_inside, "topics", 0) + 1
            return True
        finally:
            self._lock.release()

    def leave(self, counts_as_use=True):
        self.go(counts_as_use)

    cdef int go(self, counts_as_use) except -1:
        _inside.topics -= 1
        self.gone(counts_as_use)
        return 0

    def leave_later(self):
        """This thread is not inside any more, but the topic stays in use until what is returned is called."""
        _inside.topics -= 1
        return self._left

    def _left(self, counts_as_use=True):
        self.gone(counts_as_use)

    cdef int gone(self, counts_as_use) except -1:
        self._lock.acquire()
        try:
            self._users -= 1
            if counts_as_use:
                self.last_used_s = self._context.clock.monotonic_s()
            if self._users == 0 and self._draining:
                self._unused.notify_all()
        finally:
            self._lock.release()
        return 0
