"""``ProducerSettings``: what a producer was asked for, validated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from logstore.arguments import shown, whole
from logstore.client.partitioner import Partitioner
from logstore.config import CODECS
from logstore.errors import InvalidArgumentError, UnsupportedCodecError
from logstore.format.batch import encode_batch
from logstore.seams.clock import Clock
from logstore.types import Acks


class ProducerOptions(TypedDict, total=False):
    """The keywords of ``store.producer``, beside the serializers; ``logstore.Producer`` says what they mean."""

    acks: Acks
    name: str | None
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_coordinator: str | None
    keep_prepared: bool
    compression: str | None
    linger_ms: float
    batch_bytes: int
    buffer_bytes: int
    max_block_ms: float
    delivery_timeout_ms: float
    disk_full_timeout_ms: float | None
    idempotence: bool | None
    partitioner: Partitioner | None
    clock: Clock | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerSettings:
    """Settings of a producer, as ``settings_of`` makes them. Times in seconds, sizes in bytes."""

    acks: Acks = "all"  # 0: do not wait; 1: in the leader's log; "all": durable
    compression: str | None = None  # None: what the topic's compression.type says
    linger_s: float = 0.005  # an open batch waits this long for company
    batch_bytes: int = 65536  # a batch is closed before it passes this
    buffer_bytes: int = 32 << 20  # rows not yet delivered, as estimated; at the bound send() waits
    max_block_s: float = 60.0  # longest wait of send() for room or metadata
    delivery_timeout_s: float = 120.0  # every delivery resolves within this
    disk_full_timeout_s: float = 120.0  # how long of it a full disk is waited for
    idempotence: bool = False  # batches carry sequences, so that a log tells a repeated one from a new one


def settings_of(
    *,
    acks: Acks,
    compression: str | None,
    linger_ms: float,
    batch_bytes: int,
    buffer_bytes: int,
    max_block_ms: float,
    delivery_timeout_ms: float,
    disk_full_timeout_ms: float | None = None,
    idempotence: bool | None = None,
    name: str | None = None,
) -> ProducerSettings:
    """Validated settings. InvalidArgumentError names the setting and what it may be."""
    if isinstance(acks, bool) or not isinstance(acks, int | str) or acks not in (0, 1, "all"):
        raise InvalidArgumentError(f"acks={shown(acks)}", hint='use 0, 1 or "all"')
    if idempotence is None:
        idempotence = acks == "all" or name is not None
    if not isinstance(idempotence, bool):
        raise InvalidArgumentError(
            f"idempotence={shown(idempotence)}", hint="use True, False, or None for the default"
        )
    if idempotence and acks != "all":
        what = "idempotence=True" if name is None else f"name={shown(name)}"
        raise InvalidArgumentError(
            f'{what} with acks={shown(acks)}: only acks="all" answers for what is stored once',
            hint="leave out one of the two",
        )
    if name is not None and not idempotence:
        raise InvalidArgumentError(
            f"name={shown(name)} with idempotence=False: a named producer's records are numbered",
            hint="leave out idempotence",
        )
    if compression == "producer":
        compression = "none"
    if compression is not None and (not isinstance(compression, str) or compression not in CODECS):
        raise UnsupportedCodecError(f"compression={shown(compression)}")
    batch_bytes = whole(batch_bytes, "batch_bytes", 1)
    buffer_bytes = whole(buffer_bytes, "buffer_bytes", batch_bytes)
    for name, number, least in (
        ("linger_ms", linger_ms, 0),
        ("max_block_ms", max_block_ms, 0),
        ("delivery_timeout_ms", delivery_timeout_ms, linger_ms),
        ("disk_full_timeout_ms", 0 if disk_full_timeout_ms is None else disk_full_timeout_ms, 0),
    ):
        if isinstance(number, bool) or not isinstance(number, int | float) or not number >= least:
            raise InvalidArgumentError(f"{name}={shown(number)}", hint=f"it is a number, at least {least}")
    if compression not in (None, "none"):
        # A codec whose package is not there is said now, not by the first delivery.
        encode_batch([(None, b"")], now_ms=0, codec=compression)
    if disk_full_timeout_ms is None:
        disk_full_timeout_ms = delivery_timeout_ms
    return ProducerSettings(
        acks=acks,
        compression=compression,
        linger_s=linger_ms / 1000,
        batch_bytes=batch_bytes,
        buffer_bytes=buffer_bytes,
        max_block_s=max_block_ms / 1000,
        delivery_timeout_s=delivery_timeout_ms / 1000,
        disk_full_timeout_s=disk_full_timeout_ms / 1000,
        idempotence=idempotence,
    )
