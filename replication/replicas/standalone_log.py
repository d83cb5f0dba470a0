"""``StandaloneLog``: a replica's log with its files, outside of any store's catalogue.

The log of the cluster's metadata is one: it is needed before the catalogue is known, which it is the source of. The
simulator's logs are others. Files: `<root>/<name>-0/`, as every partition's, and `.state/<name>.json`.
"""

from __future__ import annotations

import logging

from logstore.config import TopicConfig
from logstore.directory import topic_state
from logstore.directory.partition_folder import ensure_folder
from logstore.directory.topic_state import PartitionState, TopicState
from logstore.errors import CorruptBatchError, DamagedStoreError, LogStoreError, from_os_error
from logstore.log.cleaning.retirement import Retirement
from logstore.log.commit_policy import by_commit_index
from logstore.log.owned_log import OwnedLog
from logstore.log.recovery.recovery import LoadRules, load
from logstore.log.replica_log import ReplicaLog
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.tail_cache import TailBudget, TailCache
from logstore.partition.state_rows import row_of
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem, exists
from replication.raft.types import Membership
from replication.replicas import repair
from replication.replicas.member_file import MemberFile
from replication.replicas.state_snapshots import StateSnapshots
from replication.replicas.vote_store import FILE_NAME as VOTE_FILE
from replication.replicas.vote_store import VoteStore

logger = logging.getLogger(__name__)

_NEW = PartitionState(recovery_point=0, log_start_offset=0, high_watermark=0, log_end_offset=0)


