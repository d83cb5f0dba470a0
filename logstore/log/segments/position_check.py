"""Whether a reader's position is one that the log still has, and under the epoch it was reached in."""

from __future__ import annotations

from collections.abc import Callable

from logstore.errors import DataLossError, OffsetOutOfRangeError
from logstore.log.epochs import Epochs
from logstore.log.log_offsets import LogOffsets


def check_position(
    where: str, epoch_table: Callable[[], Epochs], bounds: LogOffsets, offset: int, leader_epoch: int
) -> None:
    """``OffsetOutOfRangeError``; ``DataLossError`` when the position, reached under ``leader_epoch`` (-1:
    unknown), lies past the end of that epoch."""
    if 0 <= leader_epoch < bounds.leader_epoch:
        end = epoch_table().end_offset(leader_epoch, bounds.log_end_offset)
        if offset > end:
            raise DataLossError(
                f"{where}: position {offset} was reached under epoch {leader_epoch}, which ends at {end}",
                lost_from=end,
                position=offset,
            )
    if bounds.log_start_offset <= offset <= bounds.log_end_offset:
        return
    if leader_epoch >= 0 and offset > bounds.log_end_offset:
        raise DataLossError(
            f"{where}: position {offset} had been reached, but the log now ends at {bounds.log_end_offset}",
            lost_from=bounds.log_end_offset,
            position=offset,
        )
    if 0 <= offset < bounds.log_start_offset:
        raise OffsetOutOfRangeError(
            f"{where}: offsets {offset} to {bounds.log_start_offset - 1} are gone, the log now starts at "
            f"{bounds.log_start_offset}",
            log_start_offset=bounds.log_start_offset,
            end_offset=bounds.high_watermark,
        )
    raise OffsetOutOfRangeError(
        f"{where}: offset {offset} is outside [{bounds.log_start_offset}, {bounds.high_watermark}]",
        log_start_offset=bounds.log_start_offset,
        end_offset=bounds.high_watermark,
    )
