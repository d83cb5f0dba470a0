"""Options of writes, into one validated ``SinkOptions``. Names are those of Spark's Kafka sink where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from logstore.api.transactions import MAX_TIMEOUT_MS
from logstore.config import CODECS
from logstore.errors import InvalidArgumentError
from spark_connector.settings.option_names import OptionNames, local_folder, one_of, target_of, time_ms
from spark_connector.settings.option_table import BY_NAME as SOURCE_NAMES
from spark_connector.settings.option_table import Option
from spark_connector.settings.target import Target

Delivery: TypeAlias = Literal["exactly_once", "at_least_once"]
ChangedBatch: TypeAlias = Literal["error", "skip", "append"]

SINK_TABLE: Final = (
    Option(
        name="path",
        default="(this or brokers)",
        values="a directory",
        meaning="The store; `.save(DIR)` and `.start(DIR)` set it. Driver and executors must share its file system.",
        ours=True,
    ),
    Option(
        name="bootstrap.servers",
        default="",
        values="HOST:PORT,...",
        meaning="Brokers instead of a directory, as `kafka.bootstrap.servers`. Executors write to them directly.",
    ),
    Option(
        name="clientConfig",
        default="",
        values="a file",
        meaning="Settings of the connection to brokers (TLS, token, user) as TOML; at this path on every machine.",
        ours=True,
    ),
    Option(
        name="topic",
        default="",
        values="a topic",
        meaning="Where all rows go. Beats the column `topic`; one of the two must be there.",
    ),
    Option(
        name="delivery",
        default="exactly_once",
        values="exactly_once, at_least_once",
        meaning="One transaction a batch, each batch of a query once; or plain appends, which a retry repeats.",
        ours=True,
    ),
    Option(
        name="compression",
        default="the topic's",
        values="none, gzip, snappy, lz4, zstd",
        meaning="How tasks compress what they write. A topic with a `compression.type` of its own keeps to that.",
        ours=True,
    ),
    Option(
        name="changedBatch",
        default="error",
        values="error, skip, append",
        meaning="A stream's batch whose number is in with other rows: stop, leave its rows out, or write them as well.",
        ours=True,
    ),
    Option(
        name="lockTimeout",
        default="30s",
        values="a time, as 500ms or 2m",
        meaning="How long a commit waits for topics of a directory that another process owns.",
        ours=True,
    ),
    Option(
        name="transactionTimeout",
        default="1h",
        values="a time up to 24h",
        meaning="How long a task may write to brokers under exactly_once; one that hangs is aborted then.",
        ours=True,
    ),
)

_BY_NAME: Final = {option.name.lower(): option for option in SINK_TABLE}
_OF_A_DIRECTORY: Final = ("lockTimeout",)
_OF_BROKERS: Final = ("transactionTimeout",)
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
_MAPPED: Final = {
    "kafka.compression.type": "compression",
    "kafka.bootstrap.servers": "bootstrap.servers",
}
_LOCAL = "a store in a directory has no such thing"
_STAGED = "the driver appends what tasks have staged, and waits until it is durable"
SINK_HARMLESS: Final = {
    "includeheaders": "headers are written when the column is there",
    "kafka.acks": _STAGED,
    "kafka.batch.size": _STAGED,
    "kafka.buffer.memory": _STAGED,
    "kafka.client.id": _LOCAL,
    "kafka.delivery.timeout.ms": _STAGED,
    "kafka.enable.idempotence": _STAGED,
    "kafka.linger.ms": _STAGED,
    "kafka.max.block.ms": "lockTimeout bounds the wait",
    "kafka.max.in.flight.requests.per.connection": _LOCAL,
    "kafka.max.request.size": "the topic's max.message.bytes bounds a record",
    "kafka.metadata.max.age.ms": _LOCAL,
    "kafka.request.timeout.ms": _LOCAL,
    "kafka.retries": _STAGED,
    "kafka.retry.backoff.ms": _LOCAL,
}
"""Options of Spark's Kafka sink that change nothing here; a warning says so."""

_BYTES = "keys and values are strings or binary; make them so with DataFrame functions"
SINK_REFUSED: Final = {
    "kafka.key.serializer": _BYTES,
    "kafka.value.serializer": _BYTES,
    "kafka.transactional.id": "it is the query's own: spark-<query id>",
    "kafka.partitioner.class": "the topic's setting partitioner says it, or the column partition",
    "kafka.interceptor.classes": "there is no Kafka client whose calls could be intercepted",
}

_NAMES: Final = OptionNames(
    known=_BY_NAME,
    mapped=_MAPPED,
    harmless=SINK_HARMLESS,
    refused=SINK_REFUSED,
    use="writing to",
    give_path=".save(DIR), .start(DIR) or option path",
    where=" for writes",
    passed=_SPARKS_OWN,
    elsewhere=SOURCE_NAMES.keys() - _BY_NAME.keys(),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkOptions:
    """The options of one write. ``topic`` None: the column says it; ``compression`` None: the topic says it;
    ``checkpoint`` None: the query's is not an option of the write, or no folder of this machine."""

    target: Target
    topic: str | None
    delivery: Delivery
    compression: str | None
    lock_timeout_s: float
    changed_batch: ChangedBatch = "error"
    transaction_timeout_s: float = 3600.0
    checkpoint: str | None = None

    @property
    def path(self) -> str:
        """The store's directory; "" for brokers."""
        return self.target.path


class ParsedSink(NamedTuple):
    """``warnings``: options that change nothing, a sentence each."""

    options: SinkOptions
    warnings: list[str]


def parse_sink(given: Mapping[str, str]) -> ParsedSink:
    """``InvalidArgumentError`` names the option and what it may be, or the nearest to an unknown one."""
    values, warnings = _NAMES.sort(given)
    lowered = {name.lower(): value for name, value in given.items()}
    target = target_of(values, _NAMES, "a write")
    topic = values.get("topic")
    if topic is not None and not topic.strip():
        raise InvalidArgumentError(
            "option topic is empty", hint="name a topic, or leave it to the column topic"
        )
    for option in _OF_A_DIRECTORY if target.brokers else ():
        if option.lower() in values:
            raise InvalidArgumentError(
                f"option {option} is for a directory, not for bootstrap.servers={target.brokers}",
                hint="leave it out",
            )
    for option in () if target.brokers else _OF_BROKERS:
        if option.lower() in values:
            raise InvalidArgumentError(
                f"option {option} is for brokers, not for path={target.path}", hint="leave it out"
            )
    return ParsedSink(_options(values, lowered, target, topic), warnings)


def _options(
    values: Mapping[str, str], lowered: Mapping[str, str], target: Target, topic: str | None
) -> SinkOptions:
    timeout_ms = time_ms(values, "transactionTimeout", _BY_NAME["transactiontimeout"].default)
    if not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidArgumentError(
            f"transactionTimeout={values['transactiontimeout']}",
            hint="it is more than nothing, and at most 24h",
        )
    return SinkOptions(
        target=target,
        topic=None if topic is None else topic.strip(),
        delivery=cast(Delivery, one_of(values, "delivery", ("exactly_once", "at_least_once"))),
        compression=one_of(values, "compression", tuple(CODECS)) if "compression" in values else None,
        lock_timeout_s=time_ms(values, "lockTimeout", _BY_NAME["locktimeout"].default) / 1000,
        changed_batch=cast(ChangedBatch, one_of(values, "changedBatch", ("error", "skip", "append"))),
        checkpoint=local_folder(lowered.get("checkpointlocation", "")),
        transaction_timeout_s=timeout_ms / 1000,
    )