class StandaloneLog:
    """Opened by its constructor, recovered where it was not closed in order, and begun anew where it is damaged and
    others have it (``repair.py``). ``membership``: who has a log that is made now; ``held_back``: whether the replica
    of such a one is; ``keeps_state``: snapshots of the state that it is replayed to may stand for its front. Errors:
    ``DamagedStoreError``, ``UnsupportedStoreVersionError``, ``StorageError``, ``DiskFullError``,
    ``DamagedVoteError``."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        name: str,
        topic_id: str,
        config: TopicConfig,
        clock: Clock,
        membership: Membership,
        *,
        pool: FilePool | None = None,
        held_back: bool = False,
        keeps_state: bool = False,
    ) -> None:
        self.states: StateSnapshots | None = None
        self._keeps_state = keeps_state
        self._fs = fs
        self._root = root
        self._name = name
        self._topic_id = topic_id
        self._clock = clock
        self._config = config
        self.directory = f"{root}/{name}-0"
        self._pool = pool or FilePool(fs)
        self._retirement = Retirement(self._pool)
        if repair.is_unfinished(fs, self.directory):
            self._set_aside("a repair had begun and not ended")
        ensure_folder(fs, root, self.directory, topic_id)
        self.votes, self.members = open_promises(fs, self.directory, membership, held_back=held_back)
        try:
            self.log = self._open()
        except (DamagedStoreError, CorruptBatchError) as error:
            if len(self.members.rows[-1].membership.voters) < 2:
                raise
            self.repaired = error
            self.votes.close()
            self._set_aside(error)
            self.votes, self.members = open_promises(fs, self.directory, membership)
            self.log = self._open()
        self.save_state()  # in use from now on, however it was stopped

    def _set_aside(self, why: object) -> None:
        fs, root, name = self._fs, self._root, self._name
        now_ms = self._clock.wall_ms()
        aside = repair.set_aside(fs, self.directory, now_ms, lambda: topic_state.remove(fs, root, name))
        logger.error(
            "the log in %s is damaged: it is kept in %s, and filled from the others: %s",
            self.directory,
            aside,
            why,
        )

    def _open(self) -> ReplicaLog:
        state = topic_state.load(self._fs, self._root, self._name)
        if state is not None and state.topic_id != self._topic_id:
            raise DamagedStoreError(
                f"the state of {self._name} is of another log than {self.directory}", path=self.directory
            )
        row = _NEW if state is None else state.partitions.get(0, _NEW)
        clean = state is not None and state.is_clean(0)
        rules = LoadRules(
            recovery_point=(row.log_end_offset if clean else row.recovery_point) if state is not None else 0,
            log_start_offset=row.log_start_offset,
            clean=clean,
            same_boot=state is not None and state.boot_of(0) == self._clock.boot_id(),
            interval_bytes=self._config.index_interval_bytes,
            max_batch_bytes=self._config.max_message_bytes,
            now_ms=self._clock.wall_ms(),
            no_producers_at=row.no_producers_at,
            high_watermark=row.high_watermark,
            epochs="keep",
        )
        try:
            loaded = load(self._pool, self.directory, self._name, 0, rules)
        except OSError as error:
            raise from_os_error(error, "open", self.directory) from error
        log = ReplicaLog(
            where=self._name,
            directory=self.directory,
            pool=self._pool,
            config=self._config,
            clock=self._clock,
            loaded=loaded,
            tail=TailCache(TailBudget(), self._config.tail_cache_bytes),
            publish=_nobody_looks,
            before_roll=lambda _: self.save_state(),
            on_dirty=_nobody_looks,
            on_poison=self._note_poisoned,
            commits=by_commit_index,
        )
        try:
            log.check_whole()
            if self._keeps_state:
                self.states = self._open_states(log)
        except BaseException as error:
            log.close()
            if isinstance(error, OSError):
                raise from_os_error(error, "read", self.directory) from error
            raise
        return log

    def _open_states(self, log: ReplicaLog) -> StateSnapshots:
        """A snapshot that is not of this log was left by an installation that a crash cut short. DamagedStoreError:
        there is none that stands for what the log lacks."""
        states = StateSnapshots(self._fs, self.directory)
        start, end = log.log_start_offset, log.log_end_offset
        states.forget(
            [
                one
                for one in states.kept
                if not start <= one.end_offset <= end or log.epochs.epoch_at(one.end_offset - 1) != one.term
            ]
        )
        if states.newest is not None:
            log.advance_high_watermark(states.newest.end_offset)  # else there would be no such snapshot
        elif start > 0:
            raise DamagedStoreError(
                f"{self._name} has no whole snapshot of what is before offset {start}", path=self.directory
            )
        return states

    def reopen(self) -> None:
        """A log that its disk failed, anew, as after a power loss; no replica is on it. Errors as of the constructor:
        to be called again."""
        self.save_state()  # which says that no page cache speaks for it
        self.log.close()
        self.log = self._open()
        self.votes, self.members = open_promises(self._fs, self.directory, self.members.rows[-1].membership)
        self.save_state()

    def cut_front(self) -> None:
        """Records go for which two snapshots stand, so that the older may take the place of a newer one that is
        damaged. With the replica's lock held. StorageError, DiskFullError: what is not removed is left to a later
        call."""
        states = self.states
        if states is None or len(states.kept) < 2:
            return
        log = self.log
        if log.raise_start(states.kept[-2].end_offset):
            self.save_state()
        try:
            gone = log.drop_front(len(log.segments.segments))
            self._retirement.retire(self.directory, gone, 0.0)
            for segment in gone:
                segment.retired = True
            self._retirement.sweep(0.0)
            states.forget([one for one in states.kept if one.end_offset < log.log_start_offset])
        except OSError as error:
            raise from_os_error(error, "remove the front of", self.directory) from error

    def save_state(self, *, clean: bool = False) -> None:
        """StorageError, DiskFullError."""
        log = getattr(self, "log", None)
        if log is not None:
            state = TopicState(self._topic_id, self._clock.boot_id(), clean, {0: row_of(log)})
            topic_state.save(self._fs, self._root, self._name, state)

    def _note_poisoned(self, log: OwnedLog) -> None:
        """So that the next recovery trusts nothing of the page cache; the failure itself is told by the log."""
        del log
        try:
            self.save_state()
        except LogStoreError as error:
            logger.error("the state of %s does not say that its log failed: %s", self.directory, error)

    repaired: LogStoreError | None = None
    """Why the log was set aside, and begins anew."""

    def close(self) -> None:
        """In order, if the log lives: durable, and marked so."""
        if not self.log.poisoned:
            self.log.checkpoint()
            self.save_state(clean=True)
        self.log.close()


def open_promises(
    fs: FileSystem, directory: str, membership: Membership, *, held_back: bool = False
) -> tuple[VoteStore, MemberFile]:
    """A replica's vote and members, made if the replica is new: the members come last, so that a folder without them
    never took part. ``held_back``: whether a new replica is. Errors as their own."""
    members = MemberFile.open(fs, directory)
    if members is not None:
        return VoteStore.open(fs, directory), members
    if held_back:
        repair.hold_back(fs, directory)
    new = not exists(fs, f"{directory}/{VOTE_FILE}")
    votes = VoteStore.create(fs, directory) if new else VoteStore.open(fs, directory)
    return votes, MemberFile.create(fs, directory, membership)


def _nobody_looks(log: OwnedLog) -> None:
    """No process beside this one looks at such a log, and nothing syncs it but its replica."""
