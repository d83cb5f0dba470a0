"""A second process with the number of a node that lives, as a fault: none is drawn, as they need a node that lives."""

from __future__ import annotations

import random
from typing import Final

from logstore.errors import LogStoreError
from logstore.seams.memory_fs import MemoryFileSystem
from replication.errors import DuplicateBrokerError
from tests.sim.cluster.disk import SimulatedDisk
from tests.sim.cluster.faults import Fault
from tests.sim.cluster.network import SimulatedLine
from tests.sim.cluster.scheduler import Host
from tests.sim.cluster.world import Machine, NodeClock, World

REFUSED: Final = "second processes refused"
STARTED: Final = "second processes that became a broker"
SUPERSEDED: Final = "first processes that stopped"


class Second:
    """With a copy of the directory, or an empty one, by the fault's luck."""

    def __init__(self, world: World, machine: Machine, fault: Fault) -> None:
        self.world = world
        self.machine = machine
        dice = random.Random(fault.luck)
        self.copied = fault.luck % 2 == 1
        self.fs = machine.fs.clone() if self.copied else MemoryFileSystem()
        self.host = Host(f"second{machine.number}.{fault.luck}")
        world.hosts.append(self.host)
        self.line = SimulatedLine(world.network, machine.number, self.host)
        self.disk = SimulatedDisk(world.scheduler, random.Random(dice.random()), self.fs)
        clock = NodeClock(world.scheduler, f"second{machine.number}.{fault.luck}")
        self.node = machine.make(self.disk, clock, self.line, dice)

    def start(self) -> bool:
        world = self.world
        try:
            self.node.start()
        except DuplicateBrokerError as error:
            world.note(f"a second process is refused: {error.message}")
            world.counts[REFUSED] += 1
            return False
        except LogStoreError as error:
            world.note(f"a second process does not start: {type(error).__name__}: {error.message}")
            return False
        world.counts[STARTED] += 1
        return True


def _beside(world: World, fault: Fault) -> None:
    """The others reach the first one only, which goes on."""
    second = Second(world, world.machines[fault.node], fault)
    world.note(f"fault: {fault.what} at node {fault.node}, copied {second.copied}")
    world.scheduler.spawn("second", second.start, second.host)


def _instead(world: World, fault: Fault) -> None:
    """The first one stands still until the second has its number, and goes on then."""
    machine = world.machines[fault.node]
    first, first_host, scheduler = machine.node, machine.host, world.scheduler
    if first is None or not machine.ready:
        world.counts["faults that met no node"] += 1
        return
    first.sessions.when_superseded(lambda _: world.counts.update([SUPERSEDED]))
    scheduler.pause(first_host)
    second = Second(world, machine, fault)
    world.note(f"fault: {fault.what} at node {fault.node}, copied {second.copied}")
    world.network.lines[machine.number] = second.line
    machine.fs, machine.node, machine.host, machine.ready = second.fs, second.node, second.host, False
    machine.disk = second.disk

    def start() -> None:
        machine.ready = second.start()

    def resume() -> None:
        while not machine.ready:
            scheduler.let_pass(0.1)
        scheduler.let_pass(fault.lasts_s)
        scheduler.resume(first_host)

    scheduler.spawn("second", start, second.host)
    scheduler.spawn("resume", resume, scheduler.world)


SECONDS: Final = {"second beside": _beside, "second instead": _instead}
