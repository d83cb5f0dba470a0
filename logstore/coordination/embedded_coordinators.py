"""The coordinators of an embedded store: on internal topics that its processes write by turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.errors import TopicExistsError
from logstore.machine import StateMachine
from logstore.partition.context import StoreContext
from logstore.partition.topic_registry import TopicRegistry

Machine = TypeVar("Machine", bound=StateMachine)


class EmbeddedCoordinators:
    """``Coordinators``. Thread-safe."""

    def __init__(self, context: StoreContext, registry: TopicRegistry) -> None:
        self._context = context
        self._registry = registry

    def existing(self, topic: str, make: Callable[[], Machine]) -> CoordinatorRuntime[Machine] | None:
        entry = self._registry.catalogue.topics.get(topic)
        if entry is None:
            return None
        return CoordinatorRuntime(self._context, self._registry.coordinator_logs.of(entry), make)

    def needed(
        self, topic: str, config: Mapping[str, str], make: Callable[[], Machine]
    ) -> CoordinatorRuntime[Machine]:
        try:
            entry = self._registry.create(topic, 1, config, internal=True)
        except TopicExistsError:
            entry = self._registry.entry(topic)  # another process was first
        return CoordinatorRuntime(self._context, self._registry.coordinator_logs.of(entry), make)
