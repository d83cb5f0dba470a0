"""A partition's folder: made with the topic's id in it, and never taken over from another topic."""

from __future__ import annotations

from logstore.errors import DamagedStoreError, from_os_error
from logstore.log.checkpoints import METADATA_FILE, decode_metadata, encode_metadata
from logstore.log.segment import LOG_SUFFIX
from logstore.seams.fs import FileSystem, exists, read_file, replace_file


def ensure_folder(fs: FileSystem, root: str, directory: str, topic_id: str) -> None:
    """Make ``directory`` with its `partition.metadata`, durably, unless it is there.

    A folder that belongs to an earlier topic of the same name (its deletion was cut short) is renamed out of
    the way with Kafka's suffix `.<id>-delete`, to be removed by the next sweep. Records without metadata are
    ``DamagedStoreError``: the folder is durable, with its metadata, before the first record.
    """
    try:
        _ensure(fs, root, directory, topic_id)
    except OSError as error:
        raise from_os_error(error, "make", directory) from error


def _ensure(fs: FileSystem, root: str, directory: str, topic_id: str) -> None:
    metadata = f"{directory}/{METADATA_FILE}"
    if exists(fs, directory):
        if exists(fs, metadata):
            found = decode_metadata(read_file(fs, metadata), metadata)
            if found == topic_id:
                return
            fs.rename(directory, f"{directory}.{found}-delete")
        elif any(name.endswith(LOG_SUFFIX) for name in fs.listdir(directory)):
            raise DamagedStoreError(f"{directory} holds records but no {METADATA_FILE}", path=metadata)
    if not exists(fs, directory):
        fs.mkdir(directory)
    replace_file(fs, metadata, encode_metadata(topic_id))
    fs.sync_dir(root)


def folder_is_mine(fs: FileSystem, directory: str, topic_id: str) -> bool:
    """Whether the folder is there and belongs to the topic with that id."""
    metadata = f"{directory}/{METADATA_FILE}"
    if not exists(fs, metadata):
        return False
    return decode_metadata(read_file(fs, metadata), metadata) == topic_id
