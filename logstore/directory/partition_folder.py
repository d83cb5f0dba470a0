"""A partition's folder: made with the topic's id in it, and never taken over from another topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from logstore.directory import topic_state
from logstore.errors import DamagedStoreError, from_os_error
from logstore.log.checkpoints import METADATA_FILE, decode_metadata, encode_metadata
from logstore.log.segments.segment import LOG_SUFFIX
from logstore.seams.fs import FileSystem, exists, put_file, read_file

DELETION_NOTE = ".deleting"
FanOut: TypeAlias = Callable[[Callable[[str], None], Sequence[str]], None]  # a call for each, side by side


def one_by_one(work: Callable[[str], None], directories: Sequence[str]) -> None:
    for directory in directories:
        work(directory)


def ensure_folder(fs: FileSystem, root: str, directory: str, topic_id: str) -> None:
    """``make_folder``, with all names durable."""
    make_folder(fs, root, directory, topic_id)
    sync_folders(fs, root, [directory])


def sync_folders(fs: FileSystem, root: str, directories: Sequence[str], fan_out: FanOut = one_by_one) -> None:
    """Make the names in the folders durable, and then those of the folders, with one sync of ``root`` for all."""

    def sync(directory: str) -> None:
        try:
            fs.sync_dir(directory)
        except OSError as error:
            raise from_os_error(error, "sync", directory) from error

    fan_out(sync, directories)
    sync(root)


def make_folder(fs: FileSystem, root: str, directory: str, topic_id: str, twin: str | None = None) -> bool:
    """Make ``directory`` with its `partition.metadata` unless it is there; True if it was not. Its names are durable
    after ``sync_folders``, which comes before the first record. ``twin``: a folder of the same topic, whose
    metadata may be shared (``put_file``).

    A folder that belongs to an earlier topic of the same name whose deletion was cut short (its note is
    there) is renamed out of the way with Kafka's suffix `.<id>-delete`, to be removed by the next sweep. Any
    other topic's folder is ``DamagedStoreError``, and so are records without metadata: a crash in here leaves no
    more than an empty log without.
    """
    try:
        return _make(fs, root, directory, topic_id, twin)
    except OSError as error:
        raise from_os_error(error, "make", directory) from error


def _make(fs: FileSystem, root: str, directory: str, topic_id: str, twin: str | None) -> bool:
    metadata = f"{directory}/{METADATA_FILE}"
    if exists(fs, directory):
        found = _owner(fs, metadata)
        if found == topic_id:
            return False
        if found is not None:
            if exists(fs, deletion_note_path(root, found)):
                fs.rename(directory, f"{directory}.{found}-delete")
            elif _owner(fs, metadata) == found:  # else another process just finished that deletion
                raise DamagedStoreError(
                    f"{directory} belongs to a topic with the id {found}, the catalogue says {topic_id}",
                    path=metadata,
                )
        elif holds_records(fs, directory):
            raise DamagedStoreError(f"{directory} holds records but no {METADATA_FILE}", path=metadata)
    new = not exists(fs, directory)
    if new:
        fs.mkdir(directory)
    put_file(fs, metadata, encode_metadata(topic_id), f"{twin}/{METADATA_FILE}" if new and twin else None)
    return new


def holds_records(fs: FileSystem, directory: str) -> bool:
    """Whether any log in there has bytes. ``OSError``."""
    logs = (name for name in fs.listdir(directory) if name.endswith(LOG_SUFFIX))
    return any(fs.stat(f"{directory}/{name}").size for name in logs)


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
