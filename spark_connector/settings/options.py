"""Options as Spark hands them over, into one validated ``SourceOptions``. What there is: ``option_table.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from logstore import TopicPartition
from logstore.errors import InvalidArgumentError, NotAvailableYetError
from logstore.types import Isolation
from spark_connector.settings.option_names import Checked, OptionNames, one_of, target_of, time_ms
from spark_connector.settings.option_table import BY_NAME, HARMLESS, LATER_FORMATS, MAPPED, REFUSED, Option
from spark_connector.settings.positions import (
    EARLIEST,
    INT64_MAX,
    INT64_MIN,
    LATEST,
    PositionSpec,
    partition_list,
    partition_table,
)
from spark_connector.settings.sink_options import SINK_TABLE
from spark_connector.settings.target import Target

Mode: TypeAlias = Literal["batch", "stream", "any"]
"""What the options are read for; "any": to learn the schema, when Spark has not said yet."""

ValueFormat: TypeAlias = Literal["binary", "string", "json"]


class Selection(NamedTuple):
    """What is read: partitions one by one, topics, or all topics that match a pattern. One is not empty."""

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceOptions:
    """The options of one read. Limits are None where none was set."""

    target: Target
    selection: Selection
    starting: PositionSpec
    ending: PositionSpec
    isolation: Isolation
    fail_on_data_loss: bool
    include_headers: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    value_format: ValueFormat
    value_schema: str
    commit_group: str | None


_NAMES: Final = OptionNames(
    known=BY_NAME,
    mapped=MAPPED,
    harmless=HARMLESS,
    refused=REFUSED,
    use="reading from",
    give_path=".load(DIR) or option path",
    elsewhere=frozenset(option.name.lower() for option in SINK_TABLE) - BY_NAME.keys(),
)


def check_names(given: Mapping[str, str], mode: Mode) -> Checked:
    """Sort the options out by name. ``InvalidArgumentError`` for one that is unknown (it names the nearest) or
    refused."""

    def counts(option: Option, warnings: list[str]) -> bool:
        if mode == "any" or option.scope in ("both", mode):
            return True
        if option.outside == "refused":
            raise InvalidArgumentError(
                f"option {option.name} cannot be set for a {mode} read",
                hint=f"it is for {option.scope} reads",
            )
        warnings.append(f"option {option.name} is for {option.scope} reads and ignored")
        return False

    return _NAMES.sort(given, counts)


def parse(given: Mapping[str, str], mode: Mode) -> SourceOptions:
    """The options of one read, checked. Errors: ``check_names``; ``InvalidArgumentError`` names the option and
    says what it may be; ``NotAvailableYetError`` for value formats that are still to come."""
    values = check_names(given, mode).values
    target = target_of(values, _NAMES, "a read")
    least, most = _number(values, "minOffsetsPerTrigger"), _number(values, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidArgumentError(
            f"minOffsetsPerTrigger={least} is higher than maxOffsetsPerTrigger={most}", hint="lower it"
        )
    value_format = _value_format(values)
    return SourceOptions(
        target=target,
        selection=_selection(values),
        starting=_starting(values, mode),
        ending=_ending(values),
        isolation=cast(Isolation, one_of(values, "isolation", ("read_committed", "read_uncommitted"))),
        fail_on_data_loss=one_of(values, "failOnDataLoss", ("true", "false")) == "true",
        include_headers=one_of(values, "includeHeaders", ("true", "false"), "false") == "true",
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_bytes_per_trigger=_number(values, "maxBytesPerTrigger"),
        max_trigger_delay_ms=time_ms(values, "maxTriggerDelay", BY_NAME["maxtriggerdelay"].default),
        min_partitions=_number(values, "minPartitions"),
        max_records_per_partition=_number(values, "maxRecordsPerPartition"),
        value_format=value_format,
        value_schema=_value_schema(values, value_format),
        commit_group=values.get("commit.group") or None,
    )


def _selection(values: Mapping[str, str]) -> Selection:
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in values]
    if len(chosen) != 1:
        told = "none of them is" if not chosen else f"{', '.join(chosen[:-1])} and {chosen[-1]} are"
        raise InvalidArgumentError(
            f"exactly one of assign, subscribe and subscribePattern must be set: {told} set now",
            hint='for one topic: .option("subscribe", "flights")',
        )
    text = values[chosen[0].lower()].strip()
    if not text:
        raise InvalidArgumentError(f"option {chosen[0]} is empty", hint="name at least one topic")
    if chosen[0] == "assign":
        return Selection(assigned=partition_list(text, "assign"))
    if chosen[0] == "subscribe":
        topics = sorted({name.strip() for name in text.split(",")} - {""})
        if not topics:
            raise InvalidArgumentError(f"subscribe={text} names no topic", hint="name at least one topic")
        return Selection(topics=tuple(topics))
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidArgumentError(
            f"subscribePattern={text} is no regular expression: {error}", hint="Python's syntax is used"
        ) from error
    return Selection(pattern=text)


def _starting(values: Mapping[str, str], mode: Mode) -> PositionSpec:
    strategy = one_of(values, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    otherwise: Literal["error", "latest"] = "latest" if strategy == "latest" else "error"
    by_time = _by_time(values, "startingTimestamp", "startingOffsetsByTimestamp", otherwise)
    if by_time is not None:
        return by_time
    option = "startingOffsets"
    text = values.get(option.lower(), "earliest" if mode == "batch" else "latest").strip()
    batch_hint = "a batch read cannot begin at latest: there would be nothing; use earliest or offsets"
    if text.lower() == "earliest":
        return PositionSpec(kind="earliest", option=option)
    if text.lower() == "latest":
        if mode == "batch":
            raise InvalidArgumentError("startingOffsets=latest", hint=batch_hint)
        return PositionSpec(kind="latest", option=option)
    table = partition_table(text, option, lowest=EARLIEST)
    if mode == "batch" and LATEST in table.values():
        raise InvalidArgumentError(f"{option}={text}", hint=batch_hint)
    return PositionSpec(kind="offsets", option=option, table=table)


def _ending(values: Mapping[str, str]) -> PositionSpec:
    by_time = _by_time(values, "endingTimestamp", "endingOffsetsByTimestamp", "latest")
    if by_time is not None:
        return by_time
    option = "endingOffsets"
    text = values.get(option.lower(), "latest").strip()
    if text.lower() == "latest":
        return PositionSpec(kind="latest", option=option)
    if text.lower() == "earliest":
        raise InvalidArgumentError(
            "endingOffsets=earliest", hint="nothing would be read; use latest or offsets"
        )
    table = partition_table(text, option, lowest=EARLIEST)
    if EARLIEST in table.values():
        raise InvalidArgumentError(
            f"{option}={text}", hint="a read cannot end at earliest (-2); -1 is latest"
        )
    return PositionSpec(kind="offsets", option=option, table=table)


_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
"""What may fit 64 bits. int() refuses more than 4,300 digits with an error that names no option."""


def _by_time(
    values: Mapping[str, str], for_all: str, for_each: str, otherwise: Literal["error", "latest"]
) -> PositionSpec | None:
    if for_all.lower() in values:
        text = values[for_all.lower()].strip()
        number = int(text) if _WHOLE.fullmatch(text) else None
        if number is None or not INT64_MIN <= number <= INT64_MAX:
            raise InvalidArgumentError(
                f"{for_all}={text[:60]}", hint="it is a time in ms since 1970 UTC, negative before"
            )
        return PositionSpec(kind="timestamp", option=for_all, timestamp_ms=number, otherwise=otherwise)
    if for_each.lower() in values:
        table = partition_table(values[for_each.lower()], for_each, lowest=INT64_MIN)
        return PositionSpec(kind="timestamps", option=for_each, table=table, otherwise=otherwise)
    return None


def _value_format(values: Mapping[str, str]) -> ValueFormat:
    text = values.get("valueformat", "binary").strip().lower()
    if text in LATER_FORMATS:
        raise NotAvailableYetError(
            f"valueFormat={text} comes with a later version",
            hint="read binary values and decode them with DataFrame functions (from_avro, from_protobuf, ...)",
        )
    return cast(ValueFormat, one_of(values, "valueFormat", ("binary", "string", "json")))


def _value_schema(values: Mapping[str, str], value_format: ValueFormat) -> str:
    text = values.get("valueschema", "").strip()
    if value_format == "json" and not text:
        raise InvalidArgumentError(
            "valueFormat=json needs valueSchema",
            hint='give the columns: .option("valueSchema", "carrier STRING, flight INT")',
        )
    if value_format != "json" and text:
        raise InvalidArgumentError(
            f"valueSchema is set, but valueFormat is {value_format}", hint="set valueFormat=json"
        )
    return text


def _number(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name.lower())
    if text is None:
        return None
    number = int(text) if _WHOLE.fullmatch(text.strip()) else 0
    if not 0 < number <= INT64_MAX:
        raise InvalidArgumentError(f"{name}={text[:60]}", hint="it is a whole number, at least 1")
    return number
