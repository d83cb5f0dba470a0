"""A partition's folder: made with the topic's id in it, and never taken over from another topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from logstore.directory import topic_state
from logstore.errors import DamagedStoreError, from_os_error
from logstore.log.checkpoints import METADATA_FILE, decode_metadata, encode_metadata
from logstore.log.segments.segment import LOG_SUFFIX
from logstore.seams.fs import FileSystem, exists, read_file, replace_file

DELETION_NOTE = ".deleting"
FanOut: TypeAlias = Callable[[Callable[[str], object], Sequence[str]], None]  # a call for each, side by side


def ensure_folders(
    fs: FileSystem, root: str, directories: Sequence[str], topic_id: str, fan_out: FanOut
) -> None:
    """``ensure_folder`` for many partitions of one topic: their names in ``root`` become durable by one sync."""
    fan_out(lambda directory: ensure_folder(fs, root, directory, topic_id, sync_root=False), directories)
    try:
        fs.sync_dir(root)
    except OSError as error:
        raise from_os_error(error, "sync", root) from error


def ensure_folder(
    fs: FileSystem, root: str, directory: str, topic_id: str, *, sync_root: bool = True
) -> None:
    """Make ``directory`` with its `partition.metadata`, durably, unless it is there. ``sync_root=False``: the
    caller makes the folder's own name durable.

    A folder that belongs to an earlier topic of the same name whose deletion was cut short (its note is
    there) is renamed out of the way with Kafka's suffix `.<id>-delete`, to be removed by the next sweep. Any
    other topic's folder is ``DamagedStoreError``, and so are records without metadata: the folder is durable,
    with its metadata, before the first record.
    """
    try:
        _ensure(fs, root, directory, topic_id)
        if sync_root:
            fs.sync_dir(root)
    except OSError as error:
        raise from_os_error(error, "make", directory) from error


def _ensure(fs: FileSystem, root: str, directory: str, topic_id: str) -> None:
    metadata = f"{directory}/{METADATA_FILE}"
    if exists(fs, directory):
        found = _owner(fs, metadata)
        if found == topic_id:
            # Whoever made it may have been killed before its names were durable.
            fs.sync_dir(directory)
            return
        if found is not None:
            if exists(fs, deletion_note_path(root, found)):
                fs.rename(directory, f"{directory}.{found}-delete")
            elif _owner(fs, metadata) == found:  # else another process just finished that deletion
                raise DamagedStoreError(
                    f"{directory} belongs to a topic with the id {found}, the catalogue says {topic_id}",
                    path=metadata,
                )
        elif any(name.endswith(LOG_SUFFIX) for name in fs.listdir(directory)):
            raise DamagedStoreError(f"{directory} holds records but no {METADATA_FILE}", path=metadata)
    if not exists(fs, directory):
        fs.mkdir(directory)
    replace_file(fs, metadata, encode_metadata(topic_id))


def _owner(fs: FileSystem, metadata: str) -> str | None:
    """The id of the topic that the folder belongs to; None when it does not say."""
    if not exists(fs, metadata):
        return None
    return decode_metadata(read_file(fs, metadata), metadata)


def deletion_note_path(root: str, topic_id: str) -> str:
    """Where it is noted, durably, that a topic is being deleted (``deletion.py``)."""
    return f"{root}/{topic_state.DIRECTORY}/{topic_id}{DELETION_NOTE}"


def folder_is_anothers(fs: FileSystem, directory: str, topic_id: str) -> bool:
    """Whether the folder says that it belongs to another topic than the one with that id."""
    metadata = f"{directory}/{METADATA_FILE}"
    try:
        return _owner(fs, metadata) not in (None, topic_id)
    except OSError as error:
        raise from_os_error(error, "read", metadata) from error


def folder_is_mine(fs: FileSystem, directory: str, topic_id: str) -> bool:
    """Whether the folder is there and belongs to the topic with that id."""
    metadata = f"{directory}/{METADATA_FILE}"
    try:
        return _owner(fs, metadata) == topic_id
    except OSError as error:
        raise from_os_error(error, "read", metadata) from error
