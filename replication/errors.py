"""Errors of replication, by name; each says what to change."""

from __future__ import annotations

from logstore.errors import FatalError, RetriableError


class NotLeaderError(RetriableError):
    """The replica does not lead the partition. ``leader_id``: the leader as far as the replica knows, -1: unknown."""

    code = 6
    passes = True
    hint = "ask the leader"

    def __init__(self, message: str, *, leader_id: int = -1, hint: str | None = None) -> None:
        if hint is None and leader_id < 0:
            hint = "no leader is known: where that lasts, too few brokers run (`logstore cluster health`)"
        super().__init__(message, hint=hint)
        self.leader_id = leader_id


class LeaderNotReadyError(RetriableError):
    """The leader was elected a moment ago, and has not committed anything in its term; or it gives its place up."""

    code = 5
    passes = True
    hint = "try again in a moment"


class LeaderDiskError(LeaderNotReadyError):
    """The disk of the partition's leader refused the records; they are not in, and another replica is about to lead."""

    code = 10214
    hint = "try again in a moment, at the next leader; free space on that broker's disk, or exchange it"


class MembershipChangeError(RetriableError):
    """The membership cannot change now: a change is under way, or a learner is too far behind."""

    code = 10200


class InvalidMembershipError(FatalError, ValueError):
    """A membership that no partition may have."""

    code = 10201


class DivergedLogError(FatalError):
    """A leader's log contradicts what this replica knows to be committed: a node's disk was exchanged or set back, or a
    partition was recovered uncleanly. Nothing is cut; the replica has to be made anew."""

    code = 10202
    hint = "remove the replica and add it again, so that it is filled from the others"


class DamagedVoteError(FatalError):
    """What a replica has promised in elections is not known any more, so that it must not vote or lead again."""

    code = 10203
    hint = "remove the replica and add it again, so that it is filled from the others"


class LostReplicaError(FatalError):
    """The only replica of a partition was in a directory that its node does not have any more."""

    code = 10209
    hint = "start the node with the directory that it had, or delete the topic: its records are gone"


class PeerUnavailableError(RetriableError):
    """Another broker could not be asked, or did not answer in time."""

    code = 10204
    passes = True
    hint = "find out whether that broker runs and can be reached; calls go on when it does"


class NotConfirmedError(RetriableError):
    """A majority did not confirm an append in time: it may be committed yet. A producer with an id tries again, and the
    same records are found to be a repetition."""

    code = 20
    hint = "find out why a majority of the replicas does not answer"


class NotEnoughReplicasError(RetriableError):
    """Fewer replicas are in sync than the topic's ``min.insync.replicas``; nothing was appended."""

    code = 19
    hint = "bring the missing replicas back, or lower min.insync.replicas"


class MetadataConflictError(RetriableError):
    """The cluster's metadata changed between the look and the change that was decided on it."""

    code = 10205
    hint = "look again, and decide anew"


class InvalidReplicationFactorError(FatalError, ValueError):
    """Replicas need a broker each, and there are not so many."""

    code = 38


class InvalidReplicasError(FatalError, ValueError):
    """A list of replicas that no partition may have."""

    code = 39


class UnknownBrokerError(FatalError, LookupError):
    """The cluster has no broker of that number."""

    code = 10206


class BrokerInUseError(FatalError):
    """A broker that has replicas cannot leave the cluster."""

    code = 10207


class StaleBrokerError(FatalError):
    """Another process has registered as that broker since: this one is it no more."""

    code = 77
    hint = (
        "give one of the two another number (`node_id`) and a directory of its own, and see that no supervisor starts "
        "both under one number"
    )


class DuplicateBrokerError(FatalError):
    """A process wants to be a broker that another one is, which lives."""

    code = 101
    hint = (
        "give this process another number (`node_id`) and a directory of its own, or end the other one; a broker that "
        "was started anew waits until its process of before is gone, and then starts by itself"
    )


class ClusterMismatchError(FatalError):
    """A directory, or a broker, of another cluster than the one it speaks to, or of another broker's number."""

    code = 104


class DamagedMessageError(RetriableError):
    """What another broker sent is not what it had: the network or a memory changed it."""

    code = 10208
    hint = "if it happens again, look for a machine with a faulty memory"


class UnknownPeerError(FatalError):
    """A broker spoke to another that does not count it among its peers, or that is not the one it was taken for."""

    code = 10122
    hint = (
        "add the broker with `logstore cluster add`; `node_id` is its own number, and `peers` its cluster's"
    )


class BrokerExistsError(FatalError):
    """The cluster has a broker of that number, or at that address."""

    code = 10210


class BrokerUnreachableError(FatalError):
    """No broker answers at an address."""

    code = 10211


class RemovedBrokerError(FatalError):
    """The broker was removed from the cluster."""

    code = 10212
    hint = "add it again with `logstore cluster add`"


class LastMajorityError(FatalError):
    """Without the broker no majority of the cluster's metadata would be left."""

    code = 10213
