"""The faults of a campaign: what happens to the broker, its connections, its disk, and the workers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from rpc.testing.broker import BrokerForTests
from tests.history.crew import Crew, Member
from tests.history.workers import SESSION_MS


def kill_broker(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    broker.kill()
    time.sleep(dice.choice((0.0, 0.0, 1.0)))  # away for a while
    broker.restart()


def stop_broker(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    assert broker.stop() == 0
    broker.restart()


def pause_broker(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    broker.pause()
    time.sleep(dice.uniform(0.1, 3.0))
    broker.resume()


def drop_connections(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    for _ in range(dice.choice((1, 3))):
        broker.drop_connections()
        time.sleep(dice.uniform(0.0, 0.1))


def freeze_connections(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    """Half-open connections, some of which are cut while nothing passes."""
    broker.freeze_connections()
    time.sleep(dice.uniform(0.1, 3.0))
    if dice.random() < 0.5:
        broker.drop_connections()
    broker.thaw_connections()


def slow_disk(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    broker.slow_disk(0.2)
    time.sleep(dice.uniform(0.5, 1.5))
    broker.slow_disk(0)


def full_disk(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    broker.full_disk()
    time.sleep(dice.uniform(0.2, 1.0))
    broker.full_disk(False)


def broken_disk(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    """Syncs fail, until the broker has started anew on a disk that works."""
    broker.broken_disk()
    time.sleep(dice.uniform(0.2, 1.0))
    broker.kill()
    broker.forget_faults()
    broker.restart()


def _any(crew: Crew, dice: random.Random) -> Member:
    return dice.choice(list(crew.members.values()))


def kill_any_worker(crew: Crew, dice: random.Random) -> None:
    member = _any(crew, dice)
    member.kill()
    member.start()


def pause_any_worker(crew: Crew, dice: random.Random) -> None:
    """For longer than its session and its transaction, or for a moment."""
    member = _any(crew, dice)
    member.pause()
    time.sleep(dice.choice((0.5, SESSION_MS / 1000 + 3)))
    member.resume()


def kill_worker(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    kill_any_worker(crew, dice)


def pause_worker(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    pause_any_worker(crew, dice)


def kill_all(broker: BrokerForTests, crew: Crew, dice: random.Random) -> None:
    """The broker and a worker in one moment."""
    broker.kill()
    member = _any(crew, dice)
    member.kill()
    broker.restart()
    member.start()


FAULTS: Final[dict[str, Callable[[BrokerForTests, Crew, random.Random], None]]] = {
    fault.__name__: fault
    for fault in (
        kill_broker,
        stop_broker,
        pause_broker,
        drop_connections,
        freeze_connections,
        slow_disk,
        full_disk,
        broken_disk,
        kill_worker,
        pause_worker,
        kill_all,
    )
}
