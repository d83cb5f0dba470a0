"""``MetadataFollower``: the newest committed image of the cluster, as this node has it, and who is told of newer ones.

Any node follows, the controller as well: what it decides it sees by the same way as all others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from logstore.coordination.followed_machine import FollowedMachine
from logstore.errors import LogStoreError, from_os_error
from logstore.machine import Change
from logstore.partition.partition import Cancel
from logstore.seams.clock import Clock
from logstore.seams.step_thread import StepThread
from replication.cluster.image import ClusterImage
from replication.cluster.machine import ClusterMachine
from replication.cluster.metadata_log import MetadataPartition
from replication.errors import LeaderNotReadyError, NotLeaderError

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 1 << 20
_LOOK_S: Final = 1.0  # also without a word that there is more
_PAUSE_S: Final = 0.01


class MetadataFollower:
    """Thread-safe. ``partition``: of the metadata group, whose followers may be read. ``pause``: lets others work for
    so many seconds at the most; a simulator has time go on in it."""

    def __init__(
        self,
        partition: MetadataPartition,
        clock: Clock,
        *,
        threads: bool = True,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._partition = partition
        self._clock = clock
        self._lock = threading.Lock()  # around the machine
        self._more = threading.Condition()
        self._pause = pause
        self._followed: FollowedMachine[ClusterMachine] = FollowedMachine(ClusterMachine)
        self._image = ClusterImage()
        self._news = True  # more may be committed than was replayed
        self._watch: Cancel | None = None
        self._told: list[Callable[[ClusterImage], None]] = []
        self._shown = -1  # revision of the image that listeners were told last
        self._thread = StepThread("logstore-metadata", self.step, enabled=threads)

    # --- looking ---

    @property
    def image(self) -> ClusterImage:
        """As it was followed last; never waits."""
        return self._image

    def newest(self) -> ClusterImage:
        """With all that is committed here. Errors of reading the log."""
        if self._news:
            self._follow()
        return self._image

    def _follow(self) -> None:
        with self._lock:
            self._news = False
            self._watch_anew()
            try:
                reader = self._partition.reader()
                end = reader.bounds().high_watermark
                followed = self._followed
                kept = self._partition.state_before(followed.applied)
                if kept is not None:
                    followed.load(*kept)
                while followed.applied < end:
                    chunk = reader.read(followed.applied, _READ_BYTES, end)
                    if chunk is None:
                        break
                    followed.follow(chunk)
            except NotLeaderError:
                return  # this node has no replica of the metadata now
            except OSError as error:
                self._begin_anew()
                raise from_os_error(error, "read", self._partition.where) from error
            except BaseException:
                self._begin_anew()
                raise
            image = followed.machine.image
        if image is not self._image and image.revision >= self._image.revision:
            self._image = image
            with self._more:
                self._more.notify_all()
            self._thread.wake()

    def state(self) -> tuple[int, Sequence[Change]]:
        """The offset up to which this node has followed, and records that make its image of an empty one."""
        with self._lock:
            return self._followed.applied, self._followed.machine.snapshot()

    def _begin_anew(self) -> None:
        self._followed.start_over()
        self._news = True

    def _watch_anew(self) -> None:
        """Before the look: what is committed from here on is told."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch()
        try:
            self._watch = self._partition.when_more(self._note_more)
        except NotLeaderError:
            self._news = True  # no replica here yet: looked for again and again

    def _note_more(self) -> None:
        self._news = True
        with self._more:
            self._more.notify_all()
        self._thread.wake()

    def wait_for(self, revision: int, timeout_s: float) -> ClusterImage:
        """The image once it has got there. LeaderNotReadyError: not in time."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            image = self.newest()
            if image.revision >= revision:
                return image
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise LeaderNotReadyError(
                    f"this node has the cluster's metadata up to revision {image.revision}, {revision} is on its way"
                )
            if self._pause is not None:
                self._pause(left_s)
                self._news = True
                continue
            with self._more:
                if self._watch is None:  # no replica here yet, so that nobody tells of news
                    self._more.wait(min(left_s, _PAUSE_S))
                elif not self._news:
                    self._more.wait(min(left_s, _LOOK_S))

    # --- being told ---

    def subscribe(self, tell: Callable[[ClusterImage], None]) -> None:
        """``tell`` is called with every newer image, one after the other, by the follower's own thread (``step``)."""
        self._told.append(tell)

    def step(self) -> float | None:
        """Follow, and tell; seconds until the next look."""
        try:
            image = self.newest()
        except LogStoreError as error:
            logger.error("the cluster's metadata could not be followed: %s", error)
            return _LOOK_S
        if image.revision > self._shown:
            self._shown = image.revision
            for tell in self._told:
                tell(image)
        return _PAUSE_S if self._news else _LOOK_S

    def start(self) -> None:
        """From now on listeners are told."""
        self._thread.start()

    def close(self) -> None:
        self._thread.close()
        with self._lock:
            watch, self._watch = self._watch, None
        if watch is not None:
            watch()
