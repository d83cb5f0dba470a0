"""Delete a topic so that a crash at any step leaves it whole or gone, never half.

A durable note `.state/<topic id>.deleting` comes first, then the catalogue forgets the topic (this is the
moment of deletion), then folders and state go, the note last. A store that finds a note at its opening
finishes the deletion, or drops the note if the catalogue still has the topic.

Another topic may get the name at once. So whatever has the names that it will use (folders, state) is moved out of
the way with the catalogue's lock held: by the process that deletes, or by the one that makes the other topic, which
looks for it. What is left then has names of its own, and any process may remove it at any time.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable

from logstore.directory import topic_state
from logstore.directory.catalogue import CATALOGUE_NAME, MAX_PARTITIONS, Catalogue, TopicEntry, is_uuid
from logstore.directory.partition_folder import DELETION_NOTE, deletion_note_path, folder_is_mine
from logstore.errors import DamagedStoreError, LogStoreError, from_os_error
from logstore.seams.fs import FileSystem, exists, read_file, remove_if_there, replace_file

logger = logging.getLogger(__name__)


def announce(fs: FileSystem, root: str, entry: TopicEntry) -> None:
    """Write the note, durably. The catalogue's lock is held until it has forgotten the topic. Raises
    ``StorageError`` or ``DiskFullError``."""
    content = json.dumps({"topic": entry.name, "topic_id": entry.topic_id, "partitions": entry.partitions})
    path = deletion_note_path(root, entry.topic_id)
    try:
        if not exists(fs, f"{root}/{topic_state.DIRECTORY}"):
            topic_state.make_directory(fs, root)
        replace_file(fs, path, content.encode())
    except OSError as error:
        raise from_os_error(error, "write", path) from error


def move_aside(fs: FileSystem, root: str, topic: str, topic_id: str, partitions: int) -> None:
    """Free the names of a topic that the catalogue no longer has. Its lock is held. May be run again."""
    try:
        for partition in range(partitions):
            directory = f"{root}/{topic}-{partition}"
            if folder_is_mine(fs, directory, topic_id):
                fs.rename(directory, f"{directory}.{topic_id}-delete")
        _remove_state(fs, root, topic, topic_id)
    except OSError as error:
        raise from_os_error(error, "move aside the files of topic", f"{root}/{topic}") from error


def finish(fs: FileSystem, root: str, topic: str, topic_id: str) -> None:
    """Remove what was moved aside, and the note. May be run again, and by several processes at a time."""
    try:
        fs.sync_dir(root)
        sweep_folders(fs, root)
        fs.sync_dir(root)  # before the note goes: without it nobody would sweep what a power loss brings back
        remove_if_there(fs, deletion_note_path(root, topic_id))
        fs.sync_dir(f"{root}/{topic_state.DIRECTORY}")
    except OSError as error:
        raise from_os_error(error, "remove the files of topic", f"{root}/{topic}") from error


def _remove_state(fs: FileSystem, root: str, topic: str, topic_id: str) -> None:
    state = topic_state.load(fs, root, topic)
    if state is not None and state.topic_id == topic_id:
        topic_state.remove(fs, root, topic)


def sweep_folders(fs: FileSystem, root: str) -> None:
    """Remove folders that are on their way out (`*-delete`); another process may be at it, too."""
    for name in fs.listdir(root):
        if name.endswith("-delete"):
            directory = f"{root}/{name}"
            try:
                for file_name in fs.listdir(directory):
                    remove_if_there(fs, f"{directory}/{file_name}")
                fs.rmdir(directory)
            except FileNotFoundError:
                continue  # the other one was faster


def free_names(
    fs: FileSystem, root: str, catalogue: Catalogue, topic: str, partitions: Iterable[int]
) -> None:
    """Before the catalogue gives these partitions to ``topic``: move aside what a deletion that is under way, or was
    cut short, has left under their names. The catalogue's lock is held."""
    try:
        if any(exists(fs, f"{root}/{topic}-{partition}") for partition in partitions):
            resume(fs, root, catalogue)
    except OSError as error:
        raise from_os_error(error, "look for", f"{root}/{topic}") from error


def resume(fs: FileSystem, root: str, catalogue: Catalogue) -> None:
    """Finish deletions that a crash cut short. The catalogue's lock is held."""
    directory = f"{root}/{topic_state.DIRECTORY}"
    try:
        names = fs.listdir(directory) if exists(fs, directory) else []
    except OSError as error:
        raise from_os_error(error, "list", directory) from error
    for name in names:
        if not name.endswith(DELETION_NOTE):
            continue
        path = f"{directory}/{name}"
        try:
            topic, topic_id, partitions = _read_note(fs, path)
            entry = catalogue.topics.get(topic)
            if entry is not None and entry.topic_id == topic_id:
                fs.remove(path)  # the catalogue never forgot it: the deletion did not happen
            else:
                move_aside(fs, root, topic, topic_id, partitions)
                finish(fs, root, topic, topic_id)
        except FileNotFoundError:
            continue  # the process whose deletion it is has just come to its end
        except (OSError, LogStoreError) as error:
            # The topic is gone already; files that cannot be removed today must not keep a store shut.
            logger.warning("could not finish the deletion noted in %s: %s", path, error)


def _read_note(fs: FileSystem, path: str) -> tuple[str, str, int]:
    try:
        note = json.loads(read_file(fs, path))
        topic, topic_id, partitions = note["topic"], note["topic_id"], note["partitions"]
        if not (
            isinstance(topic, str) and is_uuid(topic_id) and type(partitions) is int and "/" not in topic
        ):
            raise ValueError("fields of the wrong kind")
        if not 0 <= partitions <= MAX_PARTITIONS:
            raise ValueError(f"no topic has {partitions} partitions")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedStoreError(f"{path} is not a deletion note: {error}", path=path) from None
    return topic, topic_id, partitions


def sweep_temporaries(fs: FileSystem, root: str, topics: Iterable[str]) -> None:
    """Remove the `.tmp` files of writes that a crash cut short and that no later write would replace: those of the
    catalogue, of deletion notes, and of the states of topics that are gone. The catalogue's lock is held: the first
    two are only written under it, and a topic without an entry in the catalogue has no owner that could write its
    state. All others belong to a file that is there still; its next write replaces them."""
    directory = f"{root}/{topic_state.DIRECTORY}"
    kept = {os.path.basename(topic_state.state_path(root, topic)) + ".tmp" for topic in topics}
    try:
        remove_if_there(fs, f"{root}/{CATALOGUE_NAME}.tmp")
        for name in fs.listdir(directory) if exists(fs, directory) else []:
            if name.endswith((f"{DELETION_NOTE}.tmp", ".json.tmp")) and name not in kept:
                remove_if_there(fs, f"{directory}/{name}")
    except OSError as error:
        # They say nothing to anyone; what cannot be removed today must not keep a store shut.
        logger.warning("could not remove what is left of files of %s: %s", root, error)
